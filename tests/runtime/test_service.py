"""The loops of a worker: ticks, wakes, outages, errors, and what is counted."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from holdfast import StoreUnavailable
from holdfast.runtime.counters import CONCURRENT, RETRIES, MemoryCounters
from holdfast.runtime.outage import LONGEST_REST, Outage
from holdfast.runtime.service import Service, wait_for_event
from tests.runtime.parts import Even, a_base

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

WAIT = 20.0


class Ticks:
    """A keeper that does what it is told, one thing for each tick, and then tells the test."""

    def __init__(self, *answers: float | Exception | None, interval: float = 3600.0) -> None:
        self.interval = interval
        self._answers = list(answers)
        self.count = 0
        self.ticked = asyncio.Event()

    async def tick(self) -> float | None:
        self.count += 1
        answer = self._answers.pop(0) if self._answers else None
        if not self._answers:
            self.ticked.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def run(service: Service, until: asyncio.Event, then: Callable[[], None] | None = None) -> None:
    running = asyncio.create_task(service.run())
    await asyncio.wait_for(until.wait(), WAIT)
    if then is not None:
        then()
    service.stop()
    await asyncio.wait_for(running, WAIT)


async def test_a_service_comes_again_when_its_tick_says() -> None:
    keeper = Ticks(0.001, 0.001, 0.001)
    await run(Service("keeper", keeper, a_base()), keeper.ticked)
    assert keeper.count == 3


async def test_a_service_without_a_word_from_its_tick_rests_for_its_interval() -> None:
    keeper = Ticks(None, None, interval=0.001)
    await run(Service("keeper", keeper, a_base()), keeper.ticked)
    assert keeper.count >= 2


async def test_a_wake_ticks_at_once_and_one_during_a_tick_is_not_lost() -> None:
    woken = asyncio.Event()

    class Slow:
        interval = 3600.0
        count = 0

        async def tick(self) -> None:
            self.count += 1
            if self.count == 1:
                service.wake()
                await asyncio.sleep(0)
            else:
                woken.set()

    service = Service("slow", Slow(), a_base())
    await run(service, woken)


async def test_a_stop_ends_the_longest_rest() -> None:
    keeper = Ticks(3600.0)
    await run(Service("keeper", keeper, a_base()), keeper.ticked)
    assert keeper.count == 1


async def test_an_error_of_its_own_is_logged_and_the_service_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    keeper = Ticks(ValueError("a bug"), None, interval=0.001)
    await run(Service("promoter", keeper, a_base()), keeper.ticked)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "promoter: an error of its own; it goes on"
    assert record.exc_info is not None


async def test_an_outage_is_told_of_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    base = a_base()
    seconds = 100.0
    base.outage._environment.monotonic = lambda: seconds  # type: ignore[method-assign]
    gone = StoreUnavailable("db", 0.1, "connection refused")
    keeper = Ticks(gone, gone, None)
    ends = asyncio.Event()

    async def wake_until_done() -> None:
        while not keeper.ticked.is_set():
            service.wake()
            await asyncio.sleep(0)
        ends.set()

    service = Service("reaper", keeper, base)
    waking = asyncio.create_task(wake_until_done())
    await run(service, ends)
    await waking
    assert not base.outage.going_on
    seconds += 1.0
    base.outage.succeeded()
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(";")[0].split(" after")[0] for message in messages] == [
        "the store does not answer",
        "the store answers again",
    ]


def test_an_outage_rests_longer_each_time_up_to_a_bound() -> None:
    outage = Outage(Even())
    backoff = outage.backoff()
    error = StoreUnavailable("db", 0.1, "gone")
    rests = [backoff.failed(error) for _ in range(20)]
    assert rests[0] < 0.2
    assert rests == sorted(rests)
    assert (rests[-1], outage.going_on) == (LONGEST_REST * 0.75, True)
    assert outage.backoff().failed(error) == rests[0], "another loop rests by its own failures"
    backoff.succeeded()
    assert (backoff.failed(error), outage.going_on) == (rests[0], True), "the next outage begins anew"


def test_loops_in_many_threads_see_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    world = Even()
    outage = Outage(world)
    begin = threading.Barrier(8)

    def loop() -> None:
        begin.wait()
        for _ in range(50):
            outage.failed(ConnectionError("gone"))

    threads = [threading.Thread(target=loop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outage.succeeded()
    assert len(caplog.records) == 1, "what was under way when it began may succeed in its midst"
    later = world.monotonic() + 1.0
    world.monotonic = lambda: later
    outage.succeeded()
    outage.succeeded()
    assert len(caplog.records) == 2
    assert "after 0." in caplog.messages[1], "it lasted until the store answered, not until that was told"


def test_an_outage_that_flaps_is_not_told_of_again_unless_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    world = Even()
    seconds = 100.0
    world.monotonic = lambda: seconds
    outage = Outage(world)
    error = StoreUnavailable("db", 0.1, "disk full")
    for _ in range(5):
        outage.failed(error)
        seconds += 1.0
        outage.succeeded()
    assert len(caplog.records) == 2
    outage.failed(error)
    seconds += 1.0
    outage.failed(error)
    seconds += 1.0
    outage.succeeded()
    assert len(caplog.records) == 4


async def test_waiting_for_an_event_says_whether_it_came() -> None:
    event = asyncio.Event()
    assert await wait_for_event(event, 0.001) is False
    assert await wait_for_event(event, -1) is False
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait_for_event(event, None) is True
    assert await wait_for_event(event, 0) is True


def test_counters_add_up_by_label_and_levels_stand_where_they_were_put() -> None:
    counters = MemoryCounters()
    counters.add(RETRIES, label="TIMEOUT")
    counters.add(RETRIES, 2, label="DISK")
    counters.add("claimed_jobs", 5)
    counters.level(CONCURRENT, 7)
    counters.level(CONCURRENT, 3)
    assert counters.snapshot() == {
        "retry_attempts:TIMEOUT": 1,
        "retry_attempts:DISK": 2,
        "claimed_jobs": 5,
        "concurrent_jobs": 3,
    }
    assert (counters.total(RETRIES), counters.total("claimed_jobs"), counters.total("nothing")) == (3, 5, 0)
