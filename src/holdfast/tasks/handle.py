"""A job as the one who enqueued it sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from holdfast.core.states import State
from holdfast.errors import BadSetting, JobCanceled, JobFailed
from holdfast.store.port import Enqueue

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from uuid import UUID

    from holdfast.store.port import ChainView, EventView, JobView, LogView
    from holdfast.tasks.codec import ResultCodec
    from holdfast.tasks.report import Completion, Report

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Clerk(Protocol):
    """Who asks the store for what a handle is asked for, on the running event loop. Each raises `JobNotFound`."""

    async def view(self, job_id: UUID) -> JobView:
        """Return a job."""
        ...

    async def wait(self, job_id: UUID, timeout: float | None) -> JobView:
        """Return a job, or the last step of the chain it continued, once that is terminal; raises `TimeoutError`."""
        ...

    async def cancel(self, job_id: UUID, reason: str) -> bool:
        """Cancel a job."""
        ...

    async def retry(self, job_id: UUID) -> None:
        """Bring a job back."""
        ...

    async def events(self, job_id: UUID) -> list[EventView]:
        """Return its event log."""
        ...

    async def logs(self, job_id: UUID, after: int, limit: int) -> list[LogView]:
        """Return its log lines."""
        ...

    async def report(self, job_id: UUID) -> Report:
        """Return its report."""
        ...

    async def chains(self, chain_ids: Sequence[UUID]) -> list[ChainView]:
        """Return chains by their first jobs."""
        ...

    async def steps(self, chain_id: UUID) -> list[JobView]:
        """Return the steps of a chain, in their order."""
        ...

    async def cancel_chains(self, chain_ids: Sequence[UUID], reason: str) -> list[bool]:
        """Cancel chains where they stand."""
        ...

    async def retry_chain(self, chain_id: UUID) -> None:
        """Bring the last step of a chain back."""
        ...

    async def delete_chain(self, chain_id: UUID, *, cascade: bool, by: str) -> tuple[UUID, ...]:
        """Remove a chain."""
        ...


class Desk(Protocol):
    """What a handle asks of the app it came from."""

    def client(self) -> Clerk:
        """Return who asks the store on the running event loop."""
        ...

    async def complete(self, job_id: UUID, result: Any = None, *, by: str = "") -> Completion:
        """End a live job as succeeded."""
        ...

    async def fail(self, job_id: UUID, message: str = "", *, code: str = "FAILED", by: str = "") -> Completion:
        """End a live job as failed."""
        ...

    def outcome(self, view: JobView, codec: ResultCodec | None) -> Any:
        """Return the result of a terminal job, or raise `JobFailed` or `JobCanceled`."""
        ...

    def blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from blocking code; refused inside a running event loop."""
        ...


class Handle(Generic[R_co]):
    """A job by its id. Every coroutine has a blocking twin that ends in `_sync`."""

    __slots__ = ("_codec", "_desk", "id", "status")

    def __init__(self, job_id: UUID, desk: Desk, codec: ResultCodec | None = None, status: Enqueue = Enqueue.CREATED) -> None:
        self.id = job_id
        self.status = status
        """Whether this enqueue created the job, or found it: repeated, or its unique key was taken."""
        self._desk = desk
        self._codec = codec

    @property
    def created(self) -> bool:
        """Whether this enqueue created the job; False: it was there already, and this is it."""
        return self.status is Enqueue.CREATED

    async def state(self) -> State:
        """Return where the job stands; raises `JobNotFound`."""
        return (await self._desk.client().view(self.id)).state

    async def view(self) -> JobView:
        """Return everything the store knows of the job; raises `JobNotFound`."""
        return await self._desk.client().view(self.id)

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait for the end of the job and return its result; where it continued, of the chain it has become.

        Raises `JobFailed` (with code and error), `JobCanceled`, `JobNotFound`, and `TimeoutError` after `timeout` seconds.
        Being cancelled or timed out changes nothing about the job.
        """
        view = await self._desk.client().wait(self.id, _checked(timeout))
        result: R_co = self._desk.outcome(view, self._codec)
        return result

    async def cancel(self, reason: str = "") -> bool:
        """Cancel the job: at once where it waits, through its worker where it runs. Returns False when it had ended.

        Raises `JobNotFound`.
        """
        return await self._desk.client().cancel(self.id, reason)

    async def retry(self) -> None:
        """Bring a job that has ended back with a fresh budget. Raises `NotAllowed` while it is live, `JobNotFound`."""
        await self._desk.client().retry(self.id)

    async def events(self) -> Sequence[EventView]:
        """Return everything that happened to the job, oldest first; raises `JobNotFound`."""
        return await self._desk.client().events(self.id)

    async def logs(self, *, after: int = 0, limit: int = 1000) -> Sequence[LogView]:
        """Return what the job logged, oldest first, from the line after number `after` on."""
        return await self._desk.client().logs(self.id, after, limit)

    async def report(self) -> Report:
        """Return how it went: attempts, waits, durations, stages, parts, errors. For people (`str`) and as JSON."""
        return await self._desk.client().report(self.id)

    def state_sync(self) -> State:
        """Do as `state`, from blocking code."""
        return self._desk.blocking(self.state())

    def view_sync(self) -> JobView:
        """Do as `view`, from blocking code."""
        return self._desk.blocking(self.view())

    def result_sync(self, timeout: float | None = None) -> R_co:
        """Do as `result`, from blocking code."""
        return self._desk.blocking(self.result(timeout))

    def cancel_sync(self, reason: str = "") -> bool:
        """Do as `cancel`, from blocking code."""
        return self._desk.blocking(self.cancel(reason))

    def retry_sync(self) -> None:
        """Do as `retry`, from blocking code."""
        self._desk.blocking(self.retry())

    def events_sync(self) -> Sequence[EventView]:
        """Do as `events`, from blocking code."""
        return self._desk.blocking(self.events())

    def logs_sync(self, *, after: int = 0, limit: int = 1000) -> Sequence[LogView]:
        """Do as `logs`, from blocking code."""
        return self._desk.blocking(self.logs(after=after, limit=limit))

    def report_sync(self) -> Report:
        """Do as `report`, from blocking code."""
        return self._desk.blocking(self.report())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


def _checked(timeout: Any) -> float | None:
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise BadSetting(f"timeout= must be a number of seconds, or None, not {timeout!r}")
    return timeout


def outcome(view: JobView, codec: ResultCodec | None) -> Any:
    """Return the result of a terminal job, or raise `JobFailed` or `JobCanceled`."""
    if view.state is State.SUCCEEDED:
        text = view.result or "null"
        return msgspec.json.decode(text) if codec is None else codec.decode(text)
    error = view.error
    code, message, trace = ("ERROR", "", "") if error is None else (error.code, error.message, error.traceback)
    if view.state is State.CANCELED:
        raise JobCanceled(view.id, code, message)
    raise JobFailed(view.id, code, message, trace)
