"""Who takes part: Holdfast, the reference, and the peers of peers.toml, each with the interpreter it runs under."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contest import Contestant
from benchmarks.environments import NoEnvironment, environment, peers, versions
from benchmarks.results import REFERENCE, Failure
from benchmarks.servers import pgbench_program
from holdfast import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAMS = Path(__file__).parent / "contestants"

HOLDFAST = {"holdfast_postgres": "postgres", "holdfast_sqlite": "sqlite"}
HOLDFAST_JOBS = 150_000
REFERENCE_JOBS = 200_000


@dataclass(frozen=True, slots=True)
class Roster:
    """Who is there, in which version, and who is not and why."""

    contestants: list[Contestant]
    versions: dict[str, str]
    failures: list[Failure]
    redis_python: Path | None
    """The interpreter of a peer on Redis: its environment may carry the server."""


def names() -> list[str]:
    """Return all that could take part, Holdfast first."""
    return [*HOLDFAST, REFERENCE, *peers()]


def roster(wanted: Sequence[str], tell: Callable[[str], None]) -> Roster:
    """Return those who are wanted, installing what is missing; a peer that cannot be installed is among the failures."""
    contestants = [_holdfast(name) for name in HOLDFAST if name in wanted]
    found = dict.fromkeys((contestant.name for contestant in contestants), _own_version())
    failures: list[Failure] = []
    redis_python: Path | None = None
    if REFERENCE in wanted:
        contestants.append(_reference())
    for name, peer in peers().items():
        if name not in wanted:
            continue
        try:
            interpreter = environment(name, peer, tell)
            found[name] = versions(interpreter, peer)
        except NoEnvironment as error:
            tell(f"{name} cannot take part: {error}")
            failures.append(Failure(name, "install", str(error)))
            continue
        if peer.store == "redis":
            redis_python = redis_python or interpreter
        command = (str(interpreter), str(PROGRAMS / peer.program))
        contestants.append(Contestant(name, peer.store, command, peer.jobs, peer.burn_processes, peer.works))
    return Roster(contestants, found, failures, redis_python)


def _holdfast(name: str) -> Contestant:
    command = (sys.executable, str(PROGRAMS / f"{name}.py"))
    return Contestant(name, HOLDFAST[name], command, HOLDFAST_JOBS, burn_processes=1)


def _reference() -> Contestant:
    command = (sys.executable, str(PROGRAMS / "pgbench_reference.py"))
    program = pgbench_program()
    return Contestant(
        REFERENCE,
        "postgres",
        command,
        REFERENCE_JOBS,
        works=frozenset({"drain1", "statements"}),
        environment={"HOLDFAST_BENCH_PGBENCH": program} if program else {},
    )


def _own_version() -> str:
    drivers = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("asyncpg", "uvloop"))
    return f"{__version__} (Python {platform.python_version()}, {drivers})"
