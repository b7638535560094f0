"""A producer here, worker processes there, and what must hold afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg

from holdfast import Holdfast
from tests.faults.support import until
from tests.fleet_redis.tasks import declare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast.tasks.task import Task

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Fleet:
    """A producer here, and workers in processes of their own."""

    app: Holdfast
    url: str
    redis_url: str
    mode: str
    note: Task[..., Any]
    again: Task[..., Any]

    @property
    def stream(self) -> str:
        """The stream of jobs of the usual priority."""
        return f"{{holdfast:{urlsplit(self.url).path.strip('/')}.holdfast}}:normal"

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
async def fleet(url: str, redis_url: str, mode: str) -> AsyncIterator[Fleet]:
    """A producer on a store, with the tasks of the workers."""
    app = Holdfast(url, redis_url=redis_url, dispatch=mode)
    note, again = declare(app)
    async with app:
        yield Fleet(app, url, redis_url, mode, note, again)
