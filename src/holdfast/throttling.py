"""Which limits hold jobs back, and who is to hear of a limit that was changed: for whoever shows jobs and sets limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.limits import LimitKind
from holdfast.core.states import State
from holdfast.notify.port import Hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.core.limits import LimitName
    from holdfast.store.port import JobView, LimitView, Store


async def marked(store: Store, views: Sequence[JobView]) -> list[JobView]:
    """Return jobs with those marked as throttled that a limit holds back: one more question, where any of them is ready."""
    names = {name for view in views if may_be_held(view) for name in view.limits_over}
    if not names:
        return list(views)
    limits = {limit.name: limit for limit in await store.limits(sorted(names, key=str))}
    return [
        msgspec.structs.replace(view, throttled=True)
        if may_be_held(view) and used_up(view, (limits[name] for name in view.limits_over))
        else view
        for view in views
    ]


def may_be_held(view: JobView) -> bool:
    """Tell whether a limit may be what a job waits for: of a paused queue that is the pause."""
    return view.state is State.READY and not view.paused


def used_up(view: JobView, limits: Iterable[LimitView]) -> list[LimitView]:
    """Return those limits that do not let a job start now."""
    return [limit for limit in limits if (room := limit.room) is not None and not room.admits(view.policy.cost)]


def change_of(name: LimitName) -> Hint:
    """Return what is sent when a limit was changed: there may be room now, in that queue or in any."""
    return Hint(frozenset({name.name})) if name.kind is LimitKind.QUEUE else Hint(anything=True)
