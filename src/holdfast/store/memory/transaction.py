"""A handler's transaction on memory: operations are kept back, and take place together at the commit.

There is nothing to roll back: until then nothing has happened. What an operation answers is found out on a copy of the data.
The commit does it all on a fresh copy, compares, and lets that copy take the place of the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.abort import AbortReason
from holdfast.errors import Aborted, BadSetting, KeyBusy, StaleLease
from holdfast.store.memory.settling import Settling
from holdfast.store.port import Enqueue, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.environment import Environment
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.memory.model import MemoryData
    from holdfast.store.port import Enqueued, Settlement

T = TypeVar("T")


class MemoryTransaction:
    """The port's `Transaction`. It holds no lock: who changes the same in the meantime wins, and the commit is refused."""

    blocking = True
    exclusive = False

    def __init__(self, environment: Environment, data: MemoryData) -> None:
        self._environment = environment
        self._data = data
        self._calls: list[Callable[[], None]] = []
        self._operations: list[Callable[[Settling], None]] = []
        """What takes place at the commit; each raises where it no longer gives what it was answered with."""
        self._open = True

    @property
    def connection(self) -> Any:
        """Nothing: there is no database."""
        return None

    async def execute(self, sql: str, *args: Any) -> list[Any]:
        """Refuse: there is no database."""
        raise BadSetting(
            f"the memory store has no SQL and cannot run {sql!r} with {len(args)} parameters: use sqlite:// or "
            "postgresql://, or keep the handler's own data elsewhere"
        )

    async def begin(self) -> None:
        """Begin anew where the last one has ended."""
        self._open = True

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs at the commit."""

        def create(store: Settling) -> list[Enqueued]:
            return store.enqueue_now(jobs, caps, self._environment.now())

        def repeat(store: Settling) -> None:
            given = zip(jobs, answers, create(store), strict=True)
            if keys := [job.unique.key for job, was, now in given if job.unique is not None and was.job_id != now.job_id]:
                raise KeyBusy(keys)

        answers = self._rehearse(create)
        if any(answer.status is Enqueue.CREATED for answer in answers):
            self._operations.append(repeat)
        return answers

    async def prove(self, lease: Lease) -> Settled:
        """Have the commit refused unless this lease is still current then."""

        def look(store: Settling) -> Settled:
            held = store.data.held(lease)
            if held is None:
                return Settled.STALE
            return Settled.LATE if held[1].lapsed(self._environment.now()) else Settled.APPLIED

        return self._fenced(lease, look)

    async def settle(self, settlement: Settlement) -> Settled:
        """End an attempt at the commit, which is refused unless its lease is still current then."""

        def end(store: Settling) -> Settled:
            return store.settle_now([settlement], self._environment.now())[0]

        unique = None if settlement.then is None else settlement.then.unique
        return self._fenced(settlement.lease, end, key="" if unique is None else unique.key)

    def _fenced(self, lease: Lease, act: Callable[[Settling], Settled], *, key: str = "") -> Settled:
        def repeat(store: Settling) -> None:
            match act(store):
                case Settled.APPLIED | Settled.LATE | Settled.FREED:
                    return
                case Settled.CANCELED:  # also when the cancel came after the rehearsal: its writes are no half of anything
                    raise Aborted(AbortReason.CANCELED)
                case Settled.KEY_TAKEN:
                    raise KeyBusy([key])
                case Settled.STALE | Settled.REPEATED:
                    raise StaleLease(f"job {lease.job_id} is no longer held under this token: nothing was committed")

        answer = self._rehearse(act)
        if answer is not Settled.KEY_TAKEN:  # then nothing is to happen; all else stands, or keeps the rest from standing
            self._operations.append(repeat)
        return answer

    def _rehearse(self, act: Callable[[Settling], T]) -> T:
        """Return what an operation would answer after those before it."""
        self._check_open()
        with self._data.lock:
            return act(self._copy())

    def _copy(self) -> Settling:
        """Return a copy of the data in which everything so far has taken place; the lock must be held."""
        store = Settling(self._environment, self._data.copy())
        for operation in self._operations:
            operation(store)
        return store

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called once when the transaction has committed."""
        self._calls.append(call)
        return True

    async def tell(self, text: str) -> None:
        """Do nothing: whoever shares this data is in this process, and is told by `after_commit`."""

    async def commit(self) -> None:
        """Let everything take place at once. Raises `StaleLease`, `KeyBusy` or what an enqueue raises; then nothing did."""
        self._check_open()
        self._open = False
        calls, self._calls = self._calls, []
        try:
            with self._data.lock:
                self._data.adopt(self._copy().data)
        finally:
            self._operations = []
        for call in calls:
            call()

    async def rollback(self) -> None:
        """Forget everything."""
        self._open = False
        self._operations, self._calls = [], []

    def _check_open(self) -> None:
        if not self._open:
            raise BadSetting("this transaction has ended: begin another one")
