"""What a worker's log says of the end of an attempt, and how its traceback is shown."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from typing import TYPE_CHECKING, Final

from holdfast.core.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT
from holdfast.core.redact import redact
from holdfast.core.states import Event, State
from holdfast.core.text import clean

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast.core.settle import Write
    from holdfast.runtime.attempt import Attempt

logger = logging.getLogger("holdfast.worker")

_OWN: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")  # noqa: PTH100, PTH118, PTH120  compared with code's file names, which are texts
_LEVELS: Final = {
    Event.FAIL: logging.ERROR,
    Event.RETRY: logging.WARNING,
    Event.RETRY_LATER: logging.WARNING,
    Event.STOP: logging.INFO,
    Event.RESCHEDULE: logging.INFO,
    Event.RESCHEDULE_LATER: logging.INFO,
}
"""What is worth a line; the rest is for those who look closely."""
LONGEST: Final = 2 * TRACEBACK_LIMIT
"""Characters of a traceback that are looked at. To take out what must not be seen holds the interpreter, and with it the
heartbeat: for minutes, where a handler raises 100 MB. Twice what is kept, so that a secret which is cut in two is not kept."""


def tell(attempt: Attempt, write: Write, error: BaseException | None) -> None:
    """Log how an attempt ended: an error with the traceback of the user's code, a success only for those who look closely."""
    level = _LEVELS.get(write.event, logging.DEBUG)
    if not logger.isEnabledFor(level):
        return
    text = f"{attempt}: {_said(write)}"
    if level >= logging.WARNING and error is not None and (lines := user_traceback(error)):
        text = f"{text}\n{redact(lines)}"
    logger.log(level, "%s", text, extra=attempt.context)


def tell_too_late(attempt: Attempt, error: BaseException) -> None:
    """Log an error of a handler that came after its transaction had settled the job: it changes nothing."""
    if isinstance(error, asyncio.CancelledError):  # it was asked to stop
        return
    said = clean(str(error), MESSAGE_LIMIT)
    text = f"{attempt}: raised {type(error).__name__} after its transaction had settled it, which changes nothing: {said}"
    logger.warning("%s", redact(f"{text}\n{user_traceback(error)}".rstrip()), extra=attempt.context)


def user_traceback(error: BaseException) -> str:
    """Return the traceback of an error from the first line of the user's code on; empty where none of it is theirs.

    What no store and no log could take is cut or replaced.
    """
    frames = _beyond_own(error.__traceback__)
    return "" if frames is None else clean("".join(traceback.format_exception(type(error), error, frames)), LONGEST)


def _beyond_own(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OWN):
        frames = frames.tb_next
    return frames


def _said(write: Write) -> str:
    why = "" if write.error is None else f": {write.error.code}: {write.error.message}"
    if write.event is Event.SUSPEND:
        return "waits without a slot"
    if write.event is Event.FAIL:
        return f"failed for good{why}"
    if write.state is State.SCHEDULED:
        when = f"at {write.run_at}" if write.run_at is not None else f"in {write.delay:.3g} s"
        verb = "failed, and is tried again" if write.event is Event.RETRY_LATER else "runs again"
        return f"{verb} {when}{why}"
    if write.event is Event.RETRY:
        return f"failed, and is tried again{why}"
    return f"{write.event}{why}"
