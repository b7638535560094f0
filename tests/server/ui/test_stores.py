"""Every page over the stores that keep jobs."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import asyncpg
import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.server.settings import ServerSettings
from tests.server.ui.conftest import OWN
from tests.server.ui.serving import SECRET, make
from tests.server.ui.world import shop
from tests.support.majors import NEWEST
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers


@pytest.fixture(scope="module", params=NEWEST)
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server of the newest version; the older one with `--slow`."""
    return postgres_servers[request.param]


async def furnished(url: str) -> dict[str, UUID]:
    """Have a worker run jobs that succeed, fail and continue; returns some of them."""
    world = shop(Holdfast(url))
    async with world.app, world.app.worker(queues=["default", "mail"]):
        chain = await world.task("orders.check").start_chain(1)
        failed = await world.task("mail.send").options(tags=["x"]).enqueue("acme", 1)
        waiting = await world.task("video.transcode").options(after=[chain]).enqueue("a.mov", "g")
        await chain.result(timeout=30)

        async def ended() -> bool:
            view = (await world.app.client().store.get([failed.id]))[0]
            return view is not None and view.finished_at is not None

        await until(ended)
    return {"chain": chain.id, "failed": failed.id, "waiting": waiting.id}


def look_at(url: str) -> None:
    jobs = asyncio.run(furnished(url))
    with ExitStack() as stack:
        client = stack.enter_context(TestClient(make(url), headers=OWN))
        client.post("/login", data={"secret": SECRET})
        for path in (
            *(
                "/",
                "/?window=6h",
                "/?window=7d",
                "/jobs",
                "/queues",
                "/limits",
                "/workers?all=1",
                "/schedules",
                "/chains",
                "/audit",
                "/keys",
            ),
            *("/jobs?q=error:SMTP_CLOSED+tag:x", "/jobs/confirm?verb=retry&all=1&q=state:failed"),
            *(f"/jobs/{job}" for job in jobs.values()),
            f"/chains/{jobs['chain']}",
        ):
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text)
        assert str(jobs["failed"]) in client.get("/jobs?q=error:SMTP_CLOSED+tag:x").text
        assert client.post(f"/jobs/{jobs['failed']}/retry").status_code == 200
        assert "retry" in client.get("/audit").text


def test_pages_are_shown_over_sqlite(tmp_path: Path) -> None:
    look_at(f"sqlite:///{tmp_path}/jobs.db")


def test_pages_are_shown_over_postgresql(postgres_url: str) -> None:
    look_at(postgres_url)


async def locked(url: str) -> asyncpg.Connection[asyncpg.Record]:
    """Return a connection that keeps everybody from jobs until it is closed."""
    connection = await asyncpg.connect(url)
    await connection.execute("BEGIN; LOCK TABLE holdfast.job IN ACCESS EXCLUSIVE MODE")
    return connection


def test_a_page_is_given_up_where_the_database_takes_too_long(postgres_url: str) -> None:
    jobs = asyncio.run(furnished(postgres_url))
    settings = ServerSettings(admin_secret=SECRET, page_timeout=0.2)
    with TestClient(make(postgres_url, settings), headers=OWN) as client:
        client.post("/login", data={"secret": SECRET})
        assert client.portal is not None
        somebody = client.portal.call(locked, postgres_url)
        for path in ("/jobs", f"/jobs/{jobs['failed']}"):
            answer = client.get(path)
            assert answer.status_code == 503, (path, answer.text)
            assert "longer than the 0.2 s that a look may take" in answer.text
        client.portal.call(somebody.close)
        assert client.get("/jobs").status_code == 200
