"""Waiting without a slot: how a handler is left while its job sleeps or waits for a signal."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.text import NAME_LIMIT, name_flaw
from holdfast.errors import CENTURY, BadJob
from holdfast.store.port import Part, PartState

if TYPE_CHECKING:
    from holdfast.core.outcome import Suspended


class Suspending(BaseException):
    """Leaves a handler whose job waits without a slot. Let it pass: the next attempt goes on where this one stopped.

    Not an `Exception`, so that `except Exception` in the handler does not take it for an error.
    """

    def __init__(self, outcome: Suspended) -> None:
        self.outcome = outcome
        super().__init__("the job is suspended: let this pass")


def suspension_of(error: BaseException) -> Suspended | None:
    """Return how the job is suspended that this was raised for; `None` for anything else.

    A task group wraps what leaves its tasks. Where several wait, the first decides: the next attempt comes to the others.
    """
    if isinstance(error, Suspending):
        return error.outcome
    if isinstance(error, BaseExceptionGroup):
        ours, rest = error.split(Suspending)
        if ours is not None and rest is None:
            return suspension_of(ours.exceptions[0])
    return None


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """Until when a part waits, as it is stored: by the store's clock."""

    until: datetime | None = None
    seconds: float | None = None

    def deadline(self, part: Part) -> datetime | None:
        """Return when the wait is over, `None`: never by itself.

        What was written down, or the same counted from when the store wrote it, whichever comes first: stored times move
        when a test lets time pass, and what stands in the data does not.
        """
        if self.until is None or self.seconds is None or part.started_at is None:
            return self.until
        return min(self.until, part.started_at + timedelta(seconds=self.seconds))


def opened_wait(name: str, now: datetime, seconds: float | None) -> Part:
    """Return the part that says how long to wait from now on."""
    wait = Wait() if seconds is None else Wait(now + timedelta(seconds=seconds), seconds)
    return Part(name, PartState.IN_PROGRESS, data=msgspec.json.encode(wait).decode())


def deadline_of(part: Part) -> datetime | None:
    """Return when the wait of a part is over, `None`: never by itself."""
    return msgspec.json.decode(part.data or "{}", type=Wait).deadline(part)


def checked_seconds(value: Any, path: str, task: str) -> float:
    """Return a duration in seconds, or refuse it."""
    given = value.total_seconds() if isinstance(value, timedelta) else value
    if type(given) not in (int, float) or not math.isfinite(given) or not 0 <= given <= CENTURY:
        raise BadJob(f"must be a number of seconds from 0 to a century, or a timedelta, not {value!r}", path=path, task=task)
    return float(given)


def part_name(kind: str, name: object, task: str) -> str:
    """Return what the part of a step, sleep or signal is called, or refuse its name."""
    reason = name_flaw(name)
    if reason is None and len(f"{kind}:{name}") > NAME_LIMIT:
        reason = f"{len(str(name))} characters, the limit is {NAME_LIMIT - len(kind) - 1}"
    if reason is not None:
        raise BadJob(f"the name {reason}" if reason.startswith("must") else reason, path=kind, task=task)
    return f"{kind}:{name}"
