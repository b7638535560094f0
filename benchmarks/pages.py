"""How long the server takes for each page of the dashboard, with millions of jobs behind it, on PostgreSQL 18 with fsync on.

    ./dev bench pages                    5 million jobs that have ended, and what waits and fails besides (about 10 minutes)
    ./dev bench pages --jobs 100000      a short look

The pages are asked for through the application itself, without a network: what is measured is the server's time, database
included. Every page is asked for several times; the first answer, with nothing in memory, is told apart. Exit code 1: a page
took longer than the bound in most of its answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import httpx2

from benchmarks.commands import at_least_one, tell
from benchmarks.filling import Filler
from benchmarks.machine import this_machine
from benchmarks.servers import Servers
from holdfast import connect
from holdfast.core.states import State
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings
from holdfast.store.port import JobFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUND: Final = 0.3
"""Seconds that a page may take."""
SECRET: Final = "a secret of the benchmarks"
QUEUES: Final = tuple(f"queue-{number}" for number in range(10))
LANES: Final = tuple((queue, f"task.{number}") for number, queue in enumerate(QUEUES * 5))
FAILING: Final = (("default", "mail.send"),)
FIGURES: Final = """
INSERT INTO holdfast.figure (grain, at, queue, task, event, code, count, waited, ran, waits, runs)
SELECT g.grain, t.at, CASE n WHEN 50 THEN '' ELSE 'queue-' || n % 10 END, CASE n WHEN 50 THEN '' ELSE 'task.' || n END,
    e.event, '', 100, 10, 20, array_fill(5, ARRAY[20]), array_fill(5, ARRAY[20])
FROM (VALUES ('minute', interval '1 minute', 1440), ('hour', interval '1 hour', 2160)) g(grain, step, steps)
CROSS JOIN LATERAL (SELECT date_trunc(g.grain, now()) - i * g.step AS at FROM generate_series(0, g.steps - 1) i) t
CROSS JOIN generate_series(0, 50) n CROSS JOIN (VALUES ('succeeded'), ('retried:later')) e(event)
"""
FAIL: Final = """
WITH ended AS (
    UPDATE holdfast.archive a SET state = 'failed', code = 'SMTP_CLOSED', message = 'the mail server hung up', failures = 3
    FROM holdfast.job j WHERE j.id = a.job_id AND j.task = 'mail.send' RETURNING a.*
), told AS (
    INSERT INTO holdfast.attempt (job_id, attempt, event, claimed_at, ended_at, worker, late, code, message, traceback)
    SELECT job_id, attempt, 'failed', claimed_at, finished_at, worker, false, code, message, 'File "mail.py", line 7, in send'
    FROM ended
)
INSERT INTO holdfast.tally (lane, succeeded, failed) SELECT lane, -count(*), count(*) FROM ended GROUP BY lane
"""


def main(arguments: Sequence[str]) -> int:
    """Fill a database, ask for every page, and tell."""
    parser = argparse.ArgumentParser(prog="./dev bench pages", description="How long the server takes for each page.")
    parser.add_argument("--jobs", type=at_least_one, default=5_000_000, help="jobs that have ended (default: %(default)s)")
    parser.add_argument("--rounds", type=at_least_one, default=20, help="answers of each page (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args(arguments)
    with Servers() as servers:
        servers.start({"postgres"})
        with servers.fresh("postgres") as place:
            found = asyncio.run(measured(place.url, options.jobs, options.rounds))
    machine = this_machine()
    slow = [path for path, times in found.items() if statistics.median(times[1:] or times) > BOUND]
    print(f"server time of pages over {options.jobs:,} ended jobs, PostgreSQL 18, ms")
    print(f"{'page':64} {'first':>8} {'p50':>8} {'max':>8}")
    for path, (first, *rest) in found.items():
        later = rest or [first]
        print(f"{path:64} {1000 * first:8.1f} {1000 * statistics.median(later):8.1f} {1000 * max(later):8.1f}")
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": repr(machine), "jobs": options.jobs, "pages": found}, indent=2))
    for path in slow:
        tell(f"too slow: {path}")
    return 1 if slow else 0


async def measured(url: str, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each page took, the first answer first."""
    tell(f"filling in {jobs:,} jobs")
    await filled(url, jobs)
    server = create_server(url, ServerSettings(admin_secret=SECRET), housekeeping=False)
    found: dict[str, list[float]] = {}
    async with server.router.lifespan_context(server):
        transport = httpx2.ASGITransport(server)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as client:
            headers = {"origin": "http://127.0.0.1"}
            answer = await client.post("/login", data={"secret": SECRET}, headers=headers)
            assert not answer.is_error, answer.text
            for path in await pages(url):
                times = []
                for _ in range(rounds):
                    begun = time.perf_counter()
                    answer = await client.get(path)
                    times.append(time.perf_counter() - begun)
                    assert answer.is_success, f"{path}: {answer.status_code} {answer.text[:500]}"
                found[path] = times
                tell(f"{path}: {1000 * statistics.median(times):.0f} ms")
    return found


async def filled(url: str, jobs: int) -> None:
    """Fill a database: what has ended, failed, waits and is due later, with the figures of a week."""
    async with Filler(url) as filler:
        await filler.fill(jobs, LANES, state=State.SUCCEEDED)
        await filler.fill(max(1, jobs // 25), FAILING, state=State.SUCCEEDED)
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(FAIL)
            await connection.execute(FIGURES)
        finally:
            await connection.close()
        await filler.fill(max(1, jobs // 50), LANES)
        await filler.fill(max(1, jobs // 50), LANES, state=State.SCHEDULED)
        await filler.rest()


async def pages(url: str) -> list[str]:
    """Return the pages that are asked for: every one, and lists by every filter."""
    store = connect(url)
    await store.open()
    try:
        (failed,) = (await store.find(JobFilter(states=frozenset({State.FAILED})), limit=1)).jobs
        (waiting,) = (await store.find(JobFilter(states=frozenset({State.READY})), limit=1)).jobs
        page = await store.find(JobFilter(), limit=50)
    finally:
        await store.close()
    searches = ["state:failed", "state:ready", "state:running", "task:task.7", "queue:queue-3", "state:succeeded queue:queue-3"]
    searches += ["tag:nobody", "key:nobody", "error:SMTP_CLOSED", "task:nobody", "since:1h", "state:failed task:task.7"]
    searches += ["state:failed queue:queue-3", "state:canceled", "task:task.7 tag:nobody", "state:scheduled tag:nobody"]
    return [
        *("/", "/?window=6h", "/?window=7d", "/jobs", f"/jobs?after={page.after}"),
        *(f"/jobs?q={search.replace(' ', '+')}" for search in searches),
        *(f"/jobs/{failed.id}", f"/jobs/{waiting.id}"),
        *("/queues", "/workers", "/schedules", "/chains", "/audit", "/keys", "/metrics"),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
