"""The slots of a worker: how many are woken, when more is claimed, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast import Holdfast
from holdfast.runtime import counters as count
from holdfast.runtime.entry import Entry
from holdfast.runtime.slots import Slots
from tests.notify.ear import eventually
from tests.runtime.parts import a_base, an_attempt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.core.lease import Claimed
    from holdfast.store.port import Settled, Settlement


class Confirming:
    """A store that confirms every settlement when it is let."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.may.set()
        self.settled = 0

    async def settle(self, settlements: list[Settlement]) -> list[Settled]:
        from holdfast.store.port import Settled  # noqa: PLC0415  as the port says it

        await self.may.wait()
        self.settled += len(settlements)
        return [Settled.APPLIED] * len(settlements)


class Bench:
    """Slots with one task, and what happened to them."""

    def __init__(self, function: Callable[[], Awaitable[None]], *, concurrency: int, prefetch: int) -> None:
        app = Holdfast("memory://")
        task = app.task(name="note")(function)
        self.store = Confirming()
        self.base = a_base(self.store)
        self.slots = Slots(self.base, {"note": Entry(task, None, ())}, concurrency=concurrency, prefetch=prefetch)
        self.woken = 0
        self.slots.freed = self._freed

    def _freed(self) -> None:
        self.woken += 1

    def claim(self, number: int) -> None:
        """Hand over so many jobs, as a claimer does."""
        claims: list[Claimed] = [an_attempt().claimed for _ in range(number)]
        self.slots.take(claims, 0.0 + asyncio.get_running_loop().time())


@pytest.fixture
async def bench() -> AsyncIterator[Callable[..., Bench]]:
    """Make slots that run, and close them."""
    made: list[tuple[Bench, asyncio.Task[None]]] = []

    def make(function: Callable[[], Awaitable[None]], *, concurrency: int, prefetch: int = 0) -> Bench:
        one = Bench(function, concurrency=concurrency, prefetch=prefetch)
        one.slots.open()
        made.append((one, asyncio.create_task(one.slots.settler.run())))
        return one

    yield make
    for one, writing in made:
        one.slots.settler.finish()
        await writing
        await one.slots.close()


async def test_jobs_that_suspend_run_all_at_once(bench: Callable[..., Bench]) -> None:
    gate = asyncio.Event()
    running = 0

    async def waits() -> None:
        nonlocal running
        running += 1
        await gate.wait()

    at_work = bench(waits, concurrency=100)
    await asyncio.sleep(0)  # all are idle now
    at_work.claim(100)
    await eventually(lambda: running == 100)
    gate.set()
    await eventually(lambda: at_work.store.settled == 100)


async def test_jobs_that_never_suspend_wake_one_slot(bench: Callable[..., Bench]) -> None:
    slots = set()

    async def notes() -> None:
        slots.add(asyncio.current_task())

    at_work = bench(notes, concurrency=50, prefetch=50)
    await asyncio.sleep(0)
    at_work.claim(40)
    await eventually(lambda: at_work.store.settled == 40)
    assert len(slots) == 1


async def test_a_job_that_suspends_does_not_keep_those_behind_it_waiting(bench: Callable[..., Bench]) -> None:
    gate = asyncio.Event()
    done = 0
    first = True

    async def first_waits() -> None:
        nonlocal done, first
        if first:
            first = False
            await gate.wait()
        done += 1

    at_work = bench(first_waits, concurrency=2, prefetch=10)
    await asyncio.sleep(0)
    at_work.claim(10)
    await eventually(lambda: done == 9)
    gate.set()
    await eventually(lambda: at_work.store.settled == 10)


async def test_the_event_loop_turns_while_jobs_never_suspend(bench: Callable[..., Bench]) -> None:
    turns = 0
    clock = iter(range(10_000))

    seen: list[int] = []

    async def notes() -> None:
        seen.append(turns)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    at_work = bench(notes, concurrency=1, prefetch=100)
    # every job takes longer than a slot may run on
    cast("Any", at_work.slots)._environment = SimpleNamespace(monotonic=lambda: float(next(clock)), random=lambda: 0.5)
    counting = asyncio.create_task(count())
    at_work.claim(50)
    await eventually(lambda: at_work.store.settled == 50)
    counting.cancel()
    assert len(set(seen)) > 40


async def test_a_claimer_that_was_held_off_is_woken_when_nothing_is_buffered_any_more(bench: Callable[..., Bench]) -> None:
    """Else jobs that are ready would wait until one of those that run has ended."""
    gate = asyncio.Event()

    async def waits() -> None:
        await gate.wait()

    at_work = bench(waits, concurrency=20)
    await asyncio.sleep(0)
    at_work.claim(15)
    await eventually(lambda: at_work.slots.running == 15)
    woken = at_work.woken
    at_work.claim(2)
    assert at_work.slots.room() == 0
    await eventually(lambda: at_work.woken > woken)
    assert at_work.slots.room() == 3
    gate.set()
    await eventually(lambda: at_work.store.settled == 17)


async def test_few_are_not_claimed_while_some_are_buffered(bench: Callable[..., Bench]) -> None:
    gate = asyncio.Event()

    async def waits() -> None:
        await gate.wait()

    at_work = bench(waits, concurrency=2, prefetch=98)
    at_work.claim(80)
    assert at_work.slots.room() == 0  # 20 would fit
    await eventually(lambda: at_work.slots.running == 2)
    gate.set()
    await eventually(lambda: at_work.store.settled == 80)
    assert at_work.slots.room() == 100


async def test_what_a_job_leaves_behind_is_freed_without_the_garbage_collector(bench: Callable[..., Bench]) -> None:
    """Cycles would cost a third of the time that a worker spends on short jobs."""

    async def notes() -> None: ...

    at_work = bench(notes, concurrency=1, prefetch=1000)

    async def left_by(jobs: int) -> int:
        gc.collect()
        for _ in range(2):  # the settler remembers its last batch
            at_work.claim(jobs // 2)
            await eventually(lambda: not at_work.slots.held)
        return gc.collect()

    gc.disable()
    try:
        # what other tests have left in this process may become garbage at any moment, but not every time
        left = [await left_by(1000) for _ in range(5)]
    finally:
        gc.enable()
    assert min(left) < 500, left


class Left:
    """What a handler has in hand."""


async def returns(_: Left) -> None: ...


async def raises(left: Left) -> None:
    raise RuntimeError(str(left))


async def cancels_itself(left: Left) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel(str(left))
    await asyncio.sleep(0)


@pytest.mark.parametrize("handler", [returns, raises, cancels_itself])
async def test_nothing_that_a_handler_had_in_hand_is_kept(
    bench: Callable[..., Bench], handler: Callable[[Left], Awaitable[None]]
) -> None:
    alive: weakref.WeakSet[Left] = weakref.WeakSet()

    async def notes() -> None:
        left = Left()
        alive.add(left)
        await handler(left)

    at_work = bench(notes, concurrency=1)
    for done in range(1, 21):
        at_work.claim(1)
        await eventually(lambda: at_work.store.settled == done)  # noqa: B023  awaited before it changes
    gc.collect()
    assert len(alive) <= 1, "the last one may still be remembered"


async def test_none_is_counted_as_running_once_slots_are_closed(bench: Callable[..., Bench]) -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    at_work = bench(waits, concurrency=2)
    at_work.claim(2)
    counters = at_work.base.counters
    await eventually(lambda: counters.snapshot().get(count.CONCURRENT) == 2)
    await at_work.slots.close()
    assert counters.snapshot()[count.CONCURRENT] == 0
