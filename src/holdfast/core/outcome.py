"""What an attempt gave, as frozen values."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr

from holdfast.core.job import BlockerPolicy, NewJob
from holdfast.core.states import State
from holdfast.core.text import clean, flaw, name_flaw
from holdfast.errors import BadJob, BadResult

if TYPE_CHECKING:
    from uuid import UUID

CODE_LIMIT: Final = 100
MESSAGE_LIMIT: Final = 10_000
TRACEBACK_LIMIT: Final = 50_000

RETRIES_EXHAUSTED: Final = "RETRIES_EXHAUSTED"
LEASE_EXPIRED: Final = "LEASE_EXPIRED"
CANCELED: Final = "CANCELED"
REPLACED: Final = "REPLACED"
BLOCKER_FAILED: Final = "BLOCKER_FAILED"
BLOCKER_CANCELED: Final = "BLOCKER_CANCELED"
EXPIRED: Final = "EXPIRED"
KEY_TAKEN: Final = "KEY_TAKEN"
BAD_CONTINUATION: Final = "BAD_CONTINUATION"
TIMEOUT: Final = "TIMEOUT"
PROCESS_DIED: Final = "PROCESS_DIED"
CRASHES: Final = frozenset({LEASE_EXPIRED, PROCESS_DIED})
"""Attempts that ended without an answer: who spends the budget on these kills what runs it."""


class Error(msgspec.Struct, frozen=True):
    """Why an attempt did not succeed. Made storable and cut to size when it is made, whatever the texts hold."""

    code: str
    message: str = ""
    traceback: str = ""

    def __post_init__(self) -> None:
        """Clean the texts."""
        force_setattr(self, "code", clean(self.code, CODE_LIMIT) or "ERROR")
        force_setattr(self, "message", clean(self.message, MESSAGE_LIMIT))
        force_setattr(self, "traceback", clean(self.traceback, TRACEBACK_LIMIT))


def blocker_error(blocker: UUID, state: State, policy: BlockerPolicy) -> Error:
    """Return why a job ended whose blocker ended badly: the same words on every store."""
    code = BLOCKER_CANCELED if policy is BlockerPolicy.CANCEL else BLOCKER_FAILED
    how = "failed" if state is State.FAILED else "was canceled"
    return Error(code, f"it waited for job {blocker}, which {how}")


def checked_result(text: str) -> str:
    """Return the JSON text of a result, or refuse what no store could keep."""
    if (reason := flaw(text)) is not None:
        raise BadResult(reason, path="result")
    return text


class Succeeded(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The function returned; `result` is JSON text from the codec."""

    result: str = "null"


class Continued(msgspec.Struct, frozen=True, tag=True):
    """The function named the next step of its chain, which is created with the end of this one or not at all."""

    then: NewJob


class Suspended(msgspec.Struct, frozen=True, tag=True):
    """The function waits without a slot: until a time, for a signal, or for whichever comes first. Costs no failure."""

    until: datetime | None = None
    signal: str | None = None

    def __post_init__(self) -> None:
        """Refuse to wait for nothing."""
        if self.until is None and self.signal is None:
            raise BadJob("a job is suspended until a time, or for a signal", path="suspended")
        if self.signal is not None and (reason := name_flaw(self.signal)) is not None:
            raise BadJob(reason, path="suspended.signal")


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The function raised, or ran out of time. A fatal failure is not tried again."""

    error: Error
    fatal: bool = False


class Rescheduled(msgspec.Struct, frozen=True, tag=True):
    """The function asked to run again later, or could not be begun here. Costs no failure. `at` wins over `after`."""

    after: float = 0.0
    at: datetime | None = None
    error: Error | None = None
    """Why it could not be begun."""


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """The function ended the job as canceled, of its own accord or because it was asked to."""

    reason: str = ""
    code: str = CANCELED


class Released(msgspec.Struct, frozen=True, tag=True):
    """The worker gives the job back unrun, or stopped it for a reason that is not the job's fault. Costs no failure."""

    reason: str = ""
    aborted: bool = False
    """It had begun, and was stopped because the worker shuts down."""


Outcome = Succeeded | Continued | Suspended | Failed | Rescheduled | Stopped | Released
