"""A producer here, worker processes there, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast import Holdfast
from tests.faults.support import BUSY, until
from tests.fleet_redis.tasks import declare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from holdfast import Handle
    from tests.fleet_redis.tasks import Tasks

ROOT = Path(__file__).parents[2]
SWEEP = 5.0
"""Seconds within which a worker finds what Redis has lost."""
QUICK = [("redis", "redis"), ("valkey", "hybrid")]
SLOW = [("redis", "hybrid"), ("valkey", "redis")]
EVERY = pytest.mark.parametrize(
    ("redis_server", "mode"),
    [*QUICK, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW)],
    indirect=["redis_server"],
)
"""On both servers in both modes; half of it when time is short."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A producer here, and workers in processes of their own."""

    app: Holdfast
    url: str
    redis_url: str
    mode: str
    folder: Path
    tasks: Tasks
    accepted: list[Handle[Any]] = field(default_factory=list)
    """Every job of which `enqueue` said that it is stored. Their numbers are 0, 1, 2, …"""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def streams(self) -> list[str]:
        """The streams of all bands of priorities."""
        store = f"{{holdfast:{urlsplit(self.url).path.strip('/')}.holdfast}}"
        return [f"{store}:{band}" for band in ("high", "normal", "low")]

    @property
    def stream(self) -> str:
        """The stream of jobs of the usual priority."""
        return self.streams[1]

    async def note(self) -> Handle[Any]:
        """Enqueue a job that ends at once."""
        return self._accept(await self.tasks.note.enqueue(next(self.numbers), str(self.folder / "trace")))

    async def hold(self) -> Handle[Any]:
        """Enqueue a job that ends when the gate is opened."""
        number, trace, gate = next(self.numbers), str(self.folder / "trace"), str(self.folder / "gate")
        return self._accept(await self.tasks.hold.enqueue(number, trace, gate))

    def open_gate(self) -> None:
        """Let go of what is held."""
        (self.folder / "gate").touch()

    def _accept(self, handle: Handle[Any]) -> Handle[Any]:
        self.accepted.append(handle)
        return handle

    @asynccontextmanager
    async def load(self, every: float = 0.01) -> AsyncIterator[None]:
        """Enqueue a job every few milliseconds."""
        enough = asyncio.Event()

        async def enqueue() -> None:
            while not enough.is_set():
                await self.note()
                await asyncio.sleep(every)

        task = asyncio.create_task(enqueue())
        try:
            yield
        finally:
            enough.set()
            await task

    async def more(self, jobs: int = 20) -> None:
        """Wait until some more jobs were accepted."""
        target = len(self.accepted) + jobs
        await until(lambda: len(self.accepted) >= target, "more jobs were accepted")

    def runs(self) -> list[tuple[int, int]]:
        """Return the number of a job and the process that ran it, for every time that one was run."""
        trace = self.folder / "trace"
        lines = trace.read_text().splitlines() if trace.exists() else []
        return [(int(number), int(process)) for number, process in map(str.split, lines)]

    async def check(self) -> None:
        """All ended, each was claimed once and run once, and none waited longer than the sweep allows."""
        jobs = len(self.accepted)
        await self.ended(jobs)
        books = await self.books()
        assert books["succeeded"] == jobs
        assert books["attempt"] == 1
        assert books["waited"] <= SWEEP + BUSY
        assert Counter(number for number, _ in self.runs()) == Counter(range(jobs))

    @asynccontextmanager
    async def workers(self, number: int) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
        """Run worker processes; returns when all have registered."""
        settings = {"HOLDFAST_URL": self.url, "HOLDFAST_REDIS_URL": self.redis_url, "HOLDFAST_DISPATCH": self.mode}
        environment = os.environ | settings | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        processes = [_worker(environment) for _ in range(number)]
        try:
            await until(lambda: self._registered(number), "all workers have registered")
            yield processes
        finally:
            for process in processes:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a test may have failed while one was frozen
            for process in processes:
                process.wait(30)

    async def _registered(self, number: int) -> bool:
        return len(await self.app.client().store.workers()) >= number

    async def one(self, statement: str) -> Any:
        """Return the row of a query."""
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetchrow(statement)
        finally:
            await connection.close()

    async def books(self) -> Any:
        """Return how many jobs succeeded, the highest attempt of any, and the longest that one waited, in seconds."""
        return await self.one(
            "SELECT count(*) AS succeeded, max(a.attempt) AS attempt, "
            "max(extract(epoch FROM a.claimed_at - j.created_at))::float8 AS waited "
            "FROM holdfast.archive a JOIN holdfast.job j ON j.id = a.job_id WHERE a.state = 'succeeded'"
        )

    async def ended(self, jobs: int) -> None:
        """Wait until so many have succeeded."""

        async def look() -> bool:
            row = await self.books()
            return bool(row["succeeded"] >= jobs)

        await until(look, f"{jobs} jobs have succeeded")


def _worker(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "worker", "tests.fleet_redis.tasks:app", "--concurrency", "4"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)


@asynccontextmanager
async def fleet(url: str, redis_url: str, mode: str, folder: Path) -> AsyncIterator[Fleet]:
    """A producer on a store, with the tasks of the workers."""
    app = Holdfast(url, redis_url=redis_url, dispatch=mode)
    tasks = declare(app)
    async with app:
        yield Fleet(app, url, redis_url, mode, folder, tasks)


def figures(worker: Any) -> Mapping[str, int]:
    """Return what a worker in this process knows of its Redis."""
    found: Mapping[str, int] = worker._base.notifier.figures()
    return found
