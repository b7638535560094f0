"""Workers that die: at every step of a scenario in turn, so that a test can show that nothing is lost, nor done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from holdfast.errors import BadSetting, HoldfastError
from holdfast.store.port import Promoted
from holdfast.testing.clock import FakeClock
from holdfast.testing.overriding import MEMORY, override

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from types import TracebackType

    from holdfast.app import Holdfast
    from holdfast.core.lease import Lease
    from holdfast.store.port import Caller, Settled, Settlement, Store, Transaction

T = TypeVar("T")

_READS: Final = frozenset({"parts", "blockers", "signals", "settled"})
"""Dying after these is dying before what comes next."""
_WRITES: Final = frozenset(
    {"claim", "extend", "progress", "checkpoint", "log", "mark", "settle", "enqueue", "emit", "flag_free"}
)
_HOUSE: Final = frozenset({"promote", "reap", "drop_overdue", "unblock", "fire"})
"""What keeps house: dying before it is dying idle, and so is dying after one that found nothing to do."""
_LIFE: Final = frozenset({"open", "close"})
"""What the machine does for a process that dies: its connections are closed."""


class Crashed(BaseException):
    """The worker has died. No `Exception`: a handler that goes on after every one of those does not survive a crash either."""


class Crashes:
    """The rounds of a scenario, each with a fresh store and a worker that dies one step later; the last one survives."""

    def __init__(self, app: Holdfast, url: str | Callable[[int], str]) -> None:
        if isinstance(url, str) and not url.startswith(MEMORY):
            raise BadSetting(
                f"every round needs a fresh store, and {url} is one and the same. "
                'Give a function of the round: crashes(app, lambda number: f"sqlite:///{tmp_path}/{number}.db")'
            )
        self._app = app
        self._url = url
        self.points: list[str] = []
        """Where workers have died so far, in the order of the rounds."""

    def __iter__(self) -> Iterator[Crash]:
        self.points = []
        number = 0
        while True:
            number += 1
            crash = Crash(self._app, self._url if isinstance(self._url, str) else self._url(number), number)
            yield crash
            if not crash.used:
                raise HoldfastError(
                    "no worker could die in this round: run the jobs with drain(app, advance=True, crash=crash)"
                )
            if crash.point is None:
                return
            self.points.append(crash.point)


def crashes(app: Holdfast, url: str | Callable[[int], str] = MEMORY) -> Crashes:
    """Run a scenario again and again, each time with a worker that dies at the next step of its work.

    `for crash in crashes(app):`, inside it `async with crash:` (or `with crash:`), which points the app at a fresh store and a
    fake clock, and inside that the scenario, whose jobs are run by `drain(app, advance=True, crash=crash)`. The worker dies
    before and after everything it asks of the store; after: it happened, and nobody heard the answer. Nothing of it goes on,
    its leases lapse, and another worker takes over. The last round is one without a crash.
    """
    return Crashes(app, url)


class Crash:
    """One round: where its worker dies. Made by `crashes`."""

    def __init__(self, app: Holdfast, url: str, number: int) -> None:
        self.number = number
        """Which step it is, from 1."""
        self.point: str | None = None
        """Where the worker died, such as `after settle #2`; `None` while it lives."""
        self.used = False
        """Whether a worker was run that could die."""
        self._override = override(app, url, clock=FakeClock(seed=0))
        self._passed = 0
        self._counts: Counter[str] = Counter()
        self._open: list[Caller] = []

    async def __aenter__(self) -> FakeClock:
        return await self._override.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note(error)
        await self._override.__aexit__(kind, error, trace)

    def __enter__(self) -> FakeClock:
        return self._override.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._note(error)
        self._override.__exit__(kind, error, trace)

    def _note(self, error: BaseException | None) -> None:
        if error is not None:
            told = "no worker died" if self.point is None else f"the worker died {self.point}"
            error.add_note(f"in round {self.number} of crashes(…): {told}")

    async def survived(self, work: Coroutine[Any, Any, T]) -> tuple[T] | None:
        """Run what a worker does; `None`: it died of it. For `drain`."""
        self.used = True
        task = asyncio.current_task()
        cancels = 0 if task is None else task.cancelling()
        try:
            result = await work
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) or not _of_the_crash(error):
                raise
            # a TaskGroup whose member dies while it waits for it leaves its own cancellation behind
            while task is not None and task.cancelling() > cancels:
                task.uncancel()
            return None
        # it may have died of something that nobody waited for
        return (result,) if self.point is None else None

    def deadly(self, store: Store) -> Store:
        """Return a store for a worker that dies in this round. For `drain`."""
        return cast("Store", _DeadlyStore(store, self))

    def deadly_callers(self, make_caller: Callable[[Any], Caller]) -> Callable[[Any], Caller]:
        """Return the same for transactions on what handlers bring. For `drain`."""

        def made(conn: Any) -> Caller:
            caller = make_caller(conn)
            self.begun(caller)
            return cast("Caller", _DeadlyTransaction(caller, self))

        return made

    def check(self) -> None:
        """Refuse whatever a dead worker asks for."""
        if self.point is not None:
            raise Crashed(self.point)

    async def pass_by(self, point: str) -> None:
        """Die here, if this is the step."""
        self.check()
        self._counts[point] += 1
        self._passed += 1
        if self._passed == self.number:
            self.point = f"{point} #{self._counts[point]}"
            for transaction in self._open:
                await transaction.rollback()  # as a database does whose client is gone
            raise Crashed(self.point)

    def begun(self, transaction: Caller) -> None:
        """Note a transaction that ends with the worker."""
        self._open.append(transaction)

    def ended(self, transaction: Caller) -> None:
        """Note that a transaction has ended."""
        if transaction in self._open:
            self._open.remove(transaction)


class _DeadlyStore:
    """A store as a worker sees it that dies at one of its operations. Dead, it reaches nothing any more."""

    def __init__(self, store: Store, crash: Crash) -> None:
        self._store = store
        self._crash = crash

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        return operation if name in _LIFE else partial(self._asked, name, operation)

    async def _asked(self, name: str, operation: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        self._crash.check()
        if name in _READS or name in _WRITES:
            await self._crash.pass_by(f"before {name}")
        answer = await operation(*args, **options)
        if name in _WRITES or (name in _HOUSE and _did_something(answer)):
            await self._crash.pass_by(f"after {name}")
        return answer

    async def begin(self) -> Transaction:
        await self._crash.pass_by("before begin")
        transaction = await self._store.begin()
        self._crash.begun(transaction)
        if self._crash.point is not None:  # a report died meanwhile
            await transaction.rollback()
            self._crash.check()
        return cast("Transaction", _DeadlyTransaction(transaction, self._crash))


class _DeadlyTransaction:
    """A transaction of a worker that dies at one of its operations: before it has committed it never was."""

    def __init__(self, transaction: Caller, crash: Crash) -> None:
        self._transaction = transaction
        self._crash = crash

    def __getattr__(self, name: str) -> Any:
        self._crash.check()
        return getattr(self._transaction, name)

    async def execute(self, sql: str, *args: Any) -> list[Any]:
        await self._crash.pass_by("before execute")
        return await cast("Transaction", self._transaction).execute(sql, *args)  # a handler's own connection has none

    async def enqueue(self, *args: Any, **options: Any) -> Any:
        await self._crash.pass_by("before enqueue in transaction")
        return await self._transaction.enqueue(*args, **options)

    async def prove(self, lease: Lease) -> Settled:
        await self._crash.pass_by("before prove")
        return await self._transaction.prove(lease)

    async def settle(self, settlement: Settlement) -> Settled:
        await self._crash.pass_by("before settle in transaction")
        return await self._transaction.settle(settlement)

    async def commit(self) -> None:
        await self._crash.pass_by("before commit")
        await self._transaction.commit()
        self._crash.ended(self._transaction)
        await self._crash.pass_by("after commit")

    async def rollback(self) -> None:
        if self._crash.point is None:
            await self._transaction.rollback()
            self._crash.ended(self._transaction)


def _did_something(answer: Any) -> bool:
    return bool(answer.count if isinstance(answer, Promoted) else answer)


def _of_the_crash(error: BaseException | None) -> bool:
    """Tell whether an error is the crash, or came of it."""
    while error is not None:
        if isinstance(error, Crashed):
            return True
        if isinstance(error, BaseExceptionGroup) and any(_of_the_crash(one) for one in error.exceptions):
            return True
        error = error.__context__
    return False
