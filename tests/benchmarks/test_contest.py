"""A contest of programs that only pretend: what it makes of answers, failures, and of those who never answer."""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import works
from benchmarks.contest import Contest, Contestant, Plan
from benchmarks.programs import ProgramError, started, while_running
from benchmarks.results import Machine, Report
from benchmarks.works import WORKS
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOL = Path(works.__file__).parent / "contestants" / "protocol.py"

PRETENDER = """
import json, os, sys, time

def say(**facts):
    print(json.dumps(facts), flush=True)

def option(name):
    return sys.argv[sys.argv.index(f"--{name}") + 1]

command = sys.argv[1]
if command == "work":
    say(ready=True)
    sys.stdin.read()
    say(latencies=[9.0] * 50 + [float(number) for number in range(1, 501)])
elif command == "watch":
    say(jobs=int(option("jobs")) - int(option("skip")), seconds=2.0)
else:
    print("not an answer")
    say(jobs=1000, seconds=0.5)
"""

BROKEN = "import sys; sys.exit('the driver is missing')"

HANGS = """
import os, sys, time
from pathlib import Path
Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
print("waiting for a lock", file=sys.stderr, flush=True)
time.sleep(600)
"""

DIES = PRETENDER.replace("sys.stdin.read()", 'sys.exit("out of connections")').replace(
    'say(jobs=int(option("jobs")) - int(option("skip")), seconds=2.0)', "time.sleep(600)"
)


class Place:
    url = "nowhere://"

    def calm(self) -> None: ...

    def usage(self) -> dict[str, float]:
        return {}


class Nowhere:
    """Stores that are none: the pretenders need none."""

    def __init__(self) -> None:
        self.open = 0

    @contextmanager
    def fresh(self, store: str) -> Iterator[Place]:
        self.open += 1
        try:
            yield Place()
        finally:
            self.open -= 1


@pytest.fixture
def pretender(tmp_path: Path) -> Contestants:
    return Contestants(tmp_path)


class Contestants:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pid_file = folder / "pid"

    def __call__(self, name: str, text: str = PRETENDER, *, jobs: int = 20_000) -> Contestant:
        program = self._folder / f"{name}.py"
        program.write_text(text)
        environment = {"PID_FILE": str(self.pid_file)}
        return Contestant(name, "nowhere", (sys.executable, str(program)), jobs, environment=environment)

    async def has_begun(self) -> bool:
        return self.pid_file.exists() and bool(self.pid_file.read_text())


class Refuses(Nowhere):
    """Stores of which the one of that number cannot be emptied, and the one after it is not let go of."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._given = 0
        self._number = number

    @contextmanager
    def fresh(self, store: str) -> Iterator[Place]:
        self._given += 1
        if self._given == self._number:
            raise RuntimeError("FLUSHALL: out of memory")
        with super().fresh(store) as place:
            yield place
        if self._given == self._number + 1:
            raise TimeoutError("no answer to DROP DATABASE")


async def hold(
    *contestants: Contestant,
    rounds: int = 1,
    limit: float = 60.0,
    wanted: tuple[str, ...] = ("drain1",),
    stores: Nowhere | None = None,
) -> tuple[Report, list[Report]]:
    plan = Plan(contestants, [WORKS[name] for name in wanted], rounds, seed=1, limit=limit)
    saved: list[Report] = []
    told: list[str] = []
    stores = stores or Nowhere()
    empty = Report("peers", Machine(2, 1, "", "", ""), "", "2026-01-31")
    report = await Contest(plan, stores, empty, saved=saved.append, tell=told.append).run()
    assert stores.open == 0
    assert len(told) == 1 + len(saved)
    return report, saved


async def test_jobs_per_second_are_those_that_counted_over_their_time(pretender: Contestants) -> None:
    report, _ = await hold(pretender("one"))
    assert [(one.work, one.value) for one in report.readings] == [("drain1", 7_500.0), ("bulk", 2_000.0)]


async def test_latency_is_the_median_without_the_first_jobs(pretender: Contestants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "LATENCY_REST", 0.0)
    report, _ = await hold(pretender("one"), wanted=("latency",))
    [reading] = report.readings
    assert reading.value == 250.5
    assert (reading.extra["max"], reading.extra["jobs"], round(float(reading.extra["p99"]))) == (500.0, 500, 495)


async def test_the_busy_share_is_of_all_slots(pretender: Contestants) -> None:
    report, _ = await hold(pretender("one"), wanted=("sleep50", "cpu10"))
    busy = {one.work: (one.value, one.extra.get("busy")) for one in report.readings}
    assert busy == {"sleep50": (7_500.0, 0.75), "cpu10": (750.0, None)}, "one that only pretends has noted nothing"
    assert [one.extra["cores"] for one in report.readings if one.work == "cpu10"] == [750 * 0.01 / 2]


async def test_jobs_that_did_not_count_are_told(pretender: Contestants) -> None:
    report, _ = await hold(pretender("fast", jobs=100_000), pretender("slow", jobs=8_000), wanted=("drain1", "sleep50"))
    told = {(one.contestant, one.work): (one.extra["jobs"], one.extra.get("skip")) for one in report.readings}
    del told["fast", "bulk"], told["slow", "bulk"]
    assert told == {
        ("fast", "drain1"): (100_000, 5_000),
        ("slow", "drain1"): (8_000, 2_000),
        ("fast", "sleep50"): (50_000, 5_000),  # five seconds of 500 slots
        ("slow", "sleep50"): (8_000, 2_000),
    }


async def test_how_many_computing_jobs_are_taken_ahead_is_the_contestants_choice(
    pretender: Contestants, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    noting = PRETENDER.replace("say(ready=True)", f"open({str(asked)!r}, 'a').write(option('slots') + ' '); say(ready=True)")
    await hold(pretender("one", noting), wanted=("cpu10",))
    assert asked.read_text().split() == ["0", "0"], "two worker processes, none told how many"


async def test_jobs_that_never_started_are_the_slowest(pretender: Contestants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "LATENCY_REST", 0.0)
    few = PRETENDER.replace("range(1, 501)", "range(1, 491)")
    report, _ = await hold(pretender("one", few), wanted=("latency",))
    [reading] = report.readings
    assert (reading.value, reading.extra["jobs"], reading.extra["missing"]) == (250.5, 500, 10)
    assert (reading.extra["p99"], reading.extra["max"]) == (490.0, 490.0)
    monkeypatch.setattr(works, "LATENCY_REST", 0.6)
    report, _ = await hold(pretender("one", few), wanted=("latency",))
    assert report.readings[0].extra["p99"] == 600.0, "what had not started after that time took longer"


async def test_with_many_jobs_that_never_started_there_is_no_latency(
    pretender: Contestants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "LATENCY_REST", 0.0)
    report, _ = await hold(pretender("one", PRETENDER.replace("range(1, 501)", "range(1, 440)")), wanted=("latency",))
    assert report.readings == []
    assert "had started only 439 of 500 jobs in time" in report.failures[0].reason


def test_how_busy_slots_were_is_seen_from_when_to_when_jobs_ran(tmp_path: Path) -> None:
    # two processes, jobs of 10 with gaps of 2 in one of them. The first quarter does not count, nor what follows the last start
    (tmp_path / "1").write_text("".join(f"{start} {start + 10}\n" for start in range(0, 60, 10)))
    (tmp_path / "2").write_text("".join(f"{start} {start + 10}\n" for start in range(0, 60, 12)))
    spans = sorted([*range(0, 60, 10), *range(0, 60, 12)])
    first, last = spans[len(spans) // 4], spans[-1]
    ran = (last - first) + sum(max(0, min(start + 10, last) - max(start, first)) for start in range(0, 60, 12))
    assert works.busy_share(tmp_path, 2) == ran / (2 * (last - first))
    assert 0.85 < ran / (2 * (last - first)) < 1.0


def test_jobs_that_noted_nothing_say_nothing_about_slots(tmp_path: Path) -> None:
    assert works.busy_share(tmp_path, 2) is None


async def test_a_contestant_that_fails_is_reported_and_the_rest_goes_on(pretender: Contestants) -> None:
    report, saved = await hold(pretender("one"), pretender("broken", BROKEN), pretender("other"), rounds=3)
    assert sorted(one.contestant for one in report.readings if one.work == "drain1") == ["one"] * 3 + ["other"] * 3
    [failure] = report.failures
    assert (failure.contestant, failure.work) == ("broken", "drain1")
    assert "exit code 1" in failure.reason
    assert "the driver is missing" in failure.reason
    assert len(saved) == 3 + 3 + 2, "saved after every cell; a third try of the broken one is pointless"


async def test_a_server_that_refuses_fails_the_cell_and_the_rest_goes_on(pretender: Contestants) -> None:
    report, saved = await hold(pretender("one"), rounds=4, stores=Refuses(2))
    assert [one.round for one in report.readings if one.work == "drain1"] == [1], "after two failures it is not asked again"
    assert [one.reason for one in report.failures] == [
        "RuntimeError('FLUSHALL: out of memory')",
        "TimeoutError('no answer to DROP DATABASE')",
    ]
    assert len(saved) == 3


async def test_a_worker_that_dies_fails_the_cell_at_once(pretender: Contestants) -> None:
    report, _ = await hold(pretender("dies", DIES))
    [failure] = report.failures
    assert "dies work ended by itself" in failure.reason
    assert "out of connections" in failure.reason


async def test_a_contestant_that_hangs_is_ended_and_says_where_it_was(pretender: Contestants) -> None:
    report, _ = await hold(pretender("hangs", HANGS), limit=4.0)
    [failure] = report.failures
    assert "not finished within 4 s" in failure.reason
    assert "waiting for a lock" in failure.reason
    assert gone(int(pretender.pid_file.read_text()))


async def test_breaking_off_ends_what_runs(pretender: Contestants) -> None:
    running = asyncio.create_task(hold(pretender("hangs", HANGS)))
    await until(pretender.has_begun)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gone(int(pretender.pid_file.read_text()))


async def test_an_answer_without_a_time_is_a_failure_and_no_figure(pretender: Contestants) -> None:
    report, _ = await hold(pretender("quick", PRETENDER.replace("seconds=2.0", "seconds=0.0")))
    assert report.readings == []
    assert "too few to say" in report.failures[0].reason


def test_the_order_differs_between_rounds_and_follows_the_seed(pretender: Contestants) -> None:
    contestants = [pretender(f"number{number}") for number in range(8)]
    plan = Plan(contestants, [WORKS["drain1"], WORKS["single"]], rounds=3, seed=7)
    orders: dict[tuple[int, str], list[str]] = {}
    for number, work, contestant in plan.cells():
        orders.setdefault((number, work.name), []).append(contestant.name)
    assert len({tuple(order) for order in orders.values()}) == 6
    assert all(sorted(order) == [one.name for one in contestants] for order in orders.values())
    assert plan.cells() == Plan(contestants, plan.works, rounds=3, seed=7).cells()
    assert plan.cells() != Plan(contestants, plan.works, rounds=3, seed=8).cells()


def test_counts_are_taken_in_one_round_only_and_on_postgresql_only(pretender: Contestants) -> None:
    plan = Plan([pretender("one")], [WORKS["statements"]], rounds=3, seed=7)
    assert plan.cells() == []
    on_postgres = Contestant("two", "postgres", ("two",), 1000)
    assert len(Plan([on_postgres], plan.works, rounds=3, seed=7).cells()) == 1


async def test_a_program_ends_with_its_block_and_all_that_it_started() -> None:
    code = "import json, subprocess; print(json.dumps({'pid': subprocess.Popen(['sleep', '600']).pid}), flush=True); input()"
    async with started([sys.executable, "-c", code], name="parent") as program:
        child = (await program.answer())["pid"]
    await until(partial(_gone, child))


async def test_waiting_ends_when_a_program_does() -> None:
    async with started([sys.executable, "-c", "raise SystemExit(4)"], name="short") as program:
        with pytest.raises(ProgramError, match="short ended by itself with exit code 4"):
            await while_running([program], asyncio.Event().wait())


def test_the_works_know_what_the_contestants_go_by() -> None:
    protocol = runpy.run_path(str(PROTOCOL))
    for name in ("SLEEP_SECONDS", "BURN_SECONDS", "BUSY_VARIABLE"):
        assert protocol[name] == getattr(works, name)


def gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


async def _gone(pid: int) -> bool:
    return gone(pid)
