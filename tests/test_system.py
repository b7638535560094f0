"""The thread for blocking calls."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from functools import partial
from queue import SimpleQueue

import pytest

from holdfast.system import SystemEnvironment, ThreadRunner
from tests.notify.ear import eventually


@pytest.fixture
def runner() -> ThreadRunner:
    return ThreadRunner("holdfast-test")


async def test_calls_run_in_turn_in_one_thread(runner: ThreadRunner) -> None:
    order: list[int] = []

    def note(number: int) -> int:
        order.append(number)
        return threading.get_ident()

    threads = await asyncio.gather(*(runner.run(partial(note, number)) for number in range(20)))
    assert order == list(range(20))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    runner.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
async def test_what_a_call_raises_reaches_its_caller_and_the_next_one_runs(runner: ThreadRunner, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await runner.run(fail)
    assert await runner.run(lambda: 7) == 7
    runner.close()


async def test_a_call_whose_caller_was_cancelled_before_its_turn_is_not_run(runner: ThreadRunner) -> None:
    gate = threading.Event()
    ran: list[str] = []
    first = asyncio.create_task(runner.run(gate.wait))
    second = asyncio.create_task(runner.run(lambda: ran.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await first
    await runner.run(lambda: ran.append("third"))
    assert ran == ["third"]
    runner.close()


async def test_a_call_whose_caller_was_cancelled_meanwhile_runs_to_its_end(runner: ThreadRunner) -> None:
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait()
        ended.set()

    asked = asyncio.create_task(runner.run(work))
    await eventually(begun.is_set)
    asked.cancel()
    gate.set()
    assert await runner.run(ended.is_set)
    with pytest.raises(asyncio.CancelledError):
        await asked
    runner.close()


async def test_closing_waits_for_what_was_given_and_refuses_what_comes_later(runner: ThreadRunner) -> None:
    done: list[int] = []
    asked = asyncio.create_task(runner.run(lambda: done.append(1)))
    await asyncio.sleep(0)
    runner.close()
    assert done == [1]
    await asked
    with pytest.raises(RuntimeError, match="holdfast-test is closed"):
        await runner.run(lambda: done.append(2))


async def test_what_was_asked_is_not_kept_alive_by_the_waiting_thread(runner: ThreadRunner) -> None:
    class Work:
        def __call__(self) -> int:
            return 7

    work = Work()
    kept = weakref.ref(work)
    assert await runner.run(work) == 7
    await runner.run(int)
    del work
    gc.collect()
    assert kept() is None
    runner.close()


def test_an_answer_for_an_event_loop_that_has_ended_harms_nobody(runner: ThreadRunner) -> None:
    gate = threading.Event()

    async def asks() -> None:
        asked = asyncio.ensure_future(runner.run(gate.wait))
        await asyncio.sleep(0)
        asked.cancel()

    asyncio.run(asks())
    gate.set()
    assert asyncio.run(runner.run(lambda: 7)) == 7
    runner.close()


def test_an_alarm_rings_once_unless_it_is_called_off() -> None:
    rung: SimpleQueue[str] = SimpleQueue()
    environment = SystemEnvironment()
    environment.alarm(0.05, lambda: rung.put("called off"))()
    environment.alarm(0.0, lambda: rung.put("rung"))
    assert rung.get(timeout=10) == "rung"
    environment.alarm(0.1, lambda: rung.put("later"))  # after the one that was called off would have rung
    assert rung.get(timeout=10) == "later"


def test_chance_is_not_the_programs_own() -> None:
    """Who seeds the module `random` gets the same numbers whatever a worker does beside, and no fleet draws in step."""
    random.seed(1)
    before = random.getstate()
    drawn = {SystemEnvironment().random() for _ in range(100)}
    assert random.getstate() == before
    assert len(drawn) == 100
    assert all(0 <= number < 1 for number in drawn)
