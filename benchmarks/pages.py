"""How long the server takes for each page of the dashboard, with millions of jobs behind it, on PostgreSQL 18 with fsync on.

    ./dev bench pages                  5 million jobs that have ended, and what waits, runs and fails besides (about 10 minutes)
    ./dev bench pages --jobs 100000    a short look: it is printed, not written

The pages are asked for through the application itself, without a network: what is measured is the server's time, database
included. An admin asks for every page; a viewer whose key is bound to some queues asks for the overview, for which figures are
added up over these alone. Every page is asked for several times; the first answer, with nothing in memory, is told apart: it is
shown, and not judged. The whole run writes benchmarks/results/pages.json. Exit code 1: the median of the other answers of some
page is above the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import httpx2

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, report_of, tell, this_run
from benchmarks.filling import Filler
from benchmarks.machine import this_machine
from benchmarks.results import Reading
from benchmarks.servers import Servers
from benchmarks.serving import a_key
from holdfast import connect
from holdfast.core.job import NewJob
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.server.alerts.delivering import QUEUE as ALERTS
from holdfast.server.alerts.delivering import TASK as DELIVER
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings
from holdfast.store.port import ClaimRequest, JobFilter, Role, Settlement, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.lease import Claimed
    from holdfast.server.asgi import Server
    from holdfast.store.port import Store

BOUND: Final = 0.3
"""Seconds that a page may take in the median of its answers but the first."""
SECRET: Final = "a secret of the benchmarks"
QUEUES: Final = tuple(f"queue-{number}" for number in range(10))
OWN: Final = QUEUES[:3]
"""Those that the viewer's key is bound to."""
OVERVIEW: Final = ("/", "/?window=6h", "/?window=7d")
LANES: Final = tuple((queue, f"task.{number}") for number, queue in enumerate(QUEUES * 5))
FAILING: Final = (("default", "mail.send"),)
RUNNING: Final = 5_000
CHAINS: Final = 2_000
DELIVERIES: Final = 200
BATCH: Final = 500
LEASE: Final = 86_400.0
"""Seconds: longer than any run of this, so that nothing lapses meanwhile."""
ALERT: Final = (
    '{"target": "ops", "alert": {"kind": "queue_stalled", "text": "mail waits", "count": 1, "about": []}, '
    '"at": "2026-11-17T12:00:00Z"}'
)
WORLD: Final = SystemEnvironment()
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
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    path = destination("pages", options.json, whole=is_whole(parser, options, "jobs", "rounds"))
    run = this_run("pages", arguments)
    with Servers() as servers:
        servers.start({"postgres"})
        with servers.fresh("postgres") as place:
            found = asyncio.run(measured(place.url, options.jobs, options.rounds))
        machine = this_machine(servers.versions(), servers.settings())
    print(f"server time of pages over {options.jobs:,} ended jobs, PostgreSQL 18, ms")
    print(f"{'page':64} {'first':>8} {'p50':>8} {'slowest':>8}")
    for page, times in found.items():
        first, median, slowest = shown(times)
        print(f"{page:64} {first:8.1f} {median:8.1f} {slowest:8.1f}")
    keep(report_of("pages", run, machine, readings(found, options.jobs)), path)
    too_slow = slow(found)
    for line in (judged(found), *too_slow):
        tell(line)
    return 1 if too_slow else 0


def shown(times: Sequence[float]) -> tuple[float, float, float]:
    """Return in ms the first answer, and of the others the median and the slowest."""
    later = times[1:] or times
    return 1000 * times[0], 1000 * statistics.median(later), 1000 * max(later)


def judged(found: Mapping[str, Sequence[float]]) -> str:
    """Return what the verdict is about, and what it leaves out."""
    first, median, slowest = (max(one) for one in zip(*map(shown, found.values()), strict=True))
    return (
        f"judged: the median of each page's answers but the first, which may be {1000 * BOUND:.0f} ms. "
        f"The highest is {median:.0f} ms. Not judged: the slowest of these answers ({slowest:.0f} ms), "
        f"and the slowest first one, with nothing in memory ({first:.0f} ms)"
    )


def slow(found: Mapping[str, Sequence[float]]) -> list[str]:
    """Return of every page that is too slow by how much."""
    return [
        f"too slow: {page}: median {median:.0f} ms, slowest {slowest:.0f} ms, first {first:.0f} ms"
        for page, times in found.items()
        for first, median, slowest in (shown(times),)
        if median > 1000 * BOUND
    ]


def readings(found: Mapping[str, Sequence[float]], jobs: int) -> list[Reading]:
    """Return what each answer took, as it is published: the first of each page, with nothing in memory, by itself."""
    extra: dict[str, float | str] = {"jobs": jobs}
    return [
        Reading("holdfast_postgres", f"{'page' if number else 'first'} {page}", number, 1000 * seconds, "ms", "lower", extra)
        for page, times in found.items()
        for number, seconds in enumerate(times)
    ]


async def measured(url: str, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each page took, by what it is called, the first answer first."""
    tell(f"filling in {jobs:,} jobs")
    await filled(url, jobs)
    visits = {SECRET: await pages(url), await viewer(url): {f"{path} (a viewer of some queues)": path for path in OVERVIEW}}
    server = create_server(url, ServerSettings(admin_secret=SECRET), housekeeping=False)
    found: dict[str, list[float]] = {}
    async with server.router.lifespan_context(server):
        for secret, paths in visits.items():
            found |= await visited(server, secret, paths, rounds)
    return found


async def visited(server: Server, secret: str, paths: Mapping[str, str], rounds: int) -> dict[str, list[float]]:
    """Log in, ask for pages, and return what each answer took."""
    found: dict[str, list[float]] = {}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(server), base_url="http://127.0.0.1", timeout=120) as client:
        answer = await client.post("/login", data={"secret": secret}, headers={"origin": "http://127.0.0.1"})
        assert not answer.is_error, answer.text
        for name, path in paths.items():
            times = []
            for _ in range(rounds):
                begun = time.perf_counter()
                answer = await client.get(path)
                times.append(time.perf_counter() - begun)
                assert answer.is_success, f"{path}: {answer.status_code} {answer.text[:500]}"
            found[name] = times
            tell(f"{name}: {1000 * statistics.median(times):.0f} ms")
    return found


async def viewer(url: str) -> str:
    """Keep a key that sees some queues alone, and return it."""
    store = connect(url)
    await store.open()
    try:
        return await a_key(store, "viewer", Role.VIEWER, OWN)
    finally:
        await store.close()


async def filled(url: str, jobs: int) -> None:
    """Fill a database: what has ended, failed, runs, waits and is due later, chains, with the figures of a week."""
    async with Filler(url) as filler:
        await filler.fill(jobs, LANES, state=State.SUCCEEDED)
        await filler.fill(max(1, jobs // 25), FAILING, state=State.SUCCEEDED)
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(FAIL)
            await connection.execute(FIGURES)
        finally:
            await connection.close()
        await furnished(url)
        await filler.fill(max(1, jobs // 50), LANES)
        await filler.fill(max(1, jobs // 50), LANES, state=State.SCHEDULED)
        await filler.rest()


async def furnished(url: str) -> None:
    """Have the store itself make what is not copied: chains of two steps, deliveries of alerts, and jobs that run."""
    store, worker = connect(url), Worker(id=WORLD.token(), name="bench", slots=RUNNING)
    await store.open()
    try:
        await store.register(worker)
        for first in await claimed(store, worker, "orders.check", CHAINS, chained=True):
            then = NewJob(id=WORLD.job_id(), task="orders.ship")
            await store.settle([Settlement(first.lease, Write(Event.CONTINUE, 0, result="null"), then=then)])
        deliveries = await claimed(store, worker, DELIVER, DELIVERIES, queue=ALERTS, args=ALERT)
        await store.settle([Settlement(one.lease, Write(Event.SUCCEED, 0, result='{"status": 202}')) for one in deliveries])
        await claimed(store, worker, "video.transcode", RUNNING, queue="video")
    finally:
        await store.close()


async def claimed(
    store: Store, worker: Worker, task: str, count: int, *, chained: bool = False, queue: str = "default", args: str = "{}"
) -> list[Claimed]:
    """Enqueue jobs, and claim them all."""
    found: list[Claimed] = []
    while len(found) < count:
        ids = [WORLD.job_id() for _ in range(min(BATCH, count - len(found)))]
        await store.enqueue(
            [NewJob(id=one, task=task, queue=queue, args=args, lease=LEASE, chain_id=one if chained else None) for one in ids]
        )
        found += await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({task}), limit=len(ids), look=True))
    return found


async def pages(url: str) -> dict[str, str]:
    """Return the pages that are asked for, by what each is called: every one, lists by every filter, and questions."""
    store = connect(url)
    await store.open()
    try:
        (failed,) = (await store.find(JobFilter(states=frozenset({State.FAILED})), limit=1)).jobs
        (waiting,) = (await store.find(JobFilter(states=frozenset({State.READY}), queue=QUEUES[0]), limit=1)).jobs
        (running,) = (await store.running(limit=1)).jobs
        (chain,) = (await store.find_chains(JobFilter(), limit=1)).chains
        page = await store.find(JobFilter(), limit=50)
    finally:
        await store.close()
    searches = ["state:failed", "state:ready", "state:running", "task:task.7", "queue:queue-3", "state:succeeded queue:queue-3"]
    searches += ["tag:nobody", "key:nobody", "error:SMTP_CLOSED", "task:nobody", "since:1h", "state:failed task:task.7"]
    searches += ["state:failed queue:queue-3", "state:canceled", "task:task.7 tag:nobody", "state:scheduled tag:nobody"]
    questions = {"retry": ["tag:nobody", "state:failed", "error:SMTP_CLOSED", "error:NOBODY", "since:1h error:NOBODY"]}
    questions |= {"cancel": ["", "tag:nobody", "since:1h"], "delete": ["state:succeeded", "task:task.7 tag:nobody"]}
    group = "task=mail.send&code=SMTP_CLOSED&frame="
    plain = [*OVERVIEW, "/jobs", *(f"/jobs?q={search.replace(' ', '+')}" for search in searches)]
    plain += [
        f"/jobs/confirm?verb={verb}&all=1&q={search.replace(' ', '+')}" for verb, given in questions.items() for search in given
    ]
    plain += ["/queues", "/limits", "/workers", "/schedules", "/chains", "/alerts", "/audit", "/keys", "/metrics"]
    named = {"a later page of jobs": f"/jobs?after={page.after}", "a group to retry": f"/jobs/confirm?verb=retry&{group}"}
    named |= {"a job that failed": f"/jobs/{failed.id}", "a job that waits": f"/jobs/{waiting.id}"}
    named |= {"a job that runs": f"/jobs/{running.id}", "a chain": f"/chains/{chain.id}"}
    return {path: path for path in plain} | named


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
