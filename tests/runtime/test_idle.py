"""Workers with nothing to do: they cost next to nothing, and are there when they are needed."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.faults import tasks
from tests.faults.conftest import fleet
from tests.support.postgres import MAJORS, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.support import Fleet

__all__ = ["fleet"]

WATCHED = 10.5
"""Seconds: every loop of a worker but the slowest comes by at least twice."""
STATEMENT = re.compile(r".*? LOG:  (?:statement|execute [^:]*): (.*)")


@pytest.fixture(
    params=[None, MAJORS[-1], *[pytest.param(major, marks=pytest.mark.slow) for major in MAJORS[:-1]]],
    ids=lambda major: f"pg{major}" if major else "sqlite",
)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """A server of this test's own that writes down whatever it is asked; none for SQLite."""
    if request.param is None:
        yield None
        return
    with PostgresServer(request.param, settings={"log_statement": "all"}) as server:
        yield server


@pytest.fixture
def url(server: PostgresServer | None, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db" if server is None else server.create_database()


async def test_an_idle_worker_costs_next_to_nothing_and_starts_a_new_job_at_once(
    fleet: Fleet, server: PostgresServer | None
) -> None:
    worker = await fleet.started("idle", concurrency=10, poll=60.0)
    await fleet.succeeded(await fleet.enqueue(tasks.nap.call(0.0)))
    await fleet.app.close()  # nobody but the worker speaks to the store now

    process = psutil.Process(worker.pid)
    busy, asked, began = _busy(process), _asked(server), time.monotonic()
    await asyncio.sleep(WATCHED)  # what is measured is what happens while nothing does
    took = time.monotonic() - began
    share = (_busy(process) - busy) / took
    asked = _asked(server) - asked
    rate = asked.total() / took
    print(f"{100 * share:.2f} % of a processor, {rate:.2f} statements a second: {asked.most_common()}")  # noqa: T201

    assert asked or server is None, "nothing was written down: the server was asked, or the worker does not live"
    assert share < 0.01, f"a worker with nothing to do used {100 * share:.2f} % of a processor over {took:.0f} s"
    assert rate <= 2.0, (
        f"a worker with nothing to do asked the database {rate:.2f} times a second over {took:.0f} s:\n"
        + "\n".join(f"{count} times {statement}" for statement, count in asked.most_common())
    )
    # it looks by itself once a minute, so what is begun within seconds was begun because of a hint
    (view,) = await fleet.succeeded(await fleet.enqueue(tasks.nap.call(0.0)))
    (attempt,) = await fleet.store.attempts(view.id)
    waited = (attempt.claimed_at - view.created_at).total_seconds()
    assert waited < 5, f"the job waited {waited:.1f} s: the worker did not hear of it"


def _busy(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _asked(server: PostgresServer | None) -> Counter[str]:
    """Return how often each statement was sent to the server so far."""
    lines = [] if server is None else server.log.splitlines()
    return Counter(found[1][:100] for line in lines if (found := STATEMENT.match(line)))
