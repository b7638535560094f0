"""`holdfast move`: a jobs file becomes a PostgreSQL store, whole or not at all."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import Yes, with_store
from holdfast.connect import dump, load, without_password
from holdfast.core.outcome import Released
from holdfast.core.settle import settle
from holdfast.core.states import State
from holdfast.errors import NotAllowed
from holdfast.finding import Mistake
from holdfast.store.port import JobFilter, Settlement, Store, WorkerState
from holdfast.store.transfer import TABLES, Moved, Source, Target, transfer

RECENT = 60.0
"""Seconds since its last sign of life within which a worker counts as running."""
MOST_WORKERS = 10_000
"""Workers that are looked through."""


def move(
    source: str,
    target: str,
    /,
    *,
    abandon_running: Yes = False,
    force: Yes = False,
    as_json: Annotated[Yes, Parameter(name="--json")] = False,
) -> None:
    """Copy a jobs file to an empty PostgreSQL schema, and check that everything arrived.

    Example: holdfast move sqlite:///jobs.db postgresql://user@host/database

    Jobs in every state with their ids, args, attempts, events, logs, parts and unique keys; workers, schedules and pauses;
    access keys, the audit log and figures. All in one transaction: when anything fails, nothing is there. The file stays as
    it is. Stop workers and producers first, and point them at the new store afterwards.

    Parameters
    ----------
    source
        The file: sqlite:///jobs.db.
    target
        The store: postgresql://user@host/database, `?schema=name` for another schema than "holdfast". Made if it is missing.
    abandon_running
        Give running jobs back, free of charge, in the file too. Whoever still runs them can change nothing any more.
    force
        Move although workers of the file were heard of within the last minute.
    as_json
        Print the result as JSON.
    """
    if not source.startswith("sqlite:") or not target.startswith(("postgresql:", "postgres:")):
        raise Mistake("move goes from a file to PostgreSQL: holdfast move sqlite:///jobs.db postgresql://user@host/database")
    asyncio.run(with_store(source, lambda store: _prepare(store, abandon=abandon_running, force=force)))
    moved = asyncio.run(_move(source, target))
    if as_json:
        output.print_json({"tables": moved.tables, "states": moved.states, "digest": moved.digest})
        return
    states = ", ".join(f"{count} {state}" for state, count in moved.states.items()) or "none"
    print(f"moved {moved.tables['job']} job(s): {states}")
    print(f"{sum(moved.tables.values())} rows in {len(moved.tables)} tables arrived; both sides hash to {moved.digest}")
    output.note(f"from now on: export HOLDFAST_URL={without_password(target)}; what the file gets now stays there")


async def _prepare(store: Store, *, abandon: bool, force: bool) -> None:
    """Refuse a file that is in use, and give back what runs where that was asked for."""
    now = await store.now()
    views = await store.workers(limit=MOST_WORKERS)
    live = [
        view.worker.name
        for view in views
        if view.state is not WorkerState.OFFLINE and (now - (view.heartbeat_at or view.registered_at)).total_seconds() < RECENT
    ]
    if live and not force:
        raise NotAllowed(
            f"{len(live)} worker(s) of the file were heard of within the last minute: {', '.join(live[:5])}. "
            "Stop them first, or move regardless: --force"
        )
    running = (await store.stats()).count(State.RUNNING)
    if running and not abandon:
        raise NotAllowed(
            f"{running} job(s) run under leases, which do not travel. Wait until they end or are reaped, "
            "or give them back unrun, free of charge: --abandon-running"
        )
    while running:
        await _release(store)
        running = (await store.stats()).count(State.RUNNING)


async def _release(store: Store) -> None:
    page = await store.find(JobFilter(states=frozenset({State.RUNNING})), limit=1000)
    now, given_back = await store.now(), Released("moved to another store")
    for worker in {job.worker_id for job in page.jobs if job.worker_id is not None}:
        leases = await store.holding(worker)
        held = zip(leases, await store.get([lease.job_id for lease in leases]), strict=True)
        await store.settle(
            [
                Settlement(lease, settle(given_back, view.policy.retry, view.failures, now, lambda: 0.0))
                for lease, view in held
                if view is not None
            ]
        )


async def _move(source: str, target: str) -> Moved:
    moved: list[Moved] = []
    with dump(source) as rows, _progress(rows) as tell:

        async def work(filling: Target) -> None:
            moved.append(await transfer(rows, filling, tell))

        await load(target, work)
    return moved[-1]


@contextmanager
def _progress(source: Source) -> Iterator[Callable[[str, int], None]]:
    """Show how far it is, where somebody looks."""
    if not sys.stderr.isatty():
        yield lambda _table, _rows: None
        return
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.progress import Progress  # noqa: PLC0415  only on a terminal

    totals = {table: source.count(table) for table in TABLES}
    places = dict(zip(TABLES, (sum(list(totals.values())[:index]) for index in range(len(totals))), strict=True))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("moving", total=sum(totals.values()))

        def tell(table: str, rows: int) -> None:
            progress.update(bar, completed=places[table] + rows, description=f"moving {table}")

        yield tell
