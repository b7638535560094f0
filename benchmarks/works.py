"""The works that contestants are given, and how each becomes figures."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.meters import PostgresMeter
from benchmarks.programs import ProgramError, while_running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.contest import Stage
    from benchmarks.results import Better

SLEEP_SECONDS = 0.05
"""As in contestants/protocol.py, which stands alone."""
BUSY_VARIABLE = "CONTEST_BUSY"
"""As above."""
SKIP = 5_000
"""Finished jobs that do not count, so that the start of the workers does not; of fewer than 20,000 jobs a quarter."""
FAST = 100_000
"""Jobs of a drain from which on a contestant counts as fast: fifty callers enqueue more, too."""
SLEEP_SLOTS = 500
SLEEP_JOBS = 50_000
"""Five seconds for who keeps all slots busy. Who has less in a drain has no more here: it takes as long for less."""
BURN_SECONDS = 0.01
"""As in contestants/protocol.py."""
BURN_PROCESSES = 2
BURN_JOBS = 2_000
SINGLE_JOBS = 2_000
CALLERS = 50
LATENCY_JOBS = 550
LATENCY_SKIP = 50
LATENCY_GAP_MS = 20.0
LATENCY_REST = 1.0
"""Seconds after the last job of `latency`, in which whoever polls finds it."""
LATENCY_MISSING = 0.1
"""The share of the jobs that may not have started by then: they count as the slowest. With more there is no figure."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure of one cell."""

    work: str
    value: float
    unit: str = "jobs/s"
    better: Better = "higher"
    extra: dict[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """Something that every contestant is given."""

    name: str
    about: str
    run: Callable[[Stage], Awaitable[list[Finding]]]
    guess: float
    """Seconds that a cell may take, before any has been seen."""
    stores: frozenset[str] | None = None
    """The stores whose contestants do it; None: all."""
    once: bool = False
    """Whether it is a count, which is the same in every round."""


async def drain(stage: Stage, processes: int) -> list[Finding]:
    """Have worker processes finish no-ops that wait already; filling the queue is the bulk enqueue."""
    jobs = stage.size(stage.contestant.jobs)
    filled = await _fill(stage, "noop", jobs)
    before = stage.place.usage()
    answer = await _finish(stage, "noop", jobs, processes=processes)
    used = {name: (value - before[name]) / jobs for name, value in stage.place.usage().items()}
    findings = [Finding(f"drain{processes}", _rate(answer), extra=_counted(answer, jobs))]
    if processes == 1 and stage.contestant.does("bulk"):
        findings.append(Finding("bulk", _rate(filled), extra={"jobs": jobs}))
    if processes == 1 and "wal" in used:
        findings.append(Finding("wal", used["wal"], "bytes/job", "lower", {"full_pages": used["full_pages"]}))
        findings.append(Finding("transactions", used["transactions"], "per job", "lower"))
    return findings


async def bulk(stage: Stage) -> list[Finding]:
    """Enqueue a thousand jobs in a call."""
    jobs = stage.size(stage.contestant.jobs)
    return [Finding("bulk", _rate(await _fill(stage, "noop", jobs)), extra={"jobs": jobs})]


async def single(stage: Stage) -> list[Finding]:
    """Enqueue one job after the other."""
    answer = await stage.ask("single", jobs=stage.size(SINGLE_JOBS))
    return [Finding("single", _rate(answer))]


async def callers(stage: Stage) -> list[Finding]:
    """Enqueue with fifty callers at once, each of whom waits for its own job to be stored."""
    jobs = stage.size(20_000 if stage.contestant.jobs >= FAST else 5_000)
    answer = await stage.ask("callers", jobs=jobs, callers=CALLERS)
    return [Finding("callers50", _rate(answer), extra={"jobs": jobs})]


async def latency(stage: Stage) -> list[Finding]:
    """Enqueue one job every 20 ms from one process; an idle worker in another says when its handler began."""
    jobs = stage.size(LATENCY_JOBS, least=LATENCY_SKIP * 3)
    async with AsyncExitStack() as stack:
        worker = await stage.worker(stack, "latency")
        await while_running([worker], stage.ask("paced", task="latency", jobs=jobs, gap=LATENCY_GAP_MS))
        await asyncio.sleep(LATENCY_REST)
        said = await worker.end()
    seen = sorted(next((found["latencies"] for found in said if "latencies" in found), [])[LATENCY_SKIP:])
    wanted = jobs - LATENCY_SKIP
    missing = max(0, wanted - len(seen))
    if missing > wanted * LATENCY_MISSING:
        raise ProgramError(f"{stage.contestant.name} had started only {len(seen)} of {wanted} jobs in time")
    seen += [max(seen[-1], LATENCY_REST * 1000)] * missing  # they took longer than that, and than any that was seen
    percentiles = statistics.quantiles(seen, n=100, method="inclusive")
    extra: dict[str, float | str] = {"p90": percentiles[89], "p99": percentiles[98], "max": seen[-1], "jobs": wanted}
    if missing:
        extra["missing"] = missing
    return [Finding("latency", statistics.median(seen), "ms", "lower", extra)]


async def sleep(stage: Stage) -> list[Finding]:
    """Run jobs that wait 50 ms, 500 at once in one process."""
    jobs = stage.size(min(SLEEP_JOBS, stage.contestant.jobs), least=4 * SLEEP_SLOTS)
    slots = stage.slots or SLEEP_SLOTS
    await _fill(stage, "sleep", jobs)
    answer = await _finish(stage, "sleep", jobs, slots=slots)
    rate = _rate(answer)
    return [Finding("sleep50", rate, extra={"busy": rate * SLEEP_SECONDS / slots, **_counted(answer, jobs)})]


async def burn(stage: Stage) -> list[Finding]:
    """Run jobs that compute for 10 ms, in two processes. They share two cores with their worker and their store.

    How many jobs a process takes ahead of the one that it runs is the contestant's own choice.
    """
    jobs = stage.size(BURN_JOBS)
    await _fill(stage, "burn", jobs)
    with tempfile.TemporaryDirectory(prefix="holdfast-busy-") as folder:
        stage.environment[BUSY_VARIABLE] = folder
        answer = await _finish(stage, "burn", jobs, processes=stage.contestant.burn_processes)
        busy = busy_share(Path(folder), BURN_PROCESSES)
    rate = _rate(answer)
    extra: dict[str, float | str] = {"cores": rate * BURN_SECONDS / BURN_PROCESSES, **_counted(answer, jobs)}
    if busy is not None:
        extra["busy"] = busy
    return [Finding("cpu10", rate, extra=extra)]


def busy_share(folder: Path, slots: int) -> float | None:
    """Return the share of the slots' time in which they had a job, by what the jobs noted; `None`: none did.

    That is time by the clock: a job that waits for a core that somebody else has is counted, too.

    From the start of the job after the first quarter to that of the last: the start of the workers does not count, nor
    that they run out of jobs.
    """
    lines = [line for notes in folder.iterdir() for line in notes.read_text().splitlines()]
    spans = sorted((float(begun), float(ended)) for begun, ended in (line.split() for line in lines))
    if len(spans) < 2 * slots:
        return None
    first, last = spans[len(spans) // 4][0], spans[-1][0]
    ran = sum(max(0.0, min(ended, last) - max(begun, first)) for begun, ended in spans)
    return ran / (slots * (last - first))


async def statements(stage: Stage) -> list[Finding]:
    """Count what one worker process sends to PostgreSQL while it drains no-ops. Not timed: it is read on its way."""
    jobs = stage.size(max(5_000, stage.contestant.jobs // 5))
    await _fill(stage, "noop", jobs)
    meter = PostgresMeter(stage.place.url, everybody=True)
    async with meter.proxied() as url:
        await _finish(stage, "noop", jobs, worker_url=url)
    trips = meter.round_trips.total() / jobs
    return [Finding("statements", meter.statements.total() / jobs, "per job", "lower", {"round_trips": trips})]


async def _fill(stage: Stage, task: str, jobs: int) -> dict[str, Any]:
    filled = await stage.ask("bulk", task=task, jobs=jobs)
    stage.place.calm()
    return filled


async def _finish(
    stage: Stage, task: str, jobs: int, *, processes: int = 1, slots: int = 0, worker_url: str | None = None
) -> dict[str, Any]:
    """Have workers finish the jobs that wait; returns what the watcher saw."""
    async with AsyncExitStack() as stack:
        # First, for a watcher that counts should see the first jobs end.
        watcher = await stack.enter_async_context(stage.program("watch", jobs=jobs, skip=_skip(jobs)))
        workers = await asyncio.gather(
            *(stage.worker(stack, task, slots=slots or stage.slots, url=worker_url) for _ in range(processes))
        )
        answer = await while_running(workers, watcher.answer())
        for worker in workers:
            await worker.end()
    return answer


def _skip(jobs: int) -> int:
    return min(SKIP, jobs // 4)


def _counted(answer: dict[str, Any], jobs: int) -> dict[str, float | str]:
    """Return of which jobs a rate is, and how the watcher knew when they had finished."""
    return {"jobs": jobs, "skip": _skip(jobs), "how": answer.get("how", "")}


def _rate(answer: dict[str, Any]) -> float:
    jobs, seconds = float(answer["jobs"]), float(answer["seconds"])
    if jobs <= 0 or seconds <= 0:
        raise ProgramError(f"it answered {jobs:g} jobs in {seconds:g} s: too few to say how fast it is")
    return jobs / seconds


WORKS = {
    work.name: work
    for work in (
        Work("drain1", "no-ops drained by one worker process", lambda stage: drain(stage, 1), 10),
        Work("drain2", "no-ops drained by two worker processes", lambda stage: drain(stage, 2), 8),
        Work("single", "one caller, each job stored before the next", single, 3),
        Work("callers50", "fifty callers at once, each awaits its own job", callers, 3),
        Work("bulk", "1,000 jobs in a call", bulk, 4),
        Work("latency", "enqueue to the first line of the handler, idle, across processes", latency, 13),
        Work("sleep50", "jobs of 50 ms async sleep, 500 at once", sleep, 10),
        Work("cpu10", "jobs of 10 ms processor time in two processes", burn, 12),
        Work("statements", "statements per job of a drain", statements, 6, stores=frozenset({"postgres"}), once=True),
    )
}
"""By name, in the order of the tables."""
