"""What the commands write and where, and with which code they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import __main__ as entry
from benchmarks import bloat, commands, cost, growth, leases, limits, machine, memory
from benchmarks.contest import Contestant
from benchmarks.results import Machine, Reading, Report, Run, load, put_together, runs_of, save
from benchmarks.roster import Roster
from benchmarks.servers import Servers
from benchmarks.targets import Target
from benchmarks.works import Finding, Work
from tests.support import postgres

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from benchmarks.contest import Stage

MACHINE = Machine(cores=2, memory_bytes=0, processor="", kernel="", python="")
MEASURED = ("growth", "bloat", "leases", "memory", "limits", "cost")


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that stands for benchmarks/results/."""
    monkeypatch.setattr(commands, "FOLDER", tmp_path / "results")
    monkeypatch.setenv("HOLDFAST_BENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "results"


# --- whole runs, and others ------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing measured, in no time."""

    class Server:
        def execute(self, _: str) -> list[list[str]]:
            return [["18.0"]]

    async def nothing(*_: Any, **__: Any) -> Any:
        return []

    async def no_run(*_: Any) -> limits.Run:
        return limits.Run(1.0, 2, 50, 0.0)

    async def no_counts(*_: Any) -> cost.Phases:
        return {}

    monkeypatch.setattr(Servers, "postgres", lambda _: Server())
    monkeypatch.setattr(growth, "measure", nothing)
    monkeypatch.setattr(bloat, "measure", lambda *_: [])
    monkeypatch.setattr(leases, "measure_store", lambda *_: [leases.Held(0, 1.0, 0.0, 0.0, 0.0, 0.0)])
    monkeypatch.setattr(limits, "measure", no_run)
    monkeypatch.setattr(Servers, "fresh", lambda *_: nullcontext(SimpleNamespace(url="")))
    monkeypatch.setattr(memory, "measure", lambda *_: ({1_000_000: 50.0}, []))
    monkeypatch.setattr(cost, "PostgresServer", lambda *_, **__: nullcontext(Server()))
    monkeypatch.setattr(cost, "stores", lambda _: nullcontext(dict.fromkeys(cost.STORES)))
    monkeypatch.setattr(cost, "count_store", no_counts)


LESS = [
    ("growth", "--most", "100000"),
    ("growth", "--curve", "backlog", "queues"),
    ("growth", "--passes", "2"),
    ("growth", "--claims", "20"),
    ("bloat", "--jobs", "100000"),
    ("bloat", "--form", "worker"),
    ("bloat", "--rounds", "1"),
    ("leases", "--leases", "20000"),
    ("leases", "--store", "postgres"),
    ("leases", "--seconds", "20"),
    ("limits", "--jobs", "2000"),
    ("limits", "--ms", "100"),
    ("memory", "--jobs", "200000"),
    ("memory", "--store", "sqlite"),
    ("cost", "--store", "memory"),
    ("cost", "--idle-seconds", "1"),
]


@pytest.mark.parametrize("arguments", LESS, ids=" ".join)
def test_a_short_look_leaves_what_is_published(
    published: Path, quick: None, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    entry.main(arguments)
    assert not published.exists()
    told = capsys.readouterr().err
    assert "not the whole measurement" in told
    assert "--json FILE keeps it" in told
    assert "nothing was written" in told


@pytest.mark.parametrize("arguments", LESS, ids=" ".join)
def test_a_short_look_is_written_where_it_is_told_to(
    published: Path, quick: None, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    entry.main([*arguments, "--json", str(tmp_path / "look.json")])
    assert not published.exists()
    assert load(tmp_path / "look.json").name == arguments[0]


@pytest.mark.parametrize(
    "arguments", [*((name,) for name in MEASURED), ("growth", "--passes", "7"), ("cost", "--rounds", "3")], ids=" ".join
)
def test_a_whole_run_is_published_with_its_command_and_version(
    published: Path, quick: None, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "commit", lambda: "1234567+")
    entry.main(arguments)
    [path] = published.iterdir()
    report = load(path)
    assert path.name == f"{report.name}.json" == f"{arguments[0]}.json"
    assert (report.command, report.commit) == (f"./dev bench {' '.join(arguments)}", "1234567+")
    assert report.machine.versions["holdfast"]


# --- several runs in one file ----------------------------------------------------------------------------------------------


def reading(work: str, value: float = 1.0) -> Reading:
    return Reading("holdfast_postgres", work, 0, value, "ms", "lower")


def report(command: str, *readings: Reading, commit: str = "aaaaaaa") -> Report:
    return Report("growth", MACHINE, command, "2026-01-31", list(readings), commit=commit)


def test_a_part_measured_alone_keeps_the_others_and_who_measured_them(tmp_path: Path) -> None:
    path = tmp_path / "growth.json"
    all_of_it = report("all", reading("backlog: claim 1"), reading("queues: claim 1"), reading("tasks: claim 1"))
    assert put_together(all_of_it, ["backlog", "queues", "tasks"], path) == all_of_it, "there is no file"
    save(all_of_it, path)
    save(put_together(report("first", reading("queues: claim 1", 2.0), commit="bbbbbbb"), ["queues"], path), path)
    save(put_together(report("second", reading("tasks: claim 1", 3.0), commit="ccccccc"), ["tasks"], path), path)
    found = load(path)
    assert {one.work: one.value for one in found.readings} == {
        "backlog: claim 1": 1.0,
        "queues: claim 1": 2.0,
        "tasks: claim 1": 3.0,
    }
    assert runs_of(found) == [
        Run("all", "2026-01-31", "aaaaaaa", ["backlog"]),
        Run("first", "2026-01-31", "bbbbbbb", ["queues"]),
        Run("second", "2026-01-31", "ccccccc", ["tasks"]),
    ]


def test_of_a_part_measured_anew_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "bloat.json"
    save(report("old", reading("worker with a snapshot: drain")), path)
    again = report("new", reading("worker without: drain"))
    assert put_together(again, ["worker"], path) == again
    assert runs_of(again) == [Run("new", "2026-01-31", "aaaaaaa")]


def test_a_report_of_before_commits_were_stored_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(
        '{"name": "growth", "command": "./dev bench growth", "made": "2026-01-31", "machine": '
        '{"cores": 2, "memory_bytes": 1, "processor": "", "kernel": "", "python": "3.11.7"}, "readings": []}'
    )
    assert runs_of(load(path)) == [Run("./dev bench growth", "2026-01-31")]


# --- the commit ------------------------------------------------------------------------------------------------------------


def test_a_commit_is_marked_where_what_is_measured_differs_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine.commit() == "", "no git"
    (tmp_path / "src").mkdir()
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "src" / "some.py").write_text("1")
    who = ["-c", "user.name=Some", "-c", "user.email=some@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    (tmp_path / "benchmarks" / "results" / "peers.json").write_text("{}")
    clean = machine.commit()
    assert len(clean) >= 7
    assert "+" not in clean, "what it writes itself does not count"
    (tmp_path / "src" / "other.py").write_text("2")
    assert machine.commit() == f"{clean}+"


# --- verdicts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told", "fine"), [(5.0, "held: held leases: 5 where", True), (5.1, "missed: held leases: 5.1 where", False)]
)
def test_a_command_judges_by_the_targets(
    value: float, told: str, *, fine: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aims = [
        Target("held leases", "leases", "holdfast_postgres", "leases client", at_most=5.0),
        Target("left out", "leases", "holdfast_postgres", "leases server", at_most=5.0),
        Target("of another report", "memory", "holdfast_postgres", "leases client", at_most=0.0),
    ]
    monkeypatch.setattr(commands, "targets", lambda: aims)
    made = Report("leases", MACHINE, "", "", [reading("leases client", value)])
    assert commands.none_missed(made) is fine
    lines = capsys.readouterr().out.splitlines()
    assert f"  {told} at most 5 is wanted" in lines
    assert any(line.startswith("  no figure: left out: ") for line in lines)
    assert "another" not in " ".join(lines)


# --- the comparison --------------------------------------------------------------------------------------------------------


async def _finds(stage: Stage) -> list[Finding]:
    return [Finding("drain1", 5.0)]


async def _fails(stage: Stage) -> list[Finding]:
    raise RuntimeError("no more connections")


async def _is_broken_off(stage: Stage) -> list[Finding]:
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()
    return []


@pytest.fixture
def compared(published: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have one contestant at one work, which does what is told."""

    def compare(run: Callable[[Stage], Awaitable[list[Finding]]], store: str = "sqlite") -> None:
        answers = (sys.executable, "-S", "-c", "print('{}')")
        one = Contestant("holdfast_sqlite", store, answers, 1)
        monkeypatch.setattr(entry, "WORKS", {"drain1": Work("drain1", "", run, 0.0)})
        monkeypatch.setattr(entry, "names", lambda: ["holdfast_sqlite"])
        monkeypatch.setattr(entry, "roster", lambda *_: Roster([one], {"holdfast_sqlite": "0.1"}, [], None))

    return compare


def test_the_whole_comparison_is_published(published: Path, compared: Callable[..., None], tmp_path: Path) -> None:
    compared(_finds)
    assert entry.main(["peers"]) == 0
    found = load(published / "peers.json")
    assert (found.name, found.command, len(found.readings)) == ("peers", "./dev bench peers", 5)
    assert found.machine.versions["holdfast_sqlite"] == "0.1"


@pytest.mark.parametrize(
    "arguments", [("--rounds", "4"), ("--scale", "0.5"), ("--slots", "500"), ("--limit", "50")], ids=" ".join
)
def test_a_smaller_comparison_is_not_published(
    published: Path, compared: Callable[..., None], arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    compared(_finds)
    assert entry.main(["peers", *arguments]) == 0
    assert not published.exists()
    told = capsys.readouterr()
    assert "nothing was written" in told.err
    assert "5.00" in told.out


@pytest.mark.parametrize("command", ["quick", "latency"])
def test_a_look_is_written_where_it_is_told_to_under_its_own_name(
    published: Path, compared: Callable[..., None], command: str, tmp_path: Path
) -> None:
    compared(_finds)
    assert entry.main([command, "--works", "drain1"]) == 0
    assert entry.main([command, "--works", "drain1", "--out", str(tmp_path / "look.json")]) == 0
    assert load(tmp_path / "look.json").name == command
    assert not published.exists()


def test_a_contestant_that_fails_is_told_by_the_exit_code(
    compared: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    compared(_fails)
    assert entry.main(["peers", "--rounds", "1"]) == 1
    assert "holdfast_sqlite has no figure for drain1: RuntimeError('no more connections')" in capsys.readouterr().out


def test_a_comparison_that_is_broken_off_leaves_what_is_published(
    published: Path, compared: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(_is_broken_off)
    assert entry.main(["peers"]) == 1
    assert not published.exists()
    assert f"it is in {tmp_path / 'home' / 'peers.json'}" in capsys.readouterr().err


def test_a_comparison_without_its_server_names_those_who_need_it(
    published: Path, compared: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres, "installations", dict)
    compared(_finds, store="postgres")
    assert entry.main(["peers"]) == 1
    assert not published.exists()
    told = capsys.readouterr()
    assert "holdfast_sqlite has no figure for install: PostgreSQL 18 not found" in told.out


# --- what cannot begin -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEASURED)
def test_without_a_server_a_command_says_how_to_get_one(
    published: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres, "installations", dict)
    assert entry.main([name]) == 2
    assert f"{name} cannot be measured: PostgreSQL 18 not found" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["quick", "latency", "peers", "bloat", "leases", "cost"])
def test_no_rounds_are_refused(
    quick: None, compared: Callable[..., None], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(_finds)
    with pytest.raises(SystemExit) as ended:
        entry.main([name, "--rounds", "0"])
    assert ended.value.code == 2
    assert "--rounds: must be 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "given"), [("--contestants", "nobody"), ("--works", "drain3"), ("--contestants", ",")])
def test_names_that_nobody_has_are_refused(option: str, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["peers", option, given])
    assert ended.value.code == 2
    assert "there are" in capsys.readouterr().err


def test_a_command_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["swift"]) == 2
    assert "there is no command 'swift'" in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--help"]) == 0
    told = capsys.readouterr().out
    for name in ("quick", "peers", "latency", "full", *entry.ELSEWHERE):
        assert f"\n  {name} " in told


def test_full_measures_all_that_the_page_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(name: str, arguments: list[str]) -> int:
        ran.append(" ".join([name, *arguments]))
        return 2 if name == "bloat" else 0

    monkeypatch.setattr(entry, "_compare", run)
    monkeypatch.setattr(entry, "_elsewhere", run)
    assert entry.main(["full"]) == 2
    assert ran == ["peers", "growth", "bloat", "leases", "memory", "limits", "cost", "charts", "page"]


# --- for real --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_holdfasts_drain_some_jobs(tmp_path: Path) -> None:
    both = ["holdfast_postgres", "holdfast_sqlite"]
    look = ["--contestants", ",".join(both), "--works", "drain1", "--rounds", "1", "--scale", "0.005"]
    assert entry.main(["peers", *look, "--out", str(tmp_path / "look.json")]) == 0
    found = load(tmp_path / "look.json")
    assert found.failures == []
    assert sorted(one.contestant for one in found.readings if one.work == "drain1") == both
    assert all(one.value > 0 for one in found.readings)
    assert found.machine.settings["fsync"] == "on"
    assert f"Python {found.machine.python}" in found.machine.versions["holdfast_postgres"]
