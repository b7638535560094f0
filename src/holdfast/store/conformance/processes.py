"""Several processes on one store, some of which are killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from holdfast.core.states import Event, State
from holdfast.store.conformance.world import LEASE, TASK, Subject, World, ids
from holdfast.store.port import JobFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store.conformance.harness import Harness

CHILD: Final = str(Path(__file__).with_name("child.py"))
"""Run as a file, without this folder on its path: importing the package would take each child longer than its work."""
TASKS: Final = [f"{TASK}.{number}" for number in range(4)]
ANSWER_LIMIT: Final = 16 * 1024 * 1024
"""Bytes in one line of a child: a large batch of ids."""


class ProcessConformance(Subject):
    """Everything a store promises among processes: a mixin for a test class whose harness has `url` and `opener`."""

    processes: ClassVar[int] = 4
    jobs: ClassVar[int] = 8_000
    batch: ClassVar[int] = 100
    pairs: ClassVar[int] = 1_000
    """How many waiters have their two blockers finished at the same moment by two processes."""

    async def test_each_job_is_run_once_by_several_processes(self, world: World) -> None:
        jobs = [world.job(TASKS[number % 4], priority=number % 2) for number in range(self.jobs)]
        for start in range(0, len(jobs), 1_000):
            await world.enqueue(*jobs[start : start + 1_000])

        async with children(world.harness, self.processes, "work", tasks=TASKS, batch=self.batch) as workers:
            reports = await run_all(workers)

        claimed = Counter(job_id for report in reports for job_id in report.get("claimed", ()))
        settled = Counter(job_id for report in reports for job_id in report.get("settled", ()))
        twice = [job_id for job_id, count in claimed.items() if count > 1]
        assert not twice, f"{len(twice)} jobs were claimed more than once: {twice[:3]}"
        assert claimed.keys() == {str(job.id) for job in jobs}, f"{self.jobs - len(claimed)} jobs were never claimed"
        assert settled == claimed, "a settlement under a current lease was not applied"
        stats = await world.store.stats()
        assert (stats.count(State.SUCCEEDED), stats.live) == (self.jobs, 0)

    async def test_jobs_of_a_killed_process_are_finished_by_others(self, world: World) -> None:
        jobs = world.jobs(200, task=TASKS[0])
        await world.enqueue(*jobs)
        async with children(world.harness, 1, "hold", tasks=TASKS, batch=80) as holders:
            held = (await holders[0].go())["claimed"]
            await holders[0].kill()

        async with children(world.harness, 2, "work", tasks=TASKS, batch=10) as workers:
            await run_all(workers)
        stats = await world.store.stats()
        assert (stats.count(State.SUCCEEDED), stats.count(State.RUNNING)) == (120, 80), "a dead process holds its leases"

        await world.store.rewind(2 * LEASE)
        reaped = await world.store.reap(1_000)
        async with children(world.harness, 2, "work", tasks=TASKS, batch=10) as workers:
            await run_all(workers)

        assert {str(one.job_id) for one in reaped} == set(held)
        views = await world.all_jobs(JobFilter(task=TASKS[0]), limit=1_000)
        assert len(views) == 200
        for view in views:
            lost = str(view.id) in held
            assert (view.state, view.attempt, view.failures) == (State.SUCCEEDED, 1 + lost, int(lost))
        assert await world.attempts(reaped[0].job_id) == [(1, Event.EXPIRE), (2, Event.SUCCEED)]

    async def test_process_killed_in_the_middle_of_its_work_loses_nothing(self, world: World) -> None:
        jobs = world.jobs(400, task=TASKS[0])
        await world.enqueue(*jobs)
        settled: Counter[str] = Counter()
        for reports_before_death in (1, 2, 5, 8):
            async with children(world.harness, 1, "work", tasks=TASKS, batch=7) as victims:
                report = await victims[0].go()
                for _ in range(reports_before_death):
                    settled.update(report.get("settled", ()))
                    report = await victims[0].report()
                settled.update(report.get("settled", ()))
                await victims[0].kill()
        await world.store.rewind(2 * LEASE)
        await world.store.reap(1_000)

        async with children(world.harness, 2, "work", tasks=TASKS, batch=50) as workers:
            for report in await run_all(workers):
                settled.update(report.get("settled", ()))

        assert await world.states(ids(jobs)) == [State.SUCCEEDED] * 400, "jobs of killed processes were lost"
        assert max(settled.values()) == 1, "a job was settled twice"
        await world.check_log(*ids(jobs)[:3])

    async def test_blockers_finished_at_the_same_moment_by_two_processes_strand_nobody(self, world: World) -> None:
        sides = ("left", "right")
        blockers = {side: world.jobs(self.pairs, task=side) for side in sides}
        waiters = [world.job(TASK, after=tuple(ids(pair))) for pair in zip(*blockers.values(), strict=True)]
        for jobs in (*blockers.values(), waiters):
            for start in range(0, self.pairs, 500):
                await world.enqueue(*jobs[start : start + 500])

        async with (
            children(world.harness, 1, "finish", tasks=["left"], batch=20) as (left,),
            children(world.harness, 1, "finish", tasks=["right"], batch=20) as (right,),
        ):
            for number in range(-(-self.pairs // 20)):
                claimed = await asyncio.gather(left.tell("claim"), right.tell("claim"))
                how = "at once" if number % 5 == 4 else "one by one"  # most collide pair by pair
                settled = await asyncio.gather(left.tell(how), right.tell(how))
                assert [one["settled"] for one in settled] == [one["claimed"] for one in claimed]

        states = Counter(await world.states(ids(waiters)))
        assert states == {State.READY: self.pairs}, f"waiters whose blockers have all ended stand in {states}"
        assert await world.store.unblock(self.pairs) == 0, "nothing was left for unblock() to settle"
        async with children(world.harness, 2, "work", tasks=[TASK], batch=self.batch) as workers:
            reports = await run_all(workers)
        ran = Counter(job_id for report in reports for job_id in report.get("claimed", ()))
        assert ran == {str(waiter.id): 1 for waiter in waiters}, "each waiter is run once"
        await world.check_log(*ids(waiters)[:3])

    async def test_producers_in_several_processes_create_one_job(self, world: World) -> None:
        async with children(world.harness, 5, "produce", task=TASK, producers=10) as producers:
            for number in range(5):
                answers = await asyncio.gather(*(producer.tell(f"key {number}") for producer in producers))

                told = [tuple(answer) for report in answers for answer in report["answers"]]
                created = [job_id for status, job_id in told if status == "created"]
                assert len(told) == 50
                assert len(created) == 1, f"{len(created)} of 50 producers in 5 processes created a job with one key"
                assert {job_id for _, job_id in told} == set(created), "all must be told the same holder"


class Child:
    """A process that plays a role, and the lines it reports."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, harness: Harness, role: str, options: dict[str, Any]) -> Self:
        """Start a process that can import what this one can."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            CHILD,
            harness.opener,
            harness.url,
            role,
            json.dumps(options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            limit=ANSWER_LIMIT,
        )
        return cls(process)

    async def report(self) -> dict[str, Any]:
        """Return its next report; an empty one when it has ended well."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if line:
            facts: dict[str, Any] = json.loads(line)
            return facts
        assert self.process.stderr is not None
        errors = (await self.process.stderr.read()).decode()
        code = await self.process.wait()
        assert code == 0, f"a child process ended with {code}:\n{errors}"
        return {}

    async def go(self) -> dict[str, Any]:
        """Tell it to begin, and return its first report."""
        return await self.tell("go")

    async def tell(self, line: str) -> dict[str, Any]:
        """Send it a line and return what it reports."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        await self.process.stdin.drain()
        return await self.report()

    async def run(self) -> list[dict[str, Any]]:
        """Let it run to its end and return all its reports."""
        reports = []
        report = await self.go()
        while report:
            reports.append(report)
            report = await self.report()
        return reports

    async def kill(self) -> None:
        """Kill it without warning."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()


@asynccontextmanager
async def children(harness: Harness, count: int, role: str, **options: Any) -> AsyncIterator[list[Child]]:
    """Start processes, wait until each has opened the store, and leave none behind."""
    started = [await Child.start(harness, role, options) for _ in range(count)]
    try:
        for child in started:
            report = await child.report()
            assert "ready" in report, f"a child process should first say that it is ready, it said {report}"
        yield started
    finally:
        for child in started:
            await child.kill()


async def run_all(workers: list[Child]) -> list[dict[str, Any]]:
    """Let processes run at the same time to their ends, and return all reports."""
    return [report for reports in await asyncio.gather(*(worker.run() for worker in workers)) for report in reports]
