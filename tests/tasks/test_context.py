"""What a running job passes on: progress that is held back, and the parts it remembers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast.core.abort import AbortReason
from holdfast.core.job import Policy
from holdfast.core.lease import Claimed
from holdfast.errors import Aborted, BadJob
from holdfast.tasks.abort import Abort
from holdfast.tasks.channel import Stored
from holdfast.tasks.context import Job

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast.core.states import Event
    from holdfast.store.port import Part
    from holdfast.tasks.channel import Transactor

NOW = datetime.now(UTC)


class Book:
    """A channel that writes down what it is told, by a clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.written: list[tuple[float, str, str]] = []

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def transactor(self) -> Transactor:
        raise NotImplementedError

    def progress(self, percent: float, step: str, message: str) -> None:
        self.written.append((percent, step, message))

    def stage(self, name: str, event: Event) -> None: ...

    def log(self, level: str, logger: str, message: str, fields: str) -> None: ...

    def checkpoint(self, part: Part) -> Awaitable[None]:
        return Stored()


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def job(book: Book) -> Job:
    claimed = Claimed(uuid4(), uuid4(), 1, 0, "t", "q", 5, "{}", Policy(), 60.0, NOW, NOW, NOW)
    return Job(claimed, book, Abort())


def test_progress_is_passed_on_when_it_moved_by_a_percent_and_not_for_less(job: Job, book: Book) -> None:
    for step in range(1001):
        job.progress(step / 100)
    assert len(book.written) <= 12
    assert book.written[-1][0] == 10.0


def test_progress_that_barely_moves_is_passed_on_after_half_a_second(job: Job, book: Book) -> None:
    job.progress(10)
    job.progress(10.1)
    assert len(book.written) == 1
    book.seconds = 0.6
    job.progress(10.2)
    assert [percent for percent, _, _ in book.written] == [10, 10.2]


def test_the_last_progress_is_not_lost_when_the_function_ends(job: Job, book: Book) -> None:
    job.progress(10, "encoding")
    job.progress(10.4, "encoding")
    job.close()
    job.close()
    assert book.written == [(10, "", "encoding"), (10.4, "", "encoding")]


def test_another_message_or_step_counts_as_moved(job: Job, book: Book) -> None:
    job.progress(10, "encoding")
    job.progress(10, "uploading")
    job.progress(10, "uploading", step="upload")
    assert [(step, message) for _, step, message in book.written] == [
        ("", "encoding"),
        ("", "uploading"),
        ("upload", "uploading"),
    ]


def test_an_abort_keeps_its_first_reason_and_can_be_raised(job: Job) -> None:
    job.abort.check()
    assert job.abort.set(AbortReason.TIMEOUT)
    assert not job.abort.set(AbortReason.CANCELED)
    with pytest.raises(Aborted, match="timeout"):
        job.abort.check()
    assert job.abort.wait(0)


def test_parts_are_remembered_with_their_data(job: Job) -> None:
    job.checkpoint("a", data={"size": 2})
    job.checkpoint("b", done=1, total=3)
    assert (job.done("a"), job.done("b"), job.done("c")) == (True, False, False)
    assert (job.data("a"), job.data("b"), job.data("c", 7)) == ({"size": 2}, None, 7)
    with pytest.raises(BadJob, match="none of pending"):
        job.checkpoint("a", "finished")
    with pytest.raises(BadJob, match="JSON"):
        job.checkpoint("a", data=object())
