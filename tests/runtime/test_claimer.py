"""The claimer: what it asks for, and when."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.errors import UnknownWorker
from holdfast.runtime.claimer import Claimer, Claims
from holdfast.store.port import Worker
from tests.runtime.parts import Even, a_base, an_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.lease import Claimed
    from holdfast.store.port import ClaimRequest

ROOM = 10
WAIT = 20.0


class Counter:
    """A store in which a job appears when a test says so, and a diary of what was done."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.looks: list[bool] = []
        self.jobs: list[Claimed] = []
        self.one_in_a_hurry = False
        self.known = True

    async def register(self, worker: Worker) -> None:
        self.diary.append(f"register {worker.name}")
        self.known = True

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        if not self.known:
            raise UnknownWorker("another store than before")
        self.diary.append("hurried claim" if request.hurry else "claim")
        self.looks.append(request.look)
        await asyncio.sleep(0)
        limit = 1 if request.hurry and self.one_in_a_hurry else request.limit
        claimed, self.jobs = self.jobs[:limit], self.jobs[limit:]
        return claimed


class Bench:
    """A claimer that runs, whose jobs are started by a task each, as slots do it."""

    def __init__(self, *, delay: float = 0.0) -> None:
        self.store = Counter()
        self.slots: set[asyncio.Task[None]] = set()
        self.claims = Claims(
            worker=Worker(id=uuid4(), name="w"),
            tasks=frozenset({"note"}),
            queues=None,
            weights={},
            retry_share=0.0,
            poll=60.0,
            poll_unhinted=60.0,
            delay=delay,
        )
        self.claimer = Claimer(a_base(self.store), self.claims, room=lambda: ROOM, take=self._take, held=set)

    def _take(self, claims: Sequence[Claimed], _asked_at: float) -> None:
        self.slots |= {asyncio.create_task(self._start()) for _ in claims}

    async def _start(self) -> None:
        self.store.diary.append("start")

    async def settled(self) -> None:
        """Wait until the claimer has nothing left to do."""
        for _ in range(30):
            await asyncio.sleep(0)


async def test_a_store_that_does_not_know_the_worker_any_more_is_asked_again_at_once() -> None:
    bench = Bench()
    running = asyncio.create_task(bench.claimer.run())
    await bench.settled()
    bench.store.diary.clear()
    bench.store.known = False  # a standby has taken over, which lacks the tail
    bench.store.jobs = [an_attempt().claimed]
    bench.claimer.hinted(surely=True)
    await bench.settled()
    assert bench.store.diary[:2] == ["register w", "claim"]
    assert "start" in bench.store.diary
    bench.claimer.stop()
    await asyncio.wait_for(running, WAIT)


async def test_when_a_limit_has_room_again_it_is_asked_at_once_and_nothing_is_looked_for() -> None:
    bench = Bench()
    running = asyncio.create_task(bench.claimer.run())
    await bench.settled()
    bench.store.looks.clear()
    bench.store.jobs = [an_attempt().claimed]
    bench.claimer.let_in()
    await bench.settled()
    assert "start" in bench.store.diary
    assert not any(bench.store.looks)
    bench.claimer.stop()
    await asyncio.wait_for(running, WAIT)


async def test_a_job_that_was_waited_for_starts_before_anything_else_is_asked() -> None:
    bench = Bench()
    running = asyncio.create_task(bench.claimer.run())
    await bench.settled()
    bench.store.diary.clear()
    bench.store.jobs = [an_attempt().claimed]
    bench.claimer.hinted(surely=True)
    await bench.settled()
    assert bench.store.diary == ["hurried claim", "start", "claim"]
    bench.claimer.stop()
    await asyncio.wait_for(running, WAIT)


async def test_a_claim_that_filled_all_room_is_followed_by_the_next_at_once() -> None:
    """A slot may run jobs that never suspend for a while: then the store would have nothing to do."""
    bench = Bench()
    running = asyncio.create_task(bench.claimer.run())
    await bench.settled()
    bench.store.diary.clear()
    bench.store.jobs = [an_attempt().claimed for _ in range(ROOM + 1)]
    bench.claimer.hinted(surely=True)
    await bench.settled()
    assert bench.store.diary[:2] == ["hurried claim", "claim"]
    bench.claimer.stop()
    await asyncio.wait_for(running, WAIT)


async def test_a_rest_between_claims_does_not_come_between_the_first_job_and_the_others() -> None:
    bench = Bench(delay=WAIT)
    running = asyncio.create_task(bench.claimer.run())
    await bench.settled()
    bench.store.diary.clear()
    bench.store.one_in_a_hurry = True
    bench.store.jobs = [an_attempt().claimed for _ in range(3)]
    bench.claimer.hinted(surely=True)
    await bench.settled()
    assert bench.store.diary == ["hurried claim", "start", "claim", "start", "start"]
    bench.claimer.stop()
    await asyncio.wait_for(running, WAIT)


class Busy(Even):
    """A world in which a claim takes 10 ms, and one that looks 50."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


async def test_a_look_that_takes_long_is_not_made_with_every_hint_while_claims_bring_work() -> None:
    bench, world, looks = Bench(), Busy(), 0

    class Full(Counter):
        """Every claim brings as much as it asks for, and is followed by a hint."""

        async def claim(self, request: ClaimRequest) -> list[Claimed]:
            nonlocal looks
            world.at += 0.05 if request.look else 0.01
            looks += request.look
            claimer.hinted(surely=True)
            if world.at >= 1005.0:
                claimer.stop()
            await asyncio.sleep(0)
            return [an_attempt().claimed]

    base = dataclasses.replace(a_base(Full()), environment=world)
    claimer = Claimer(base, bench.claims, room=lambda: 1, take=lambda *_: None, held=set)
    await asyncio.wait_for(claimer.run(), WAIT)
    assert 4 <= looks <= 7, "once a second, and not ten times"
