"""Traces that a person can read: names for ids, short texts for what is given and answered, and what is dull in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.core.job import NewJob
from holdfast.core.lease import Claimed, Extended, Hold, Lease
from holdfast.store.port import ChainsDeleted, ClaimRequest, Enqueued, Promoted, Pruned, Reaped, Settlement

if TYPE_CHECKING:
    from lab.sim.history import Done

QUIET: Final = frozenset(
    {"beat", "schedules", "now", "signals", "mark_offline", "unblock", "drop_overdue", "open", "register", "schedule", "get"}
    | {"chains", "blockers", "retire"}
)
"""What goes on all the time, or only asks."""
EMPTY: Final = frozenset({"claim", "reap", "parts", "holding"})
"""What is of no interest when it has brought nothing."""


class Line(NamedTuple):
    """Something that has happened. Its text is made when somebody wants to read it: hardly any run is ever read."""

    time: float
    who: str
    what: str | Done

    def __str__(self) -> str:
        what = self.what
        text = what if isinstance(what, str) else f"{what.name}{shown(what.given[0])} -> {shown(what.answer)}"
        return f"{self.time:9.3f}  {self.who:<4} {text}"

    @property
    def dull(self) -> bool:
        """Whether it happens all the time, whatever else does."""
        return not isinstance(self.what, str) and _dull(self.what.name, self.what.answer)


def _dull(name: str, answer: Any) -> bool:
    if isinstance(answer, Promoted | Pruned):
        return not answer.count
    if name == "extend":
        return all(isinstance(one, Extended) and one.hold is Hold.HELD and not one.cancel_requested for one in answer)
    return name in QUIET or (name in EMPTY and not answer)


def shown(value: Any) -> str:
    """Return a short text of anything that goes to a store or comes from one."""
    match value:
        case UUID():
            return f"{value.hex[-6:]}"
        case NewJob():
            after = f" after {shown(value.after)}" if value.after else ""
            return f"{value.task}:{shown(value.id)}{after}"
        case Lease():
            return f"{shown(value.job_id)}/{value.token.hex[:4]}"
        case Claimed():
            return f"{value.task}:{shown(value.lease)}#{value.attempt}"
        case Settlement():
            then = "" if value.then is None else f" then {shown(value.then)}"
            return f"{shown(value.lease)} {value.write.event}{then}"
        case Enqueued():
            return f"{value.status} {shown(value.job_id)}"
        case Extended():
            return f"{value.hold}{' cancel' if value.cancel_requested else ''}"
        case Reaped():
            return f"{value.task}:{shown(value.job_id)}#{value.attempt} {value.write.event}"
        case Promoted():
            return f"{value.count} made ready"
        case Pruned():
            return f"{value.count} pruned"
        case ChainsDeleted():
            return f"{value.answer} {shown(value.jobs)}"
        case ClaimRequest():
            return f"{value.limit}{' look' if value.look else ''}"
        case str() | int() | float() | bool() | None:
            return str(value)
        case msgspec.Struct():
            return type(value).__name__
        case Mapping():
            return "{" + ", ".join(f"{shown(key)}: {shown(one)}" for key, one in value.items()) + "}"
        case Iterable():
            return "(" + ", ".join(shown(one) for one in value) + ")"
        case _:
            return type(value).__name__
