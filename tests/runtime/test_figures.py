"""What attempts came to is added up by who ran them, and written now and then: never twice."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast import Cancel, Fatal, Job, JobCanceled, JobFailed, Retry, StoreUnavailable
from holdfast.core.figures import BUCKETS, Figure, bucket
from holdfast.core.outcome import CANCELED, Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.runtime.figures import Figures, Measurer
from holdfast.runtime.housekeeping import Pruner, Reaper
from holdfast.store.port import Grain, Pruned, Reaped, Retention, Settled
from tests.runtime.parts import a_base, an_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast import Holdfast

WAIT = 20.0


class Book:
    """A store that writes figures down, or fails, or reaps what a test says."""

    def __init__(self) -> None:
        self.written: list[Sequence[Figure]] = []
        self.fails = False
        self.lapsed: list[Reaped] = []
        self.pruned: list[int] = []

    async def measure(self, figures: Sequence[Figure]) -> None:
        if self.fails:
            raise StoreUnavailable("db", 1.0, "gone")
        self.written.append(figures)

    async def reap(self, limit: int, *, tasks: frozenset[str], up_for: float | None) -> list[Reaped]:
        return self.lapsed

    async def prune(self, retention: Retention, *, limit: int, after: UUID | None) -> Pruned:
        self.pruned.append(limit)
        return Pruned(0)


@pytest.fixture
def book() -> Book:
    return Book()


def at(number: int) -> tuple[int, ...]:
    return tuple(int(place == number) for place in range(BUCKETS))


def test_an_attempt_has_waited_since_it_was_ready_and_ran_since_its_claim() -> None:
    figures = Figures()
    attempt = an_attempt()
    created = attempt.claimed.claimed_at - timedelta(seconds=40)
    first = an_attempt(created_at=created, claimed_at=attempt.claimed.claimed_at)
    again = an_attempt(created_at=created, claimed_at=first.claimed.claimed_at, ready_at=created + timedelta(seconds=37))

    figures.succeeded([first], first.claimed_at + 0.2)
    (waited_long,) = figures.take()
    figures.succeeded([again], again.claimed_at + 7.0)
    (waited_short,) = figures.take()

    assert (waited_long.waited, waited_long.waits) == (40.0, at(bucket(40.0)))
    assert (round(waited_long.ran, 6), waited_long.runs) == (0.2, at(bucket(0.2)))
    assert (waited_short.waited, waited_short.waits, waited_short.runs) == (3.0, at(bucket(3.0)), at(bucket(7.0)))
    assert figures.take() == []


def test_attempts_of_one_task_that_ended_alike_are_one_figure() -> None:
    figures = Figures()
    attempts = [an_attempt(task=task, queue="q") for task in ("a", "b", "a", "a")]
    figures.succeeded(attempts, attempts[-1].claimed_at)
    failed = Write(Event.RETRY, 1, error=Error("BOOM"))
    for attempt in attempts[:2]:
        figures.ended(attempt, failed, Settled.APPLIED, attempt.claimed_at)
    figures.ended(attempts[0], failed, Settled.CANCELED, attempts[0].claimed_at)

    shown = {(one.task, one.event, one.code): one.count for one in figures.take()}

    assert shown == {
        ("a", Event.SUCCEED, ""): 3,
        ("b", Event.SUCCEED, ""): 1,
        ("a", Event.RETRY, "BOOM"): 1,
        ("b", Event.RETRY, "BOOM"): 1,
        ("a", Event.STOP, CANCELED): 1,
    }


def test_a_clock_that_was_set_back_makes_no_wait_negative() -> None:
    figures = Figures()
    attempt = an_attempt()
    early = an_attempt(created_at=attempt.claimed.claimed_at + timedelta(seconds=9), claimed_at=attempt.claimed.claimed_at)
    figures.succeeded([early], early.claimed_at)
    figures.ended(early, Write(Event.RETRY, 1, error=Error("BOOM")), Settled.LATE, early.claimed_at)

    assert [(one.waited, one.waits) for one in figures.take()] == [(0.0, at(0))] * 2


async def test_figures_are_written_once_and_nothing_where_there_are_none(book: Book) -> None:
    base = a_base(book)
    measurer = Measurer(base)
    await measurer.tick()
    attempt = an_attempt()
    base.figures.succeeded([attempt], attempt.claimed_at)
    await measurer.tick()
    await measurer.tick()

    assert [[figure.count for figure in batch] for batch in book.written] == [[1]]


async def test_figures_whose_writing_had_no_answer_are_not_written_again(book: Book) -> None:
    base = a_base(book)
    measurer, attempt = Measurer(base), an_attempt()
    base.figures.succeeded([attempt], attempt.claimed_at)
    book.fails = True
    with pytest.raises(StoreUnavailable):
        await measurer.tick()
    book.fails = False
    await measurer.tick()

    assert book.written == []


async def test_figures_wait_while_the_store_is_known_to_be_away(book: Book) -> None:
    base = a_base(book)
    measurer, attempt = Measurer(base), an_attempt()
    base.outage.failed(StoreUnavailable("db", 1.0, "gone"))
    base.figures.succeeded([attempt], attempt.claimed_at)
    book.fails = True
    await measurer.tick()
    book.fails = False
    base.outage.succeeded()
    await measurer.tick()

    assert [[figure.count for figure in batch] for batch in book.written] == [[1]]


async def test_what_a_worker_reaps_counts_with_it_and_has_no_times(book: Book) -> None:
    base = a_base(book)
    write = Write(Event.EXPIRE, 1, error=Error("LEASE_EXPIRED"))
    book.lapsed = [Reaped(uuid4(), "note", "mail", 1, None, write)] * 2

    await Reaper(base, frozenset()).tick()

    assert base.figures.take() == [Figure(queue="mail", task="note", event=Event.EXPIRE, code="LEASE_EXPIRED", count=2)]


async def test_figures_are_pruned_where_all_jobs_are_kept_for_ever(book: Book) -> None:
    assert await Pruner(a_base(book), Retention()).tick() is None
    await Pruner(a_base(book), Retention(failed=1.0)).tick()

    assert book.pruned == [0, 1000]


async def test_a_worker_leaves_the_figures_of_all_its_attempts(app: Holdfast) -> None:
    @app.task(name="good", queue="q")
    async def good() -> None: ...

    @app.task(name="bad", retry=Retry(max_attempts=2, initial=0.0), queue="q")
    async def bad() -> None:
        raise ValueError("no")

    @app.task(name="worst")
    async def worst() -> None:
        raise Fatal("never", code="NEVER")

    @app.task(name="off")
    async def off() -> None:
        raise Cancel("enough")

    @app.task(name="own")
    async def own(*, job: Job) -> None:
        async with job.transaction() as transaction:
            transaction.complete(None)

    handles = [await good.enqueue() for _ in range(3)]
    handles += [await task.enqueue() for task in (bad, worst, off, own)]
    async with app.worker(concurrency=4):
        for handle in handles:
            with suppress(JobFailed, JobCanceled):
                await handle.result(timeout=WAIT)

    views = await app.client().store.figures(Grain.ALL)

    shown = {(one.figure.queue, one.figure.task, one.figure.event, one.figure.code): one.figure for one in views}
    counts = {place: figure.count for place, figure in shown.items()}
    assert counts == {
        ("q", "good", Event.SUCCEED, ""): 3,
        ("q", "bad", Event.RETRY, "ValueError"): 1,
        ("q", "bad", Event.FAIL, "RETRIES_EXHAUSTED"): 1,
        ("default", "worst", Event.FAIL, "NEVER"): 1,
        ("default", "off", Event.STOP, CANCELED): 1,
        ("default", "own", Event.SUCCEED, ""): 1,
    }
    for figure in shown.values():
        assert (sum(figure.waits), sum(figure.runs)) == (figure.count, figure.count)
        assert 0 < figure.ran < WAIT * figure.count
