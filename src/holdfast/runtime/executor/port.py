"""What a worker asks of an executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.core.outcome import PROCESS_DIED, Failed, Rescheduled, Stopped
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.core.abort import AbortReason
    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome
    from holdfast.tasks.channel import Channel
    from holdfast.tasks.context import Job
    from holdfast.tasks.task import Task


class Executor(Protocol):
    """Runs the function of a task. One for each kind and worker; entered before the first run, left after the last."""

    async def open(self) -> None:
        """Get ready."""
        ...

    async def run(self, task: Task[..., Any], claimed: Claimed, job: Job, channel: Channel) -> Any:
        """Run one attempt and return what the function returned, or raise what it raised.

        `claimed.args` is decoded here or in the child. Raises `BadArgs` when it does not decode. A result that comes from
        another process arrives as JSON text in an `Encoded`; one that cannot be encoded there raises `BadResult`. An error
        that cannot travel as itself raises `RemoteError`. A process that died raises `ProcessDied`. Being cancelled means:
        stop what can be stopped (a process is killed, a program asked and then killed, a thread has seen `job.abort`
        already and is waited for), and raise `CancelledError` when it has stopped.
        """
        ...

    def stop(self, job: Job, reason: AbortReason) -> None:
        """Pass on that a running attempt should stop by itself; `job.abort` is set already. Never blocks; from any thread."""
        ...

    async def close(self) -> None:
        """Let go of threads and processes; what still runs is killed where it can be."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A result that is JSON text already."""

    text: str


class RemoteError(HoldfastError):
    """A function raised what cannot be raised again here: in another process, or an exception that would end the event loop.

    `outcome` is what it means, decided where the exception was at hand: settle that.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        match outcome:
            case Failed(error):
                text = f"{error.code}: {error.message}"
            case Stopped(reason):
                text = f"canceled: {reason}"
            case Rescheduled(after, at):
                text = f"to run again at {at}" if at else f"to run again after {after:g} s"
            case _:
                text = type(outcome).__name__
        super().__init__(text)


class ProcessDied(HoldfastError):
    """The process that ran a job ended without an answer; `exit_code` is negative for a signal, as `subprocess` has it."""

    code = PROCESS_DIED

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        super().__init__(message)
