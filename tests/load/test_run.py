"""A load from beginning to end, on a real store with real workers; and how honestly it tells of its rate."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from uuid import uuid4
from xml.etree import ElementTree as ET

import msgspec
import pytest

from holdfast import State
from holdfast.charts import Line, Panel, panels, short
from holdfast.cli.loadview import print_report
from holdfast.connect import connect
from holdfast.core.states import TERMINAL
from holdfast.finding import jobs_where, matching
from holdfast.load import report as reporting
from holdfast.load.arrivals import Pace, Pattern
from holdfast.load.behaviour import Outcome, behave, kind_of
from holdfast.load.catalog import parse
from holdfast.load.chart import draw
from holdfast.load.driver import Driven, drive
from holdfast.load.kinds import build_app
from holdfast.load.report import Scaling, Seen, Spread, Story, spread, timeline
from holdfast.load.report import report as report_of
from holdfast.load.runner import Look, Plan, run
from holdfast.store.port import Action, JobFilter, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from holdfast import Call, Holdfast
    from holdfast.store.port import JobView, Store

CATALOG = parse("""
[kinds.quick]
duration = "1ms"
weight = 3
[kinds.flaky]
duration = { median = "3ms", p99 = "20ms" }
outcomes = { success = 2, fail = 2, cancel = 1 }
attempts = 2
rest = "10ms"
steps = 2
[kinds.busy]
duration = { from = "5ms", to = "20ms" }
outcomes = { success = 1, fail = 1 }
retryable = false
cpu = 0.5
memory = "100KB"
queue = "media"
""")
SEED = 5
STEADY = Pace(pattern=Pattern.STEADY, rate=1.0, seconds=1.0)
ENDS = {Outcome.SUCCESS: State.SUCCEEDED, Outcome.FAIL: State.FAILED, Outcome.CANCEL: State.CANCELED}


class Watching:
    """Keeps every look."""

    def __init__(self) -> None:
        self.looks: list[Look] = []

    def see(self, look: Look) -> None:
        self.looks.append(look)


def plan(url: str, **changes: object) -> Plan:
    given = {
        "catalog": CATALOG,
        "pace": Pace(pattern=Pattern.STEADY, rate=500, seconds=0.2),
        "seed": SEED,
        "tag": "load:test",
        "url": url,
        "workers": 2,
        "concurrency": 10,
        "all_of_them": True,
        "drain": 60.0,
    }
    return Plan(**(given | changes))  # type: ignore[arg-type]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = connect(url)
    await store.open()
    yield store
    await store.close()


async def jobs_of(store: Store) -> list[JobView]:
    return [job async for job in matching(jobs_where(store, JobFilter(tag="load:test")), limit=None)]


async def test_the_report_of_a_load_is_what_the_store_says(url: str, store: Store) -> None:
    audience = Watching()
    report, seen = await run(plan(url), store, asyncio.Event(), audience)
    jobs = await jobs_of(store)
    attempts = {job.id: await store.attempts(job.id) for job in jobs}

    assert (report.planned, report.enqueued, report.ended, report.unfinished, report.missing) == (100, 100, 100, 0, 0)
    assert len(jobs) == 100
    assert Counter(job.task for job in jobs) == {f"load.{name}": kind.enqueued for name, kind in report.kinds.items()}
    for name, kind in report.kinds.items():
        own = [job for job in jobs if job.task == f"load.{name}"]
        assert (kind.succeeded, kind.failed, kind.canceled) == tuple(
            sum(job.state is state for job in own) for state in (State.SUCCEEDED, State.FAILED, State.CANCELED)
        )
        assert kind.attempts == sum(len(attempts[job.id]) for job in own) == sum(job.attempt for job in own)
    waits = sorted((attempts[job.id][0].claimed_at - job.created_at).total_seconds() for job in jobs)
    runs = sorted(
        (one.ended_at - one.claimed_at).total_seconds() for job in jobs for one in attempts[job.id] if one.ended_at is not None
    )
    assert report.wait == Spread(100, waits[49], waits[89], waits[98], waits[-1])
    assert (report.run.count, report.run.longest) == (len(runs), runs[-1])
    ends = [job.finished_at for job in jobs if job.finished_at is not None]
    assert report.throughput == 100 / (max(ends) - min(job.created_at for job in jobs)).total_seconds()
    assert (report.most_workers, seen.most_workers) == (2, 2)
    assert (audience.looks[-1].ended, audience.looks[-1].enqueued) == (100, 100)
    assert report.timeline[-1].waiting == report.timeline[-1].running == 0


async def test_every_job_ends_as_its_kind_and_input_say(url: str, store: Store) -> None:
    await run(plan(url), store, asyncio.Event(), Watching())
    jobs = await jobs_of(store)

    def told(job: JobView) -> tuple[str, State, str, int]:
        said = job.error.message if job.error is not None else (job.result or "").strip('"')
        return (job.task, job.state, said.rpartition("SIMULATED: ")[2], job.attempt)  # the last failure, if there were several

    expected = []
    for number in range(100):
        kind = kind_of(CATALOG, number, SEED)
        does = behave(kind, str(number), SEED)
        attempts = kind.attempts if does.outcome is Outcome.FAIL and kind.retryable else 1
        expected.append((kind.task, ENDS[does.outcome], does.message, attempts))
    assert {outcome for _, outcome, _, _ in expected} == TERMINAL
    assert sorted(map(told, jobs), key=str) == sorted(expected, key=str)


async def test_a_load_that_is_stopped_still_tells_what_it_came_to(url: str, store: Store) -> None:
    stop = asyncio.Event()

    class Impatient(Watching):
        def see(self, look: Look) -> None:
            super().see(look)
            if look.enqueued:
                stop.set()

    report, _ = await run(
        plan(url, workers=0, pace=Pace(pattern=Pattern.STEADY, rate=50, seconds=3600)), store, stop, Impatient()
    )
    assert report.interrupted
    assert 0 < report.enqueued == report.unfinished < report.planned
    assert (report.ended, report.throughput, report.wait) == (0, None, Spread())


async def test_jobs_that_nobody_runs_are_waited_for_no_longer_than_said(url: str, store: Store) -> None:
    report, _ = await run(plan(url, workers=0, drain=0.0), store, asyncio.Event(), Watching())
    assert (report.enqueued, report.unfinished, report.interrupted) == (100, 100, False)


async def test_jobs_that_are_gone_are_told_of(url: str, store: Store) -> None:
    _, seen = await run(plan(url, workers=0, drain=0.0), store, asyncio.Event(), Watching())
    ids = [job.id for job in await jobs_of(store)]
    await store.delete(ids[:30])
    told = await report_of(store, Driven(ids), STEADY, seen, seed=1, tag="load:test")
    assert (told.enqueued, told.unfinished, told.missing) == (100, 70, 30)


@pytest.mark.parametrize("page", [2, 3, 500])
async def test_the_decisions_of_managers_since_it_began_are_part_of_the_report(
    store: Store, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(reporting, "PAGE", page)
    begun = await store.now()
    await store.note(Action.SCALE, ["1 workers"], by="manager m", detail="begins with 1")
    await store.rewind(10.0)
    await store.note(Action.DRAIN, ["a worker"], by="ann", detail="no decision of a manager")
    for number in (2, 4, 8):
        await store.note(Action.SCALE, [f"{number} workers"], by="manager m", detail=f"up to {number}")
    told = await report_of(store, Driven(), STEADY, Seen(begun), seed=1, tag="x")
    assert [(line.actor, line.detail) for line in told.scaling] == [("manager m", f"up to {number}") for number in (2, 4, 8)]
    assert all(line.at >= begun for line in told.scaling)


async def decided(store: Store, *lines: tuple[str, int]) -> None:
    """Have managers write what they decided."""
    for name, number in lines:
        await store.note(Action.SCALE, [f"{number} workers"], by=f"manager {name}", detail=f"{name} at {number}")


async def test_a_line_that_says_why_the_number_stays_is_no_decision(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    await decided(store, ("m", 2), ("n", 5))
    await store.rewind(10.0)
    begun = await store.now()
    await decided(store, ("m", 4), ("n", 5), ("m", 4), ("m", 8), ("n", 3), ("begins", 2))
    told = await report_of(store, Driven(), STEADY, Seen(begun), seed=1, tag="x")
    assert [(line.workers, line.change) for line in told.scaling] == [(4, 2), (5, 0), (4, 0), (8, 4), (3, -2), (2, 0)]
    print_report(told)
    printed = capsys.readouterr().out
    assert "scaling\t3 decision(s): 2 for more workers, 1 for fewer\n" in printed
    assert [line.split("\t")[0] for line in printed.splitlines() if "\tmanager " in line] == [
        *("scale", "stay", "stay", "scale", "scale", "stay")
    ]


async def test_a_manager_is_none_of_the_workers_of_a_load(url: str, store: Store) -> None:
    await store.register(Worker(id=uuid4(), name="manager m", slots=0))
    audience = Watching()
    report, seen = await run(plan(url), store, asyncio.Event(), audience)
    assert (report.most_workers, max(count for _, count in seen.workers)) == (2, 2)
    assert max(look.workers for look in audience.looks) == 2


async def test_another_load_before_it_is_not_counted(url: str, store: Store) -> None:
    await run(plan(url, tag="load:before"), store, asyncio.Event(), Watching())
    audience = Watching()
    report, _ = await run(plan(url), store, asyncio.Event(), audience)
    assert (report.enqueued, report.ended, audience.looks[-1].ended) == (100, 100, 100)


# --- the rate ------------------------------------------------------------------------------------------------------------


class Slow:
    """An app whose every enqueue takes so long, on a clock that moves by itself."""

    def __init__(self, seconds: float) -> None:
        self.tasks = build_app(CATALOG, "memory://").tasks
        self.seconds = seconds
        self.now = 100.0
        self.enqueued: list[tuple[float, int]] = []

    async def enqueue_many(self, calls: Sequence[Call[object]]) -> list[SimpleNamespace]:
        self.enqueued.append((self.now - 100.0, len(calls)))
        self.now += self.seconds
        return [SimpleNamespace(id=call.job.id) for call in calls]

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    async def drive(self, pace: Pace, *, all_of_them: bool = False) -> Driven:
        driven = Driven()
        app = cast("Holdfast", self)
        options = {"seed": 1, "tag": "load:x", "all_of_them": all_of_them, "clock": self.clock, "tick": 0.0}
        await drive(app, CATALOG, pace, driven, asyncio.Event(), **options)  # type: ignore[arg-type]
        return driven


@pytest.mark.parametrize("pattern", Pattern)
async def test_a_store_that_keeps_up_gets_the_rate_that_was_asked_for_and_nothing_early(pattern: Pattern) -> None:
    app, pace = Slow(0.0), Pace(pattern=pattern, rate=100.0, seconds=5.0)
    driven = await app.drive(pace)
    assert len(driven.ids) == 500
    assert driven.rate == pytest.approx(100.0, rel=0.01)
    count = 0
    for at, jobs in app.enqueued:
        count += jobs
        assert count <= pace.due(at)


async def test_a_store_that_cannot_keep_up_gets_what_it_takes_and_the_report_says_so() -> None:
    driven = await Slow(1.0).drive(Pace(pattern=Pattern.STEADY, rate=5000.0, seconds=10.0))
    assert len(driven.ids) == pytest.approx(5000, abs=1000)  # batches of 500, one a second
    assert driven.rate == pytest.approx(500.0, rel=0.1)
    assert driven.most_behind > 40_000


async def test_when_the_number_of_jobs_counts_the_time_does_not() -> None:
    driven = await Slow(1.0).drive(Pace(pattern=Pattern.STEADY, rate=1000.0, seconds=3.0), all_of_them=True)
    assert len(driven.ids) == 3000
    assert driven.rate == pytest.approx(3000 / 7, rel=0.1)  # the first batch is a small one


# --- figures -------------------------------------------------------------------------------------------------------------


def test_percentiles_are_by_nearest_rank() -> None:
    assert spread([]) == Spread()
    assert spread([1.0, 2.0, 3.0]).p50 == 2.0
    assert spread([3.0]) == Spread(1, 3.0, 3.0, 3.0, 3.0)
    assert spread([float(number) for number in range(200, 0, -1)]) == Spread(200, 100.0, 180.0, 198.0, 200.0)


def story(created: float, *attempts: tuple[float, float | None], ended: bool = True) -> Story:
    def at(seconds: float) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    spans = [(at(begin), None if end is None else at(end)) for begin, end in attempts]
    state = State.SUCCEEDED if ended else State.RUNNING
    return Story("load.a", state, at(created), spans, spans[-1][1] if ended and spans else None)


def test_the_timeline_tells_what_waited_and_ran() -> None:
    stories = [
        story(0.0, (0.05, 0.15)),
        story(0.0, (0.15, 0.25), (0.35, 0.45)),
        story(0.1, (0.32, None), ended=False),
        story(0.2, ended=False),
    ]
    moments = timeline(stories)
    assert [moment.at for moment in moments] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [(moment.waiting, moment.running) for moment in moments] == [(1, 1), (1, 1), (3, 0), (1, 2), (1, 1)]
    assert [moment.enqueued for moment in moments] == pytest.approx([20.0, 10.0, 10.0, 0.0, 0.0])
    assert [moment.ended for moment in moments] == pytest.approx([0.0, 10.0, 0.0, 0.0, 10.0])
    assert timeline([]) == []


def test_a_long_load_has_few_enough_points_to_draw() -> None:
    assert len(timeline([story(float(second), (second + 0.5, second + 0.6)) for second in range(1000)])) <= 121


async def test_the_chart_is_a_picture_that_says_in_words_what_it_shows(url: str, store: Store) -> None:
    report, seen = await run(plan(url), store, asyncio.Event(), Watching())
    drawn = draw(report, seen)
    picture = ET.fromstring(drawn)
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    for word in ("enqueued", "ended", "waiting", "running", "workers", "100 jobs, steady"):
        assert word in drawn
    assert "a manager wants" not in drawn, "nobody decided anything"
    empty = msgspec.structs.replace(report, timeline=[])
    assert ET.fromstring(draw(empty, Seen(seen.begun))) is not None


async def test_the_chart_marks_when_a_manager_decided_for_more_workers_or_fewer(store: Store) -> None:
    seen = Seen(await store.now(), 4, [(0.0, 2), (20.0, 4), (40.0, 3)])
    told = await report_of(store, Driven(), STEADY, seen, seed=1, tag="x")
    lines = [
        Scaling(at=seen.begun + timedelta(seconds=at), actor="manager m", workers=4, change=change, detail="")
        for at, change in ((10.0, 1), (15.0, 0), (18.0, 1), (30.0, -1))
    ]
    drawn = draw(msgspec.structs.replace(told, scaling=lines), seen)
    assert "a manager wants more: at 10, 18; a manager wants fewer: at 30" in drawn, "in words"
    up, down = (re.findall(rf'<path d="M[^"]*Z" style="fill: var\(--line-{number}\)"/>', drawn) for number in (2, 3))
    assert (len(up), len(down)) == (1 + 2, 1 + 1), "one in the legend, and one for each decision"


def test_an_axis_of_whole_numbers_has_no_others() -> None:
    panel = Panel("workers", (Line("workers", ((0.0, 1.0), (9.0, 2.0), (10.0, 1.0)), stepped=True),), whole=True)
    drawn = panels("t", "s", [panel], x_label="seconds", write=short)
    assert re.findall(r'text-anchor="end">([^<]*)<', drawn) == ["0", "1", "2"]
    assert re.search(r'd="M[\d.]+ [\d.]+H[\d.]+V[\d.]+H[\d.]+V[\d.]+"', drawn), "a number holds until the next"
