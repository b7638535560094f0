"""Every page over the stores that keep jobs."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import asyncpg
import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.core.job import NewJob, Policy, Unique
from holdfast.core.limits import LimitKey
from holdfast.core.retry import Retry
from holdfast.server.settings import ServerSettings
from holdfast.store.port import Firing, Schedule
from holdfast.system import SystemEnvironment
from tests.server.ui.conftest import OWN
from tests.server.ui.serving import SECRET, make
from tests.server.ui.world import shop
from tests.support.majors import NEWEST
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.store.port import JobView, Store
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


LIMITED: Final = NewJob(
    id=SystemEnvironment().job_id(),
    task="night",
    queue="reports",
    args='{"of": "yesterday"}',
    priority=7,
    lease=45.0,
    policy=Policy(retry=Retry(max_attempts=2), timeout=90.0, cost=2.0),
    unique=Unique(key="one at a time", scope="nights"),
    requires=("disk",),
    prefers=("ssd",),
    prefer_for=12.0,
    tags=("x",),
    limit=LimitKey("tenants", "acme", 2.0),
)
ORDERED: Final = NewJob(
    id=SystemEnvironment().job_id(), task="tide", queue="line", fifo=True, prefers=("ssd",), prefer_for=7.0, expires_in=600.0
)
SLOT: Final = datetime(2030, 1, 1, tzinfo=UTC)


async def fired(store: Store) -> None:
    """Have two schedules whose last jobs wait."""
    for job in (LIMITED, ORDERED):
        schedule = Schedule(name=job.task, task=job.task, cron="0 3 * * *", timezone="UTC", next_at=SLOT)
        await store.schedule([schedule])
        await store.fire(Firing(name=job.task, slot=SLOT, next_at=SLOT.replace(day=2), job=job))


def kept(view: JobView | None) -> dict[str, Any]:
    """Return what was asked for with a job."""
    assert view is not None
    names = ("task", "queue", "args", "priority", "lease_seconds", "policy", "key", "scope", "tags", "requires", "prefers")
    return {name: getattr(view, name) for name in (*names, "limit", "fifo")}


def run_without_the_app(url: str) -> None:
    """Run schedules now, on a server that knows no app."""
    with TestClient(make(url), headers=OWN) as client:
        store, portal = client.app.context.store, client.portal  # type: ignore[attr-defined]  # the server that it was given
        assert portal is not None
        client.post("/login", data={"secret": SECRET})
        portal.call(fired, store)

        def run(name: str) -> JobView | None:
            answer = client.post("/schedules/run", data={"name": name})
            enqueued = re.search(rf"{name} was enqueued as job ([0-9a-f-]+)", answer.text)
            assert enqueued is not None, answer.text
            found: JobView | None = portal.call(store.get, [UUID(enqueued[1])])[0]
            return found

        ordered, last = run("tide"), portal.call(store.get, [ORDERED.id])[0]
        assert ordered is not None
        assert kept(ordered) == kept(last)
        assert ordered.fifo
        assert ordered.start_by is not None
        assert ordered.start_by - ordered.created_at == timedelta(seconds=600)

        held = client.post("/schedules/run", data={"name": "night"}).text
        assert f"night was not enqueued: job {LIMITED.id} holds its unique key" in held
        portal.call(store.cancel, [LIMITED.id])
        limited, last = run("night"), portal.call(store.get, [LIMITED.id])[0]
        assert kept(limited) == kept(last)
        assert kept(limited)["limit"] == LIMITED.limit
        assert kept(limited)["key"] == "one at a time"
        assert kept(limited)["prefers"] == {"ssd": 12.0}


def test_a_run_without_the_app_escapes_no_limit_of_the_last_one_over_memory() -> None:
    run_without_the_app("memory://")


def test_a_run_without_the_app_escapes_no_limit_of_the_last_one_over_sqlite(tmp_path: Path) -> None:
    run_without_the_app(f"sqlite:///{tmp_path}/jobs.db")


def test_a_run_without_the_app_escapes_no_limit_of_the_last_one_over_postgresql(postgres_url: str) -> None:
    run_without_the_app(postgres_url)


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
