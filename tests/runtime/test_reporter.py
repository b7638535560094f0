"""Reports of running jobs: written in batches under their leases, repeated until answered, dropped rather than in the way."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import StaleLease, StoreUnavailable
from holdfast.core.states import Event
from holdfast.runtime import counters as count
from holdfast.runtime.channel import AttemptChannel
from holdfast.runtime.reporter import BATCH, MOST_LINES, Reporter
from holdfast.store.port import Part, PartState, Settled
from tests.api.blocking import in_thread
from tests.runtime.parts import a_base, an_attempt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.core.lease import Lease

WAIT = 20.0
PAGE = Part("page", PartState.COMPLETED)


class Book:
    """A store that writes reports down, or does what a test says instead."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.errors: list[Exception] = []
        self.answer = Settled.APPLIED

    async def _write(self, kind: str, items: Sequence[Any]) -> list[Settled]:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        self.calls.append((kind, list(items)))
        return [self.answer] * len(items)

    async def mark(self, items: Sequence[Any]) -> list[Settled]:
        return await self._write("stage", items)

    async def log(self, items: Sequence[Any]) -> list[Settled]:
        return await self._write("log", items)

    async def progress(self, items: Sequence[Any]) -> list[Settled]:
        return await self._write("progress", items)

    async def checkpoint(self, items: Sequence[Any]) -> list[Settled]:
        return await self._write("checkpoint", items)

    def written(self, kind: str) -> list[Any]:
        return [item for name, items in self.calls if name == kind for item in items]


class Desk:
    """A reporter at work, and which leases it learned to be lost."""

    def __init__(self) -> None:
        self.store = Book()
        self.base = a_base(self.store)
        self.lost: list[Lease] = []
        self.reporter = Reporter(self.base, self.lost.append)
        self.attempt = an_attempt()
        self.channel = AttemptChannel(self.attempt, self.reporter, self.base)

    async def flush(self) -> None:
        await asyncio.wait_for(self.reporter.flush(), WAIT)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """A reporter that runs, and has ended afterwards."""
    desk = Desk()
    running = asyncio.create_task(desk.reporter.run())
    yield desk
    desk.reporter.stop()
    await asyncio.wait_for(running, WAIT)


async def test_reports_of_one_moment_are_written_together_and_only_the_last_progress(desk: Desk) -> None:
    for percent in range(100):
        desk.channel.progress(percent, "render", "")
        desk.channel.log("info", "shop", f"line {percent}", "{}")
    desk.channel.stage("render", Event.STAGE_ENTER)
    await desk.flush()
    assert [(kind, len(items)) for kind, items in desk.store.calls] == [("stage", 1), ("log", 100), ("progress", 1)]
    assert desk.store.written("progress")[0].percent == 99
    assert [line.message for line in desk.store.written("log")] == [f"line {number}" for number in range(100)]
    assert desk.attempt.reported


async def test_many_lines_are_written_in_bounded_batches(desk: Desk) -> None:
    for number in range(BATCH * 2 + 1):
        desk.channel.log("info", "shop", str(number), "{}")
    await desk.flush()
    assert [len(items) for _, items in desk.store.calls] == [BATCH, BATCH, 1]


async def test_lines_beyond_the_bound_are_dropped_with_a_note(desk: Desk) -> None:
    for number in range(MOST_LINES + 5):
        desk.channel.log("info", "shop", str(number), "{}")
    await desk.flush()
    lines = desk.store.written("log")
    assert len(lines) == MOST_LINES
    assert "the rest of this attempt is not kept" in lines[-1].message


async def test_a_report_that_waited_says_how_old_it_is(desk: Desk) -> None:
    desk.store.errors = [StoreUnavailable("db", 0.1, "gone")]
    desk.channel.log("info", "shop", "before the outage", "{}")
    await desk.flush()
    (line,) = desk.store.written("log")
    assert line.age > 0.05, "the rest after the failure"
    assert not desk.base.outage.going_on


async def test_a_checkpoint_is_stored_once_it_was_awaited(desk: Desk) -> None:
    await asyncio.wait_for(asyncio.ensure_future(desk.channel.checkpoint(PAGE)), WAIT)
    assert [checkpoint.part.name for checkpoint in desk.store.written("checkpoint")] == ["page"]


async def test_a_checkpoint_from_a_thread_is_stored_when_it_returns(desk: Desk) -> None:
    def handler() -> list[Any]:
        assert threading.current_thread() is not threading.main_thread()
        desk.channel.checkpoint(PAGE)
        return desk.store.written("checkpoint")

    assert len(await in_thread(handler)) == 1


async def test_a_refused_report_means_that_the_lease_is_lost(desk: Desk) -> None:
    desk.store.answer = Settled.STALE
    desk.channel.progress(1, "", "")
    with pytest.raises(StaleLease, match=f"part 'page' of job {desk.attempt.lease.job_id} was not stored: the lease is lost"):
        await asyncio.wait_for(asyncio.ensure_future(desk.channel.checkpoint(PAGE)), WAIT)
    assert set(desk.lost) == {desk.attempt.lease}
    assert desk.base.counters.snapshot() == {f"{count.STALE}:progress": 1, f"{count.STALE}:checkpoint": 1}


async def test_a_refused_checkpoint_from_a_thread_is_raised_there(desk: Desk) -> None:
    desk.store.answer = Settled.STALE

    def handler() -> None:
        with pytest.raises(StaleLease):
            desk.channel.checkpoint(PAGE)

    await in_thread(handler)


async def test_reports_that_cannot_be_written_are_dropped_and_the_next_are_not(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.store.errors = [ValueError("cannot be encoded")]
    desk.channel.log("info", "shop", "spoiled", "{}")
    await desk.flush()
    desk.channel.log("info", "shop", "fine", "{}")
    await desk.flush()
    assert [line.message for line in desk.store.written("log")] == ["fine"]
    assert "a report (log) cannot be written; it is dropped" in caplog.text
    assert desk.lost == []


async def test_everything_is_written_before_a_reporter_ends() -> None:
    desk = Desk()
    running = asyncio.create_task(desk.reporter.run())
    desk.channel.log("info", "shop", "last words", "{}")
    desk.reporter.stop()
    await asyncio.wait_for(running, WAIT)
    assert [line.message for line in desk.store.written("log")] == ["last words"]


async def test_a_reporter_with_nothing_to_write_ends_at_once() -> None:
    desk = Desk()
    running = asyncio.create_task(desk.reporter.run())
    await asyncio.sleep(0)
    desk.reporter.stop()
    await asyncio.wait_for(running, WAIT)
    assert desk.store.calls == []
