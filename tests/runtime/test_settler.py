"""Settlements: written in batches, repeated until answered, each standing or falling alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from holdfast import Retry, State, StoreUnavailable
from holdfast.core.job import NewJob, Policy, Unique
from holdfast.core.outcome import (
    BAD_CONTINUATION,
    KEY_TAKEN,
    Continued,
    Error,
    Failed,
    Rescheduled,
    Succeeded,
    Suspended,
)
from holdfast.core.states import Event
from holdfast.errors import BadJob, KeyBusy
from holdfast.notify.port import Hint
from holdfast.runtime import counters as count
from holdfast.runtime import settler as settler_module
from holdfast.runtime.settler import BATCH, WORTH_ANOTHER, Settler
from holdfast.store.port import Settled
from holdfast.system import SystemEnvironment
from tests.runtime.parts import Hints, a_base, an_attempt
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from holdfast.core.outcome import Outcome
    from holdfast.runtime.attempt import Attempt
    from holdfast.store.port import Settlement

WAIT = 20.0
AT_ONCE = Policy(Retry(initial=0, max=0))


class Book:
    """A store that writes settlements down, or does what a test says instead."""

    def __init__(self) -> None:
        self.batches: list[list[Settlement]] = []
        self.instead: Callable[[Sequence[Settlement]], list[Settled] | None] = lambda _: None

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        await asyncio.sleep(0)
        answers = self.instead(settlements)
        self.batches.append(list(settlements))
        return [Settled.APPLIED] * len(settlements) if answers is None else answers


class Desk:
    """A settler at work, and who was confirmed."""

    def __init__(self) -> None:
        self.store = Book()
        self.hints = Hints()
        self.base = a_base(self.store, self.hints)
        self.submitted = 0
        self.confirmed: list[Attempt] = []
        self.settler = Settler(self.base, self.confirmed.extend)

    def counted(self, name: str) -> int:
        return sum(value for key, value in self.base.counters.snapshot().items() if key.partition(":")[0] == name)

    def submit(self, attempt: Attempt, outcome: Outcome) -> None:
        self.submitted += 1
        self.settler.submit(attempt, outcome)

    async def flush(self) -> None:
        """Wait until everything submitted is confirmed."""

        async def all_confirmed() -> bool:
            return len(self.confirmed) == self.submitted

        await until(all_confirmed)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """A settler that runs, and has ended afterwards."""
    desk = Desk()
    running = asyncio.create_task(desk.settler.run())
    yield desk
    desk.settler.finish()
    await asyncio.wait_for(running, WAIT)


async def test_attempts_that_end_together_are_written_together(desk: Desk) -> None:
    attempts = [an_attempt() for _ in range(BATCH + 20)]
    for attempt in attempts:
        desk.submit(attempt, Succeeded("1"))
        assert attempt.finished
    await desk.flush()
    assert [len(batch) for batch in desk.store.batches] == [BATCH, 20]
    assert desk.confirmed == attempts
    assert desk.counted(count.SETTLED) == BATCH + 20


@pytest.mark.row(11)
async def test_a_settlement_whose_answer_was_lost_is_sent_again_as_it_was(desk: Desk) -> None:
    seen: list[Settlement] = []

    def lose_the_first(batch: Sequence[Settlement]) -> None:
        seen.extend(batch)
        if len(seen) == 1:
            raise StoreUnavailable("db", 0.1, "gone")

    desk.store.instead = lose_the_first
    attempt = an_attempt()
    desk.submit(attempt, Failed(Error("DISK")))
    await desk.flush()
    assert seen[0] == seen[1], "the same write, so that the token makes it safe"
    assert desk.confirmed == [attempt]
    assert not desk.base.outage.going_on


async def test_one_that_cannot_be_written_does_not_take_its_neighbours_with_it(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = [an_attempt() for _ in range(5)]
    poisoned = attempts[2].lease

    def refuse(batch: Sequence[Settlement]) -> None:
        if any(settlement.lease == poisoned for settlement in batch):
            raise ValueError("cannot be encoded")

    desk.store.instead = refuse
    for attempt in attempts:
        desk.submit(attempt, Succeeded("1"))
    await desk.flush()
    written = [settlement.lease for batch in desk.store.batches for settlement in batch]
    assert written == [attempt.lease for attempt in attempts if attempt.lease != poisoned]
    assert f"job {poisoned.job_id}: its outcome cannot be written; its lease will lapse" in caplog.text
    assert desk.confirmed == attempts, "the slot is free again"


async def test_a_refused_settlement_is_counted_and_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.store.instead = lambda batch: [Settled.STALE] * len(batch)
    attempt = an_attempt(attempt=3)
    desk.submit(attempt, Succeeded("1"))
    await desk.flush()
    assert desk.base.counters.snapshot() == {f"{count.STALE}:settle": 1}
    assert "attempt 3: the lease was lost, so its outcome (succeeded) is refused" in caplog.text
    assert desk.confirmed == [attempt]


NOW = SystemEnvironment().now()


def a_step(**fields: Any) -> NewJob:
    """Return the next step of a chain."""
    return NewJob(id=SystemEnvironment().job_id(), task="second", queue="next", **fields)


@pytest.mark.parametrize(
    ("outcome", "hint"),
    [
        (Succeeded("1"), []),
        (Failed(Error("DISK"), fatal=True), []),
        (Failed(Error("DISK")), [Hint(frozenset({"mail"}))]),
        (Rescheduled(after=60), [Hint(later=True)]),
        (Suspended(NOW), [Hint(later=True)]),
        (Suspended(None, "paid"), [Hint(frozenset({"mail"}), later=True)]),
        (Continued(a_step()), [Hint(frozenset({"next"}))]),
        (Continued(a_step(delay=5.0)), [Hint(later=True)]),
        (Continued(a_step(after=(UUID(int=7),))), [Hint(later=True, anything=True)]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_workers_are_told_of_what_waits_again(desk: Desk, outcome: Any, hint: list[Hint]) -> None:
    desk.submit(an_attempt(policy=AT_ONCE), outcome)
    await desk.flush()
    assert desk.hints.sent == hint


async def test_workers_are_told_when_waiters_were_let_go(desk: Desk) -> None:
    desk.store.instead = lambda settlements: [Settled.APPLIED] * (len(settlements) - 1) + [Settled.FREED]
    for _ in range(3):
        desk.submit(an_attempt(), Succeeded("1"))
    await desk.flush()
    assert desk.hints.sent == [Hint(later=True, anything=True)]
    assert desk.counted(count.SETTLED) == 3


async def test_a_step_whose_next_has_a_taken_key_is_settled_as_failed_and_confirmed_then(desk: Desk) -> None:
    def instead(settlements: Sequence[Settlement]) -> list[Settled]:
        return [Settled.APPLIED if one.then is None else Settled.KEY_TAKEN for one in settlements]

    desk.store.instead = instead
    attempt, neighbour = an_attempt(policy=AT_ONCE), an_attempt()
    desk.submit(attempt, Continued(a_step(unique=Unique(key="only", scope="second"))))
    desk.submit(neighbour, Succeeded("1"))
    await desk.flush()
    assert desk.confirmed == [neighbour, attempt]
    (again,) = desk.store.batches[1]
    assert (again.lease, again.write.event) == (attempt.lease, Event.RETRY)
    assert again.write.error is not None
    assert again.write.error.code == KEY_TAKEN
    assert "'only'" in again.write.error.message


@pytest.mark.parametrize(
    ("error", "code", "event"),
    [(BadJob("no such chain", path="after"), BAD_CONTINUATION, Event.FAIL), (KeyBusy(["only"]), KEY_TAKEN, Event.RETRY)],
)
async def test_a_step_whose_next_cannot_be_created_is_settled_as_failed_without_its_neighbours(
    desk: Desk, error: Exception, code: str, event: Event
) -> None:
    def instead(settlements: Sequence[Settlement]) -> None:
        if any(one.then is not None for one in settlements):
            raise error

    desk.store.instead = instead
    attempt, neighbour = an_attempt(policy=AT_ONCE), an_attempt()
    desk.submit(attempt, Continued(a_step()))
    desk.submit(neighbour, Succeeded("1"))
    await desk.flush()
    written = {one.lease: one.write for batch in desk.store.batches for one in batch}
    assert written[neighbour.lease].event is Event.SUCCEED
    assert written[attempt.lease].event is event
    refusal = written[attempt.lease].error
    assert refusal is not None
    assert refusal.code == code


async def test_failures_that_are_followed_by_another_attempt_are_counted_by_code(desk: Desk) -> None:
    desk.submit(an_attempt(policy=AT_ONCE), Failed(Error("DISK")))
    desk.submit(an_attempt(policy=AT_ONCE, failures=2), Failed(Error("DISK")))
    await desk.flush()
    assert desk.base.counters.snapshot()[f"{count.RETRIES}:DISK"] == 1


@pytest.mark.row(32)
async def test_a_result_that_no_store_could_keep_fails_the_job(desk: Desk) -> None:
    desk.submit(an_attempt(), Succeeded('"a\0b"'))
    await desk.flush()
    ((settlement,),) = desk.store.batches
    write = settlement.write
    assert (write.state, write.event) == (State.FAILED, Event.FAIL)
    assert write.error is not None
    assert write.error.code == "BAD_OUTCOME"


async def test_a_worker_that_must_end_gives_up_on_a_store_that_is_gone(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    def gone(_: Sequence[Settlement]) -> None:
        raise StoreUnavailable("db", 0.1, "gone")

    desk.store.instead = gone
    attempt = an_attempt()
    desk.submit(attempt, Succeeded("1"))
    await asyncio.wait_for(desk.settler.stop(0.01), WAIT)
    await desk.flush()
    assert desk.confirmed == [attempt]
    assert "1 outcome(s) could not be written: the leases will lapse" in caplog.text
    assert desk.counted(count.SETTLED) == 0


class Gate:
    """A store that answers a batch when it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self._answers: list[asyncio.Event] = []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.begun.append(len(settlements))
        self._answers.append(asyncio.Event())
        await self._answers[-1].wait()
        return [Settled.APPLIED] * len(settlements)

    def answer(self, batch: int) -> None:
        self._answers[batch].set()


async def turns() -> None:
    """Let the event loop turn until nothing is left to do at once."""
    for _ in range(20):
        await asyncio.sleep(0)


class Gated:
    """A settler at work on such a store, and who was confirmed."""

    def __init__(self) -> None:
        self.store = Gate()
        self.confirmed: list[Attempt] = []
        self.settler = Settler(a_base(self.store), self.confirmed.extend)
        self.running = asyncio.create_task(self.settler.run())

    async def submit(self, outcomes: int) -> None:
        """Submit so many successes, and let the settler do what it does at once."""
        for _ in range(outcomes):
            self.settler.submit(an_attempt(), Succeeded())
        await turns()


@pytest.fixture
async def gated() -> AsyncIterator[Gated]:
    """A settler whose store answers when it is told to; given up afterwards."""
    gated = Gated()
    yield gated
    gated.settler.give_up()
    await asyncio.wait_for(gated.running, WAIT)


async def test_many_that_wait_are_written_beside_a_batch_whose_answer_is_not_there_yet_and_few_are_not(gated: Gated) -> None:
    store, settler = gated.store, gated.settler
    await gated.submit(1)
    await gated.submit(WORTH_ANOTHER - 1)
    assert store.begun == [1]
    await gated.submit(1)
    assert store.begun == [1, WORTH_ANOTHER]
    await gated.submit(WORTH_ANOTHER)
    assert store.begun == [1, WORTH_ANOTHER], "a third at once"
    store.answer(1)
    await turns()
    assert store.begun == [1, WORTH_ANOTHER, WORTH_ANOTHER]
    store.answer(0)
    store.answer(2)
    await asyncio.wait_for(settler.stop(WAIT), WAIT)
    await asyncio.wait_for(gated.running, WAIT)
    assert len(gated.confirmed) == 1 + 2 * WORTH_ANOTHER


async def test_it_is_not_done_while_one_of_two_batches_is_unanswered(gated: Gated) -> None:
    store, settler = gated.store, gated.settler
    await gated.submit(1)
    await gated.submit(WORTH_ANOTHER)
    store.answer(1)
    stopping = asyncio.create_task(settler.stop(WAIT))
    await turns()
    assert not stopping.done()
    assert not gated.running.done()
    store.answer(0)
    await asyncio.wait_for(asyncio.gather(stopping, gated.running), WAIT)


async def test_all_that_is_being_written_is_given_up_at_once(gated: Gated) -> None:
    settler = gated.settler
    await gated.submit(WORTH_ANOTHER)
    await gated.submit(WORTH_ANOTHER)
    settler.give_up()
    await asyncio.wait_for(gated.running, WAIT)
    assert len(gated.confirmed) == 2 * WORTH_ANOTHER


async def test_what_waits_when_all_is_given_up_is_not_sent_any_more(gated: Gated) -> None:
    store, settler = gated.store, gated.settler
    await gated.submit(1)
    settler.submit(an_attempt(), Succeeded())
    settler.give_up()
    await asyncio.wait_for(gated.running, WAIT)
    assert store.begun == [1], "the second would wait for a store that does not answer"
    assert len(gated.confirmed) == 2


async def test_a_batch_that_somebody_else_breaks_off_is_written_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler_module, "AGAIN", 0.0)
    broken = False

    def breaks(_: Sequence[Settlement]) -> None:
        nonlocal broken
        if not broken:
            broken = True
            raise asyncio.CancelledError

    desk.store.instead = breaks
    desk.submit(an_attempt(), Succeeded("1"))
    await desk.flush()
    assert broken
    assert [len(batch) for batch in desk.store.batches] == [1]
