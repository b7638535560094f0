"""What a worker and a child process say to each other: messages in frames, over a socket of their own.

A frame is the length of a message in four bytes, most significant first, and the message itself.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.abort import AbortReason
from holdfast.core.job import NewJob
from holdfast.core.lease import Claimed
from holdfast.core.outcome import Outcome
from holdfast.core.states import Event
from holdfast.errors import HoldfastError
from holdfast.store.port import BlockerView, Part

LARGEST: Final = 256 * 2**20
"""Bytes in a message. The codec refuses args and results long before; this keeps a broken child from filling our memory."""
HEADER: Final = 4


class TooLarge(HoldfastError):
    """A message that is longer than a frame may be."""

    code = "MESSAGE_TOO_LARGE"


class Target(msgspec.Struct, frozen=True):
    """How a child finds a task."""

    task: str
    module: str
    """The name to import it by."""
    qualname: str
    file: str | None = None
    """The file to load it from, when the module is a script that was run and cannot be imported by name."""
    prepare: str | None = None
    """MODULE:FUNCTION, called before its module is imported: what a framework needs first."""


# from the worker


class Run(msgspec.Struct, frozen=True, tag=True):
    """Run an attempt."""

    number: int
    """Counts the runs of this child."""
    target: Target
    claimed: Claimed
    """Without its token: that stays with the worker."""
    age: float
    """Seconds since it was claimed."""
    parts: tuple[Part, ...] = ()
    blockers: tuple[BlockerView, ...] = ()
    signals: dict[str, str] = {}


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Ask a run to stop."""

    number: int
    reason: AbortReason


class Answer(msgspec.Struct, frozen=True, tag=True):
    """A checkpoint was stored, or refused."""

    number: int
    refusal: str | None = None
    code: str = ""
    stale: bool = False


# from the child


class Started(msgspec.Struct, frozen=True, tag=True):
    """The run has begun. What came before belongs to none."""

    number: int


class Progressed(msgspec.Struct, frozen=True, tag=True):
    """How far the job is."""

    percent: float
    step: str
    message: str


class Staged(msgspec.Struct, frozen=True, tag=True):
    """A stage was entered or left."""

    name: str
    event: Event


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A line of the job's log."""

    level: str
    logger: str
    message: str
    fields: str


class Checkpointed(msgspec.Struct, frozen=True, tag=True):
    """Store a part, and send an `Answer` with this number."""

    number: int
    part: Part


class Returned(msgspec.Struct, frozen=True, tag=True):
    """The function returned; JSON text from the task's codec."""

    result: str


class Continues(msgspec.Struct, frozen=True, tag=True):
    """The function returned the next step of its chain."""

    then: NewJob


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The function raised, or could not be called."""

    outcome: Outcome


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The codec refused the args, or the result."""

    args: bool
    reason: str
    path: str
    task: str


class Interrupted(msgspec.Struct, frozen=True, tag=True):
    """The function let `Aborted` or `StaleLease` pass: it stopped because it was asked to, or found its lease lost."""

    reason: str | None
    """Why it was asked to stop; `None`: its lease is lost."""
    message: str


ToChild = Run | Abort | Answer
End = Returned | Continues | Raised | Refused | Interrupted
ToWorker = Started | Progressed | Staged | Logged | Checkpointed | End

_encoder: Final = msgspec.msgpack.Encoder()
to_child: Final[msgspec.msgpack.Decoder[ToChild]] = msgspec.msgpack.Decoder(ToChild)
to_worker: Final[msgspec.msgpack.Decoder[ToWorker]] = msgspec.msgpack.Decoder(ToWorker)


def frame(message: ToChild | ToWorker) -> bytes:
    """Return a message in its frame. Raises `TooLarge`."""
    body = _encoder.encode(message)
    return checked_length(len(body)).to_bytes(HEADER, "big") + body


def checked_length(length: int) -> int:
    """Return the length of a message, or refuse it."""
    if length > LARGEST:
        raise TooLarge(f"a message of {length:,} bytes is more than a child process and its worker may exchange ({LARGEST:,})")
    return length
