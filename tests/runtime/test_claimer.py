"""The claimer: what it asks for, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.errors import UnknownWorker
from holdfast.runtime.claimer import Claimer, Claims
from holdfast.store.port import Worker
from tests.runtime.parts import a_base, an_attempt

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
        await asyncio.sleep(0)
        limit = 1 if request.hurry and self.one_in_a_hurry else request.limit
        claimed, self.jobs = self.jobs[:limit], self.jobs[limit:]
        return claimed


class Bench:
    """A claimer that runs, whose jobs are started by a task each, as slots do it."""

    def __init__(self, *, delay: float = 0.0) -> None:
        self.store = Counter()
        self.slots: set[asyncio.Task[None]] = set()
        claims = Claims(
            worker=Worker(id=uuid4(), name="w"),
            tasks=frozenset({"note"}),
            queues=None,
            weights={},
            retry_share=0.0,
            poll=60.0,
            poll_unhinted=60.0,
            delay=delay,
        )
        self.claimer = Claimer(a_base(self.store), claims, room=lambda: ROOM, take=self._take, held=set)

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
