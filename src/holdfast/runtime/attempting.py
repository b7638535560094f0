"""What one attempt gives: the handler run, and its result or error turned into an outcome."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.core.classify import outcome_of
from holdfast.core.outcome import EXPIRED, Error, Failed, Rescheduled, Stopped, Succeeded
from holdfast.core.redact import redact
from holdfast.errors import BadResult
from holdfast.runtime.entry import UnreadableArgs
from holdfast.runtime.executor.port import RemoteError
from holdfast.runtime.telling import user_traceback
from holdfast.tasks.context import Job, current_job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.core.environment import Environment
    from holdfast.core.outcome import Outcome
    from holdfast.runtime.attempt import Attempt
    from holdfast.store.port import Part
    from holdfast.tasks.context import Channel

logger = logging.getLogger("holdfast.worker")

BAD_ARGS_REST: Final = 30.0
"""Seconds a job rests whose args this worker cannot read: a worker of another version may."""


class Ended(NamedTuple):
    """How an attempt ended."""

    outcome: Outcome | None
    """What to settle; `None`: the lease is lost, there is nothing to write."""
    error: BaseException | None = None
    """What the handler raised, as it was raised."""


async def attempted(
    attempt: Attempt,
    channel: Channel,
    environment: Environment,
    parts_of: Callable[[Attempt], Awaitable[Mapping[str, Part]]],
) -> Ended:
    """Run the handler in this asyncio task and return what it gave. Raises only when the task itself is cancelled."""
    claimed = attempt.claimed
    if claimed.overdue:
        return Ended(Stopped("it waited past its expiry", code=EXPIRED))
    if (reason := attempt.abort.reason) is not None:  # while it waited for a slot
        return Ended(attempt.outcome_after(reason))
    task = asyncio.current_task()
    cancels = 0 if task is None else task.cancelling()
    token = current_job.set(None)
    try:
        parts = await parts_of(attempt) if claimed.attempt > 1 else None
        if (reason := attempt.abort.reason) is not None:  # while they were read
            return Ended(attempt.outcome_after(reason))
        job = attempt.job = Job(claimed, channel, attempt.abort, parts)
        current_job.set(job)
        attempt.start(environment.monotonic())
        return Ended(Succeeded(await attempt.entry.run(claimed, job, channel)))
    except asyncio.CancelledError as error:
        # ours, when an abort was asked for; else the handler's own, which is a failure like any other
        if (reason := attempt.abort.reason) is not None:
            return Ended(attempt.outcome_after(reason), error)
        if task is not None and task.cancelling() > cancels:
            raise
        return Ended(Failed(Error("CancelledError", "the handler was cancelled, not by its worker")), error)
    except UnreadableArgs as error:
        return Ended(_bad_args(attempt, error), error)
    except BadResult as error:
        return Ended(Failed(Error("BAD_RESULT", redact(str(error))), fatal=True), error)
    except BaseException as error:  # noqa: BLE001  whatever a handler raises is its own business, SystemExit too
        return Ended(_after_error(attempt, error), error)
    finally:
        current_job.reset(token)
        if attempt.job is not None:
            attempt.job.close()
        if task is not None and attempt.abort.is_set():
            # whether the handler let our cancellation pass or swallowed it: the next one in this task must not inherit it
            while task.cancelling() > cancels:
                task.uncancel()


def _after_error(attempt: Attempt, error: BaseException) -> Outcome | None:
    if attempt.abort.reason is not None:
        return attempt.outcome_after(attempt.abort.reason)
    if isinstance(error, RemoteError):
        return error.outcome
    outcome = outcome_of(error, attempt.entry.task.classification, traceback=redact(user_traceback(error)))
    if isinstance(outcome, Failed):
        outcome = Failed(msgspec.structs.replace(outcome.error, message=redact(outcome.error.message)), outcome.fatal)
    return outcome


def _bad_args(attempt: Attempt, error: UnreadableArgs) -> Outcome:
    """Args that do not decode here may do so for a worker of another version: the job waits, visible, at no cost."""
    logger.error("%s: its args cannot be read here, so it waits: %s", attempt, error, extra=attempt.context)
    return Rescheduled(after=BAD_ARGS_REST, error=Error("BAD_ARGS", str(error)))
