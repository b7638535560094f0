"""When leases end and when handlers stop, on one scale: moments of the machine's monotonic clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.core.states import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Handle
    from tests.faults.support import Fleet


async def ends_of_leases(fleet: Fleet, handles: Sequence[Handle[Any]]) -> dict[str, float]:
    """Return when the leases end that nobody can extend any more: by the store's clock, as moments of the monotonic one."""
    ends: dict[str, float] = {}
    running = True
    while running:
        before, now = time.monotonic(), await fleet.now()
        views = [view for view in await fleet.views(handles) if (view.state, view.attempt) == (State.RUNNING, 1)]
        ends |= {str(view.id): before + (view.expires_at - now).total_seconds() for view in views if view.expires_at}
        running = any(not view.lapsed for view in views)
    return ends


def last_moments(fleet: Fleet, handles: Sequence[Handle[Any]]) -> dict[str, float]:
    """Return when each first attempt stopped, or last gave a sign of life."""
    found: dict[str, float] = {}
    for note in [*fleet.notes("lives", handles), *fleet.notes("stopped", handles)]:
        if note.fields["attempt"] == 1:
            found[note.job] = max(found.get(note.job, 0.0), note.fields["moment"])
    assert set(found) == {str(handle.id) for handle in handles}, "a handler was not asked to stop"
    return found
