"""Run an event log through the table of transitions: the log must tell the same story as the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.states import TRANSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.states import State
    from holdfast.store.port import EventView


def replay(events: Sequence[EventView]) -> State | None:
    """Return the state a job is in after `events`, oldest first; `None` for a job that was never there or is gone.

    Raises ValueError naming the first step the table does not know, or whose line claims another state than the table.
    """
    state: State | None = None
    for number, line in enumerate(events, start=1):
        if (state, line.event) not in TRANSITIONS:
            raise ValueError(f"line {number}: '{line.event}' cannot happen to a job that is {_shown(state)}")
        after = TRANSITIONS[state, line.event]
        if after is not line.state:
            raise ValueError(
                f"line {number}: '{line.event}' leads from {_shown(state)} to {_shown(after)}, "
                f"but the line says {_shown(line.state)}"
            )
        state = after
    return state


def _shown(state: State | None) -> str:
    return "not there" if state is None else state.value
