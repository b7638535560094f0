"""`HttpStore`: what a worker needs of a store, over the public API of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.lease import Taken
from holdfast.core.text import clean
from holdfast.errors import JobNotFound, NotAllowed, StoreUnavailable
from holdfast.store.http.lacking import Lacking
from holdfast.store.http.line import MOST, KeyRefused, Line
from holdfast.store.port import TEXT_LIMIT, Promoted, Pruned, Signal
from holdfast.wire.jobs import (
    BlockersAnswer,
    CancelManyAnswer,
    CancelManyRequest,
    ChainsAnswer,
    EnqueueAnswer,
    EnqueueRequest,
    IdsRequest,
    JobsAnswer,
    JobSpec,
    PartInfo,
    PartsAnswer,
    SignalsAnswer,
    SignalsRequest,
)
from holdfast.wire.leases import (
    Answers,
    CheckpointItem,
    ClaimAnswer,
    ClaimBody,
    ExtendAnswer,
    FigureItem,
    LeasesAnswer,
    LogItem,
    MarkItem,
    ProgressItem,
    SettledAnswer,
    SettleItem,
    TokenBody,
    lease_of,
    ref_of,
)
from holdfast.wire.values import sent, text_of
from holdfast.wire.workers import Done, HeartbeatAnswer, HeartbeatRequest, RegisterAnswer, RegisterRequest, ServerInfo

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from datetime import datetime
    from typing import Any, NoReturn, TypeVar
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.core.figures import Figure
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Extended, Lease
    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.core.states import Event
    from holdfast.store.port import (
        Answer,
        Audit,
        Beat,
        BlockerView,
        ChainView,
        Checkpoint,
        ClaimRequest,
        Enqueued,
        JobView,
        LogLine,
        Notice,
        Part,
        Progress,
        Reaped,
        Retention,
        Settled,
        Settlement,
        StageMark,
        Worker,
    )

    T = TypeVar("T")


class HttpStore(Lacking):
    """A handle on the store behind a server. Belongs to one event loop.

    What only people and the server itself do is not here (`NotAllowed`); housekeeping does nothing, for the server does it. A
    server that is away or restarts is `StoreUnavailable`, and so is one that refuses the key while a worker works: it goes on
    when the key is good again. One that is asked too often is asked again when it says, for a while.
    """

    def __init__(self, url: str, key: str, environment: Environment) -> None:
        self._line = Line(url, key, chance=environment.random)
        self.target = self._line.target

    async def open(self) -> None:
        """Reach the server, and see whether it knows the key. Raises `StoreUnavailable`, `NotAllowed`."""
        await self._line.get("/server", ServerInfo)

    async def close(self) -> None:
        """Hang up. Safe to call again."""
        await self._line.close()

    # producing

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        under: Lease | None = None,
        caps: Mapping[str, int] | None = None,
        notice: Notice | None = None,  # noqa: ARG002  the server tells of it
        audit: Audit | None = None,  # noqa: ARG002  the server writes a line of its own, with the name of the key
    ) -> list[Enqueued]:
        """Create jobs in one request: it must not be larger than the server takes."""
        if not jobs:
            return []
        request = EnqueueRequest(
            jobs=[JobSpec.of(job) for job in jobs],
            under=None if under is None else ref_of(under),
            caps=dict(caps or {}),
        )
        return [one.enqueued() for one in (await self._line.post("/jobs", request, EnqueueAnswer)).jobs]

    # working

    async def register(self, worker: Worker) -> None:
        """Make a worker known; for the server it is a remote one."""
        await self._work(self._line.post("/workers", RegisterRequest.of(worker), RegisterAnswer))

    async def beat(self, beat: Beat) -> Signal:
        """Note that a worker is alive."""
        request = HeartbeatRequest(counters=sent(beat.counters, "beat.counters"))
        answer = await self._work(self._line.post(f"/workers/{beat.worker}/heartbeat", request, HeartbeatAnswer))
        return Signal(answer.disabled, answer.drain, tuple(answer.idle))

    async def retire(self, worker: UUID) -> None:
        """Note that a worker has stopped."""
        await self._work(self._line.delete(f"/workers/{worker}", Done))

    async def claim(self, request: ClaimRequest) -> Taken:
        """Take ready jobs. Never waits for some: hints say when there are."""
        if request.limit <= 0 or not request.tasks:
            return Taken()
        body = ClaimBody(
            tasks=sorted(request.tasks),
            limit=min(request.limit, MOST),
            queues=None if request.queues is None else sorted(request.queues),
            capabilities=sorted(request.capabilities),
            idle=sorted(request.idle),
            look=request.look,
            hurry=request.hurry,
            first=request.first,
            retries_first=request.retries_first,
        )
        answer = await self._work(self._line.post(f"/workers/{request.worker}/claim", body, ClaimAnswer))
        return answer.taken()

    async def declare(self, rules: Mapping[LimitName, LimitRule]) -> None:
        """Do nothing: what limits there are is said beside the database, not by whoever has the key of a worker."""

    async def holding(self, worker: UUID) -> list[Lease]:
        """Return every lease this worker holds."""
        answer = await self._work(self._line.get(f"/workers/{worker}/leases", LeasesAnswer))
        return [lease_of(one) for one in answer.leases]

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        """Prolong leases."""
        refs = [ref_of(lease) for lease in leases]
        states = await self._work(
            self._line.post_all("/leases/extend", "leases", refs, ExtendAnswer, lambda answer: answer.leases)
        )
        return [state.extended() for state in states]

    async def progress(self, updates: Sequence[Progress]) -> list[Settled]:
        """Write progress and extend the leases."""
        items = [ProgressItem(one.lease.job_id, one.lease.token, one.percent, one.step, one.message) for one in updates]
        return await self._written("/leases/progress", items)

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
        """Write parts of jobs."""
        items = [CheckpointItem(one.lease.job_id, one.lease.token, PartInfo.to_write(one.part)) for one in checkpoints]
        return await self._written("/leases/checkpoint", items)

    async def parts(self, job_id: UUID) -> list[Part]:
        """Return the parts of a job."""
        try:
            answer = await self._work(self._line.get(f"/jobs/{job_id}/parts", PartsAnswer))
        except JobNotFound:
            return []
        return [one.part() for one in answer.parts]

    async def log(self, lines: Sequence[LogLine]) -> list[Settled]:
        """Append lines to the logs of jobs."""
        return await self._written("/leases/log", [LogItem.of(line) for line in lines])

    async def mark(self, marks: Sequence[StageMark]) -> list[Settled]:
        """Write stages entered and left."""
        items = [MarkItem.of(mark) for mark in marks]
        return await self._written("/leases/mark", items)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts; a batch that is too large for one request is settled in several."""
        return await self._written("/leases/settle", [SettleItem.of(one) for one in settlements])

    async def settled(self, lease: Lease) -> Event | None:
        """Tell how its holder has settled an attempt."""
        answer = await self._work(self._line.post(f"/jobs/{lease.job_id}/settled", TokenBody(lease.token), SettledAnswer))
        return answer.event

    async def blockers(self, job_id: UUID) -> list[BlockerView]:
        """Return the chains a job was to wait for."""
        try:
            answer = await self._work(self._line.get(f"/jobs/{job_id}/blockers", BlockersAnswer))
        except JobNotFound:
            return []
        return [one.view() for one in answer.blockers]

    async def signals(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of these signals that were emitted."""
        if not names:
            return {}
        answer = await self._work(self._line.post("/signals/get", SignalsRequest(list(names)), SignalsAnswer))
        return {name: text_of(data, "signal") for name, data in answer.signals.items()}

    async def begin(self) -> NoReturn:
        """Refuse: there is no database here."""
        raise NotAllowed(
            "job.transaction() and atomic=True need the database, and this worker reaches its jobs over HTTP. "
            "Run this task on a worker beside the database, or make its effects repeatable (job.fence)"
        )

    async def flag_free(self, leases: Sequence[Lease]) -> list[Settled]:
        """Say that the expiry of these leases is not the jobs' fault."""
        refs = [ref_of(lease) for lease in leases]
        return await self._work(self._line.post_all("/leases/free", "leases", refs, Answers, lambda answer: answer.answers))

    async def measure(self, figures: Sequence[Figure]) -> None:
        """Add figures."""
        items = [FigureItem.of(figure) for figure in figures]
        await self._work(self._line.post_all("/figures", "figures", items, Done, lambda _: ()))

    # housekeeping: the server does it

    async def promote(self, limit: int) -> Promoted:  # noqa: ARG002  as the port says
        """Do nothing."""
        return Promoted(0)

    async def reap(
        self,
        limit: int,  # noqa: ARG002  as the port says
        *,
        tasks: frozenset[str] = frozenset(),  # noqa: ARG002  as the port says
        up_for: float | None = None,  # noqa: ARG002  as the port says
    ) -> list[Reaped]:
        """Do nothing."""
        return []

    async def drop_overdue(self, limit: int) -> int:  # noqa: ARG002  as the port says
        """Do nothing."""
        return 0

    async def mark_offline(self, after: float) -> list[UUID]:  # noqa: ARG002  as the port says
        """Do nothing."""
        return []

    async def unblock(self, limit: int) -> int:  # noqa: ARG002  as the port says
        """Do nothing."""
        return 0

    async def prune(
        self,
        retention: Retention,  # noqa: ARG002  as above
        *,
        limit: int,  # noqa: ARG002  as above
        after: UUID | None = None,  # noqa: ARG002  as above
        by: str = "",  # noqa: ARG002  as above
    ) -> Pruned:
        """Do nothing."""
        return Pruned(0)

    # steering and looking, as far as clients and workers do

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:  # noqa: ARG002  the key's
        """End waiting jobs as canceled; ask running ones to stop. Who did it is whoever has the key."""
        answers: list[Answer] = []
        for start in range(0, len(job_ids), MOST):
            request = CancelManyRequest(list(job_ids[start : start + MOST]), clean(reason, TEXT_LIMIT))
            answers += (await self._line.post("/jobs/cancel", request, CancelManyAnswer)).answers
        return answers

    async def now(self) -> datetime:
        """Return the store's clock."""
        return (await self._line.get("/server", ServerInfo)).time

    async def get(self, job_ids: Sequence[UUID]) -> list[JobView | None]:
        """Return jobs, up to a thousand as of one moment."""
        views: list[JobView | None] = []
        for start in range(0, len(job_ids), MOST):
            request = IdsRequest(list(job_ids[start : start + MOST]))
            answer = await self._work(self._line.post("/jobs/get", request, JobsAnswer))
            views += [None if one is None else one.view() for one in answer.jobs]
        return views

    async def chains(self, chain_ids: Sequence[UUID]) -> list[ChainView | None]:
        """Return chains by their first jobs."""
        views: list[ChainView | None] = []
        for start in range(0, len(chain_ids), MOST):
            request = IdsRequest(list(chain_ids[start : start + MOST]))
            answer = await self._work(self._line.post("/chains/get", request, ChainsAnswer))
            views += [None if one is None else one.view() for one in answer.chains]
        return views

    async def _written(self, path: str, items: Sequence[Any]) -> list[Settled]:
        return await self._work(self._line.post_all(path, "items", items, Answers, lambda answer: answer.answers))

    async def _work(self, call: Coroutine[Any, Any, T]) -> T:
        """Make a call of a worker: one whose key is refused is made again until it is not, or its leases are lost."""
        try:
            return await call
        except KeyRefused as error:
            raise StoreUnavailable(self.target, 0.0, str(error)) from error
