"""A producer process: `python -m lab.soak.producer DIARY SEED RATE BACKLOG PARENT`.

It enqueues jobs of every kind at a steady pace, and writes into its diary what it tries and what it was told. What fails
because the store does not answer is tried again with the same ids. While too many jobs wait it holds back.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uuid_utils.compat import uuid7

from holdfast import HoldfastError, JobNotFound, KeyBusy, StoreUnavailable
from lab.soak import tasks
from lab.soak.diary import ASKED, CANCEL, COMPLETE, FAILED, HELD, KEPT, REFUSED, TAKEN, TRIED, UNDONE, Diary
from lab.soak.tasks import app
from tests.faults.work import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast import Call, Handle

    Later = tuple[float, Callable[[], Awaitable[object]]]

USERS: Final = 5
REST: Final = 0.2
"""Seconds before what failed is tried again."""
LOOK: Final = 0.5
"""Seconds between looks at the backlog."""


class RolledBack(Exception):
    """A user's own reason to undo a transaction."""


class Producer:
    """One life of a producer."""

    def __init__(self, diary: Diary, rng: random.Random, rate: float, backlog: int) -> None:
        self._diary = diary
        self._rng = rng
        self._rate = rate
        self._backlog = backlog
        self._number = rng.randrange(10**9)
        self._made = 0.0
        self._later: list[Later] = []
        self._stopping = asyncio.Event()
        self._looked = 0.0

    async def run(self) -> None:
        """Produce until asked to stop, then do what was promised for later."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)
        begun = time.monotonic()
        orders = [kind for kind, share in self._orders.items() for _ in range(share)]
        while not self._stopping.is_set():
            await self._hold_back()
            behind = self._rate * (time.monotonic() - begun) - self._made
            if behind > 2 * self._rate:  # it was held back: the pace begins anew
                self._made += behind - self._rate
            if behind <= 0:
                await self._rest(0.05)
                continue
            await self._carry_out(getattr(self, f"_{self._rng.choice(orders)}"))
            await self._do_what_is_due(time.monotonic())
        await self._do_what_is_due(float("inf"))
        await app.close()

    _orders: Final = {
        "bulk": 7,
        "deposits": 14,
        "withdrawal": 3,
        "order": 10,
        "chain": 8,
        "join": 4,
        "keyed": 10,
        "report": 6,
        "cancelled": 6,
        "completed": 3,
        "approval": 3,
        "parents": 5,
        "in_line": 8,
        "dozes": 3,
        "relay": 8,
        "toil": 1,
        "stumbling": 4,
    }
    """How often each is drawn, compared with others."""

    # orders

    async def _bulk(self) -> None:
        delayed = tasks.short.options(delay=self._rng.uniform(0.1, 5.0))
        await self._enqueue(
            [tasks.short.call(self._next()) for _ in range(self._rng.randint(10, 60))]
            + [delayed.call(self._next()) for _ in range(self._rng.randint(0, 8))]
        )

    async def _stumbling(self) -> None:
        await self._enqueue([tasks.flaky.call(self._next(), self._rng.randint(1, 3)) for _ in range(3)])

    async def _deposits(self) -> None:
        draw = self._rng.random
        await self._enqueue(
            [tasks.deposit.call(self._next(), self._rng.randint(1, 100), stumbles=draw() < 0.1) for _ in range(3)]
        )

    async def _withdrawal(self) -> None:
        await self._enqueue([tasks.withdraw.call(self._next(), -self._rng.randint(1, 100))])

    async def _chain(self) -> None:
        number, amount = self._next(), self._rng.randint(1, 100)
        job_id = uuid7()
        await self._told([(job_id, "check")], lambda: tasks.check.options(id=job_id).start_chain(number, amount))

    async def _join(self) -> None:
        parts = await self._enqueue([tasks.part.call(self._next()) for _ in range(self._rng.randint(2, 5))])
        await self._enqueue([tasks.total.options(after=parts).call(self._next(), len(parts))])

    async def _keyed(self) -> None:
        conflict = self._rng.choice(("skip", "skip", "skip", "replace", "debounce"))
        keyed = tasks.user.options(on_conflict=conflict, delay=0.0 if conflict == "skip" else 0.3)  # type: ignore[arg-type]
        with suppress(KeyBusy):
            await self._enqueue([keyed.call(self._next(), self._rng.randrange(USERS))])

    async def _report(self) -> None:
        await self._enqueue([tasks.report.call(self._next(), stumbles=self._rng.random() < 0.2)])

    async def _dozes(self) -> None:
        await self._enqueue([tasks.doze.call(self._next()) for _ in range(2)])

    async def _relay(self) -> None:
        await self._enqueue([tasks.relay.call(self._next())])

    async def _toil(self) -> None:
        await self._enqueue([tasks.toil.call(self._next(), self._rng.choice((0.05, 1.0)))])

    async def _parents(self) -> None:
        await self._enqueue([tasks.parent.call(self._next()), tasks.mother.call(self._next())])

    async def _in_line(self) -> None:
        for _ in range(2):  # one after the other: each is acknowledged before the next is tried
            await self._enqueue([tasks.line.call(self._next())])

    async def _cancelled(self) -> None:
        delayed = tasks.nap.options(delay=self._rng.choice((0.0, 2.0)))
        (handle,) = await self._enqueue([delayed.call(self._next(), self._rng.uniform(0.1, 1.5))])
        self._at(self._rng.uniform(0.0, 2.0), partial(self._cancel, handle, "nap"))

    async def _completed(self) -> None:
        (handle,) = await self._enqueue([tasks.nap.call(self._next(), self._rng.uniform(0.1, 1.5))])
        self._at(self._rng.uniform(0.0, 1.5), partial(self._complete, handle, "nap"))

    async def _approval(self) -> None:
        (handle,) = await self._enqueue([tasks.approve.call(self._next())])
        self._at(self._rng.uniform(0.0, 3.0), partial(self._complete, handle, "approve"))

    async def _order(self) -> None:
        """Store an order, and enqueue the job about it, in one transaction of our own; one in ten is rolled back."""
        job_id = uuid7()
        self._made += 1
        self._diary.write(TRIED, [(job_id, "confirm")])
        fails = self._rng.random() < 0.1
        place = _order_in_file if app.url.startswith("sqlite") else _order_on_server
        try:
            await place(job_id, self._next(), fails=fails)
        except RolledBack:
            self._diary.write(UNDONE, [(job_id, "confirm")])
        except Exception as error:  # noqa: BLE001  of the driver, or ours: nobody knows
            self._diary.write(FAILED, [(job_id, "confirm")], type(error).__name__)
            await self._rest(REST)
        else:
            self._diary.write(KEPT, [(job_id, "confirm")])

    # how they are carried out

    async def _enqueue(self, calls: list[Call[Any]]) -> list[Handle[Any]]:
        jobs = [(call.job.id, call.job.task) for call in calls]
        handles: list[Handle[Any]] = await self._told(jobs, partial(app.enqueue_many, calls))
        return handles

    async def _told(self, jobs: list[tuple[Any, str]], ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until it is answered, and write down what was tried and what was answered."""
        self._made += len(jobs) * (3 if jobs[0][1] == "check" else 2 if jobs[0][1] in ("parent", "mother") else 1)
        self._diary.write(TRIED, jobs)
        while True:
            try:
                answer = await ask()
            except StoreUnavailable:
                if self._stopping.is_set():
                    self._diary.write(FAILED, jobs, "StoreUnavailable")
                    raise
                await self._rest(REST)
                continue
            handles = answer if isinstance(answer, list) else [answer]
            for (job_id, kind), handle in zip(jobs, handles, strict=True):
                if handle.id == job_id:
                    self._diary.write(KEPT, [(job_id, kind)])
                else:
                    self._diary.write(HELD, [(job_id, kind)], str(handle.id))
            return answer

    async def _carry_out(self, order: Callable[[], Awaitable[None]]) -> None:
        with suppress(StoreUnavailable):  # it was asked to stop meanwhile
            await order()

    async def _cancel(self, handle: Handle[Any], kind: str) -> None:
        self._diary.write(CANCEL, [(handle.id, kind)], ASKED)
        taken = await handle.cancel("a change of mind")
        self._diary.write(CANCEL, [(handle.id, kind)], TAKEN if taken else REFUSED)

    async def _complete(self, handle: Handle[Any], kind: str) -> None:
        self._diary.write(COMPLETE, [(handle.id, kind)], ASKED)
        completion = await app.complete(handle.id, "outside", by="producer")
        self._diary.write(COMPLETE, [(handle.id, kind)], TAKEN if completion.applied else REFUSED)

    def _at(self, delay: float, do: Callable[[], Awaitable[object]]) -> None:
        self._later.append((time.monotonic() + delay, do))

    async def _do_what_is_due(self, now: float) -> None:
        due, self._later = (
            [one for one in self._later if one[0] <= now],
            [one for one in self._later if one[0] > now],
        )
        for moment, do in due:
            try:
                await do()
            except StoreUnavailable:
                if not self._stopping.is_set():
                    self._later.append((moment + 1.0, do))
            except JobNotFound as error:  # it was acknowledged: the books will say the same
                print(f"an acknowledged job is gone: {error}", file=sys.stderr)

    async def _hold_back(self) -> None:
        """Wait while too many jobs are live."""
        while not self._stopping.is_set():
            if time.monotonic() < self._looked + LOOK:
                return
            try:
                live = (await app.stats())["live"]
            except HoldfastError:
                await self._rest(REST)
                continue
            self._looked = time.monotonic()
            if live <= self._backlog:
                return
            await self._rest(LOOK)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _next(self) -> int:
        self._number += 1
        return self._number


async def _order_on_server(job_id: Any, number: int, *, fails: bool) -> None:
    import asyncpg  # noqa: PLC0415  where there is a server

    connection = await asyncpg.connect(app.url, timeout=10)
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO orders (job, number) VALUES ($1, $2)", str(job_id), number)
            await tasks.confirm.options(id=job_id, conn=connection).enqueue(number)
            if fails:
                raise RolledBack
    finally:
        with suppress(Exception):
            await connection.close(timeout=2)


async def _order_in_file(job_id: Any, number: int, *, fails: bool) -> None:
    await asyncio.to_thread(_order_in_thread, job_id, number, fails=fails)


def _order_in_thread(job_id: Any, number: int, *, fails: bool) -> None:
    connection = sqlite3.connect(app.url.removeprefix("sqlite:///"), timeout=10, isolation_level=None)
    try:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO orders (job, number) VALUES (?, ?)", [str(job_id), number])
            tasks.confirm.options(id=job_id, conn=connection).enqueue_sync(number)
            if fails:
                raise RolledBack
    finally:
        connection.close()


def main() -> None:
    """Produce until asked to stop."""
    diary, seed, rate, backlog, parent = sys.argv[1:]
    die_with_parent(int(parent))
    producer = Producer(Diary(Path(diary)), random.Random(seed), float(rate), int(backlog))
    asyncio.run(producer.run())


if __name__ == "__main__":
    main()
