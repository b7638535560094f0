"""Folders, stores and watchers whose clock stands until the test moves it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from uuid_utils.compat import uuid7

from holdfast.connect import connect
from holdfast.core.job import NewJob
from holdfast.finding import jobs_where, matching
from holdfast.store.port import JobFilter
from holdfast.watch.files import Rules
from holdfast.watch.ledger import Ledger, dialect_of
from holdfast.watch.watcher import Watcher, Watching
from tests.cli.conftest import cli  # noqa: F401  a fixture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from holdfast.store.port import Store
    from tests.support.postgres import PostgresServers

TASK = "media.transcode"
SETTLE = 2.0


@dataclass
class Scene:
    """A folder, the store its files go to, and watchers on it. Time passes when the test says so."""

    folder: Path
    url: str
    store: Store
    now: float = 1000.0
    notes: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    watchers: list[Watcher] = field(default_factory=list)

    async def watcher(
        self,
        *,
        task: str = TASK,
        store: Store | None = None,
        clock: Callable[[], float] | None = None,
        settle: float = SETTLE,
        caps: dict[str, int] | None = None,
        **rules: Any,
    ) -> Watcher:
        """Return a watcher as after a start: it remembers nothing but what the store tells it."""
        watching = Watching(
            folder=self.folder,
            rules=Rules(**rules),
            settle=settle,
            every=3600.0,
            make=lambda path: NewJob(id=uuid7(), task=task, args=msgspec.json.encode({"path": path}).decode()),
            hint=lambda jobs: self.hints.extend(job.queue for job in jobs),
            taken=lambda _path, _job_id: None,
            note=self.notes.append,
            clock=clock or (lambda: self.now),
        )
        ledger = Ledger(store or self.store, dialect_of(self.url), task, caps)
        await ledger.open(f"{self.folder}/")
        self.watchers.append(Watcher(watching, ledger))
        return self.watchers[-1]

    async def settled(self, watcher: Watcher) -> list[str]:
        """Look, let the settle time pass, look again; return the names that are jobs now."""
        await watcher.look()
        self.now += SETTLE
        await watcher.look()
        return await self.names()

    async def names(self) -> list[str]:
        """Return the names of all files that became jobs, one for each job, oldest job first."""
        return [path.rpartition("/")[2] for path in await paths(self.store)]


async def paths(store: Store) -> list[str]:
    """Return the path of each job, oldest job first."""
    jobs = [job async for job in matching(jobs_where(store, JobFilter()), limit=None)]
    return [msgspec.json.decode(job.args)["path"] for job in reversed(jobs)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "incoming"
    folder.mkdir()
    return folder


@asynccontextmanager
async def scene_at(url: str, folder: Path) -> AsyncIterator[Scene]:
    """Open a store for a scene, and close everything at the end."""
    scene = Scene(folder, url, connect(url))
    await scene.store.open()
    try:
        yield scene
    finally:
        for watcher in scene.watchers:
            watcher.close()
        await scene.store.close()


@pytest.fixture
async def scene(tmp_path: Path, folder: Path) -> AsyncIterator[Scene]:
    async with scene_at(f"sqlite:///{tmp_path}/jobs.db", folder) as scene:
        yield scene


@pytest.fixture
def new_postgres(postgres_servers: PostgresServers) -> str:
    """A database of one server: what differs between versions is tried where stores are."""
    return postgres_servers[18].create_database()
