"""What one attempt gives: the handler run, and its result or error turned into an outcome."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.classify import outcome_of
from holdfast.core.outcome import EXPIRED, Error, Failed, Outcome, Rescheduled, Stopped
from holdfast.core.redact import redact
from holdfast.errors import BadResult
from holdfast.runtime.entry import UnreadableArgs
from holdfast.runtime.executor.port import RemoteError
from holdfast.runtime.recalling import opened
from holdfast.runtime.telling import user_traceback
from holdfast.tasks.context import Job, current_job
from holdfast.tasks.sealing import SealError
from holdfast.tasks.suspending import suspension_of
from holdfast.tasks.transaction import NotCommitted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.core.environment import Environment
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.recalling import Recalled
    from holdfast.tasks.channel import Channel

logger = logging.getLogger("holdfast.worker")

BAD_ARGS_REST: Final = 30.0
"""Seconds a job rests whose args this worker cannot read: a worker of another version may."""
OUTAGE_REST: Final = 1.0
"""Seconds a job rests whose transaction the store failed to commit."""


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended."""

    outcome: Outcome | None
    """What to settle; `None`: there is nothing to write. The lease is lost, or a transaction of the handler has settled it."""
    error: BaseException | None = None
    """What the handler raised, as it was raised."""


async def attempted(
    attempt: Attempt,
    channel: Channel,
    environment: Environment,
    recall: Callable[[Attempt], Awaitable[Recalled]],
) -> Ended:
    """Run the handler in this asyncio task and return what it gave. Raises only when the task itself is cancelled."""
    claimed = attempt.claimed
    if claimed.overdue:
        return Ended(Stopped("it waited past its expiry", code=EXPIRED))
    if (reason := attempt.abort.reason) is not None:  # while it waited for a slot
        return Ended(attempt.outcome_after(reason))
    task = attempt.runner or asyncio.current_task()
    cancels = 0 if task is None else task.cancelling()
    job = None
    token = None
    try:
        if claimed.attempt > 1 or claimed.blockers:
            token = current_job.set(None)
            memory = await recall(attempt)
            if (sealer := attempt.entry.task.sealer) is not None:
                memory = opened(sealer, memory, claimed.task)
            if (reason := attempt.abort.reason) is not None:  # while it was read
                return Ended(attempt.outcome_after(reason))
            job = Job(claimed, channel, attempt.abort, memory.parts, blockers=memory.blockers, signals=memory.signals)
        else:
            job = Job(claimed, channel, attempt.abort)
        attempt.job = job
        entered = current_job.set(job)
        token = token or entered
        attempt.start(environment.monotonic())
        return Ended(await attempt.entry.run(claimed, job, channel))
    except asyncio.CancelledError as error:
        # ours, when an abort was asked for; else the handler's own, which is a failure like any other
        if (reason := attempt.abort.reason) is not None:
            return Ended(attempt.outcome_after(reason), error)
        if task is not None and task.cancelling() > cancels:
            raise
        return Ended(Failed(Error("CancelledError", "the handler was cancelled, not by its worker")), error)
    except (UnreadableArgs, SealError) as error:
        return Ended(_bad_args(attempt, error), error)
    except NotCommitted as error:
        return Ended(_after_outage(attempt, error), error)
    except BadResult as error:
        return Ended(Failed(Error("BAD_RESULT", redact(str(error))), fatal=True), error)
    except BaseException as error:  # noqa: BLE001  whatever a handler raises is its own business, SystemExit too
        return Ended(_after_error(attempt, error), error)
    finally:
        if token is not None:
            current_job.reset(token)
        if job is not None:
            job.close()
            attempt.job = None  # which leads back to the attempt: without this only the garbage collector would free them
        if task is not None and attempt.abort.is_set():
            # whether the handler let our cancellation pass or swallowed it: the next one in this task must not inherit it
            while task.cancelling() > cancels:
                task.uncancel()


def _after_error(attempt: Attempt, error: BaseException) -> Outcome | None:
    if attempt.abort.reason is not None:
        return attempt.outcome_after(attempt.abort.reason)
    if isinstance(error, RemoteError):
        return error.outcome
    if (suspended := suspension_of(error)) is not None:
        return suspended
    outcome = outcome_of(error, attempt.entry.task.classification, traceback=redact(user_traceback(error)))
    if isinstance(outcome, Failed):
        outcome = Failed(msgspec.structs.replace(outcome.error, message=redact(outcome.error.message)), outcome.fatal)
    return outcome


def _after_outage(attempt: Attempt, error: NotCommitted) -> Outcome | None:
    """Have a job run again whose transaction the store failed to commit. No fault of its own: its budget is not touched."""
    if attempt.abort.reason is not None:
        return attempt.outcome_after(attempt.abort.reason)
    return Rescheduled(after=OUTAGE_REST, error=Error("NOT_COMMITTED", redact(str(error))))


def _bad_args(attempt: Attempt, error: UnreadableArgs | SealError) -> Outcome:
    """Args that do not decode here may do so for a worker of another version, or with another key: it waits, at no cost."""
    logger.error("%s: its args cannot be read here, so it waits: %s", attempt, error, extra=attempt.context)
    return Rescheduled(after=BAD_ARGS_REST, error=Error("BAD_ARGS", str(error)))
