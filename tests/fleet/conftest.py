"""Managers in processes of their own, on real stores, and a view of what they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.connect import Adapters, connect
from holdfast.core.job import NewJob
from holdfast.notify.port import Hint
from holdfast.store.port import Action
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from uuid import UUID

    from holdfast.core.limits import LimitKey
    from holdfast.store.port import JobView, Store, WorkerView
    from tests.support.postgres import PostgresServers

ROOT = Path(__file__).parents[2]
LONG = 60.0
"""Seconds after which a test gives up that waits for processes."""
QUICK = ("--interval", "100ms", "--scale-down-after", "600ms", "--waiting-target", "1s")
"""Decisions that do not take long."""


@dataclass
class Place:
    """A store, a folder, and short words for what tests do with both."""

    url: str
    folder: Path
    store: Store

    @contextmanager
    def manager(self, *options: str, name: str = "m") -> Iterator[subprocess.Popen[bytes]]:
        """Run a manager until the block ends; nothing that it started is left."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "NO_COLOR": "1", "FLEET_URL": self.url}
        words = [sys.executable, "-m", "holdfast", "manager", "tests.fleet.gated_jobs:app", "--name", name, *QUICK, *options]
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(words, cwd=self.folder, env=environment, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()  # the kernel asks its workers to stop; those whose job waits would go on
                process.wait()
                for worker in self.started(name):
                    _kill(worker)

    def log(self, name: str = "m") -> Path:
        return self.folder / f"{name}.log"

    def gate(self, name: str = "gate") -> str:
        return str(self.folder / name)

    def open(self, name: str = "gate") -> None:
        Path(self.gate(name)).touch()

    def shut(self, name: str = "gate") -> None:
        Path(self.gate(name)).unlink()

    def started(self, name: str = "m") -> list[int]:
        """Return the processes of the workers that the manager started and that are still there."""
        needle = f"--name\0{name}.".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes()
                except OSError:  # it has ended
                    continue
                if needle in command and b"gated_jobs" in command and self.url.encode() in _environment(entry):
                    found.append(int(entry.name))
        return found

    async def enqueue(
        self, task: str = "wait", count: int = 1, *, queue: str = "default", limit: LimitKey | None = None, **args: Any
    ) -> list[UUID]:
        text = json.dumps(args or {"gate": self.gate()})
        jobs = [NewJob(id=uuid7(), task=task, queue=queue, args=text, limit=limit) for _ in range(count)]
        made = [one.job_id for one in await self.store.enqueue(jobs)]
        notifier = Adapters(self.url).notifier()
        notifier.hint(Hint(queues=frozenset({queue})))
        await notifier.close()
        return made

    async def jobs(self, ids: list[UUID]) -> list[JobView]:
        found = await self.store.get(ids)
        return [job for job in found if job is not None]

    async def workers(self, name: str = "m") -> list[WorkerView]:
        """Return the workers of a manager that are up."""
        views = await self.store.workers()
        return [view for view in views if view.worker.name.startswith(f"{name}.") and view.offline_at is None]

    async def decided(self, name: str = "m") -> list[int]:
        """Return the numbers that a manager decided on, oldest first."""
        lines = await self.reasons(name)
        return [int(count.split()[0]) for count, reason in lines if not reason.startswith("stays ")]

    async def reasons(self, name: str = "m") -> list[tuple[str, str]]:
        """Return all that a manager wrote down, oldest first: how many there should be, and why."""
        lines = await self.store.audits(limit=1000, action=Action.SCALE, actor=f"manager {name}")
        return [(line.targets[0], line.detail) for line in reversed(lines)]

    async def counted(self, name: str = "m") -> dict[str, int]:
        """Return what a manager has counted."""
        views = [view for view in await self.store.workers() if view.worker.name == f"manager {name}"]
        return dict(json.loads(views[0].counters)) if views else {}

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until something holds; the log of the manager is shown when it never does."""
        try:
            await until(holds, LONG)
        except AssertionError:
            pytest.fail(f"it did not happen in time:\n{self.log().read_text()[-5000:]}")

    async def until_up(self, count: int, name: str = "m") -> list[WorkerView]:
        """Wait until so many workers are up, and return them."""

        async def holds() -> bool:
            return len(await self.workers(name)) == count

        await self.until(holds)
        return await self.workers(name)

    async def until_all_ended(self, ids: list[UUID]) -> list[JobView]:
        async def holds() -> bool:
            return all(job.finished_at is not None for job in await self.jobs(ids))

        await self.until(holds)
        return await self.jobs(ids)

    async def until_running(self, ids: list[UUID]) -> None:
        async def holds() -> bool:
            return all(job.state == "running" for job in await self.jobs(ids))

        await self.until(holds)


def doing(view: WorkerView) -> str:
    """Return what a worker does by its last sign of life, however long ago that is."""
    return view.doing(view.heartbeat_at or view.registered_at)


def process_of(view: WorkerView) -> int:
    return int(json.loads(view.worker.info)["process"])


def _environment(entry: Path) -> bytes:
    try:
        return (entry / "environ").read_bytes()
    except OSError:
        return b""


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


@asynccontextmanager
async def place_on(url: str, folder: Path) -> AsyncIterator[Place]:
    """A store, and a folder for what its manager logs."""
    store = connect(url, create=True)
    await store.open()
    try:
        yield Place(url, folder, store)
    finally:
        await store.close()


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A SQLite file."""
    async with place_on(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as made:
        yield made


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def every_place(
    request: pytest.FixtureRequest, tmp_path: Path, fleet_database: Callable[[], str]
) -> AsyncIterator[Place]:
    """A SQLite file, and a PostgreSQL database."""
    url = f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else fleet_database()
    async with place_on(url, tmp_path) as made:
        yield made


@pytest.fixture
def fleet_database(postgres_servers: PostgresServers) -> Callable[[], str]:
    """Make an empty database."""
    return lambda: postgres_servers[18].create_database()  # noqa: PLW0108  a server is started when it is asked for
