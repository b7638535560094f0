"""A server that is away for longer than a lease, and a remote worker that lives: nothing is charged, and the work goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.core.states import State
from tests.server import remote_jobs
from tests.server.served import SECRET
from tests.server.test_remote_worker import LONG, answers, free_port, process, until, worker_of
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import Popen
    from uuid import UUID

    from holdfast.store.port import JobView
    from tests.support.postgres import PostgresServers

OVERDUE = 6.0
"""Seconds after which a reaper that comes every 5 s is overdue: it is the first to move when its server goes on."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: PostgresServers) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    server = postgres_servers[MAJORS[-1]]
    database = server.create_database()
    yield database
    server.drop_database(database)


class Outage:
    """A server in a process of its own, a remote worker, and one job that runs there."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.app = Holdfast(url)
        self.folder = folder
        self._url = url
        self._stack = stack
        self._port = free_port()

    @property
    def at(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def serve(self) -> Popen[str]:
        """Start the server; an earlier one has ended."""
        command = ("server", "--url", self._url, "--port", str(self._port), "--log-level", "error")
        running = self._stack.enter_context(process(*command, HOLDFAST_ADMIN_SECRET=SECRET))
        await until(lambda: answers(self.at), "the server did not start")
        return running

    async def begin(self) -> UUID:
        """Have the worker run the job."""
        self.worker = self._stack.enter_context(worker_of(self.at, SECRET))
        with remote_jobs.app.override(self._url):
            handle = await remote_jobs.patient.enqueue(str(self.folder))
            await remote_jobs.app.close()
        await until((self.folder / "began 1").exists, "the job did not begin")
        return handle.id

    async def view(self, job_id: UUID) -> JobView:
        view = (await self.app.client().store.get([job_id]))[0]
        assert view is not None
        return view

    async def lapsed(self, job_id: UUID) -> bool:
        """Tell whether the lease is over, by the store's clock, and the job still with its worker."""
        view = await self.view(job_id)
        assert (view.state, view.attempt) == (State.RUNNING, 1)
        assert view.expires_at is not None
        return view.expires_at < await self.app.client().store.now()

    async def succeeded(self, job_id: UUID) -> bool:
        return (await self.view(job_id)).state is State.SUCCEEDED


@pytest.mark.parametrize("away", ["killed", "stopped"])
async def test_a_server_that_is_away_for_longer_than_a_lease_costs_a_living_worker_nothing(
    url: str, away: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        outage = Outage(url, tmp_path, stack)
        server = await outage.serve()
        async with outage.app:
            job_id = await outage.begin()
            gone_at = time.monotonic()
            server.send_signal(signal.SIGKILL if away == "killed" else signal.SIGSTOP)
            # nobody else may start it once the lease is over: the worker stops its handler before
            await until((tmp_path / "stopped 1").exists, "the handler was not stopped while the server was away")
            assert not await outage.lapsed(job_id)
            await until(lambda: outage.lapsed(job_id), "the lease goes on without anybody who extends it")
            (tmp_path / "go").touch()
            if away == "killed":
                server.wait(LONG)
                await outage.serve()
            else:
                await asyncio.sleep(max(0.0, gone_at + OVERDUE - time.monotonic()))
                server.send_signal(signal.SIGCONT)
            await until(lambda: outage.succeeded(job_id), "the worker did not go on with it")
            view = await outage.view(job_id)
            events = [line.event.value for line in await outage.app.client().store.events(job_id)]
            outage.worker.terminate()
            said, _ = outage.worker.communicate(timeout=LONG)
        assert (view.failures, view.attempt) == (0, 2), events
        assert "requeued:stale" not in events
        if away == "killed":  # a request to one that stands still may be answered yet
            assert f"cannot use the server at {outage.at}" in said
        assert "the database" not in said
