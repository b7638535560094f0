"""`holdfast migrate`, `prune` and `config`: the store's schema, its old jobs, and the settings."""

import asyncio
from collections import Counter
from datetime import timedelta

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Mistake, Yes, run, store_url
from holdfast.cli.filters import matching
from holdfast.cli.output import Column
from holdfast.config import load
from holdfast.core.states import TERMINAL
from holdfast.store.port import JobFilter, Retention, Store

BATCH = 5_000


def migrate(url: str | None = None, /, *, common: Common = COMMON) -> None:
    """Create the schema of a store, or bring it up to date.

    Safe to run at any time and from several places at once: they take turns, and a schema that is up to date is left
    alone. Workers of the version before may go on running meanwhile.

    Example: holdfast migrate postgresql://user@host/database

    Parameters
    ----------
    url
        The store: postgresql://user@host/database, sqlite:///jobs.db (relative) or sqlite:////var/lib/jobs.db (absolute).
        `?schema=name` names another PostgreSQL schema than "holdfast".
    """
    from holdfast.connect import migrate as migrate_store  # noqa: PLC0415  not needed for --help

    if url is not None and common.url is not None:
        raise Mistake("the store is named twice: leave out --url")
    before, after = asyncio.run(migrate_store(store_url(url or common.url)))
    if common.as_json:
        output.print_json({"before": before, "after": after})
    elif before == after:
        print(f"up to date: version {after}")
    elif before == 0:
        print(f"created: version {after}")
    else:
        print(f"upgraded: version {before} -> {after}")


def prune(
    *,
    succeeded: str | None = None,
    failed: str | None = None,
    canceled: str | None = None,
    dry_run: Yes = False,
    common: Common = COMMON,
) -> None:
    """Delete jobs that ended long ago, with all their records.

    Example: holdfast prune --succeeded 7d --failed never

    What is not given is taken from the settings retention_succeeded, retention_failed and retention_canceled. Workers
    prune by themselves too: by these settings where they are set, else by the retention that their app declares.

    Parameters
    ----------
    succeeded
        How long succeeded jobs are kept: 12h, 7d, never.
    failed
        How long failed ones are.
    canceled
        How long canceled ones are.
    dry_run
        Only count. Looks at every job that has ended, so it may take a while.
    """
    flags = {"retention_succeeded": succeeded, "retention_failed": failed, "retention_canceled": canceled}
    settings = load(flags).settings
    retention = Retention(
        succeeded=settings.retention_succeeded, failed=settings.retention_failed, canceled=settings.retention_canceled
    )

    async def work(store: Store) -> None:
        if dry_run:
            counts = await _old(store, retention)
            total = sum(counts.values())
        else:
            counts, total = Counter(), await _prune(store, retention)
        if common.as_json:
            output.print_json({"dry_run": dry_run, "count": total, **({"states": counts} if dry_run else {})})
        elif dry_run:
            parts = ", ".join(f"{count} {state}" for state, count in counts.items())
            print(f"would delete {total} job(s)" + (f": {parts}" if parts else ""))
        else:
            print(f"deleted {total} job(s)")

    run(common, work)


async def _prune(store: Store, retention: Retention) -> int:
    total, after = 0, None
    while True:
        pruned = await store.prune(retention, limit=BATCH, after=after)
        total, after = total + pruned.count, pruned.after
        if after is None:
            return total


async def _old(store: Store, retention: Retention) -> Counter[str]:
    now = await store.now()
    bounds = {state: now - timedelta(seconds=age) for state, age in retention.seconds().items()}
    counts: Counter[str] = Counter()
    async for job in matching(store, JobFilter(states=TERMINAL), limit=None):
        bound = bounds.get(job.state)
        if bound is not None and job.finished_at is not None and job.finished_at <= bound:
            counts[job.state] += 1
    return counts


def config(*, common: Common = COMMON) -> None:
    """Show every setting with its value and where that comes from.

    Example: holdfast config

    holdfast.toml, or [tool.holdfast] in pyproject.toml, of the current folder < environment (HOLDFAST_CONCURRENCY=20) < flags.
    """
    from holdfast.connect import without_password  # noqa: PLC0415  not needed for --help

    loaded = load({"url": common.url})
    values = output.fields(loaded.settings)
    if values["url"] is not None:
        values["url"] = without_password(values["url"])
    if common.as_json:
        output.print_json(
            {
                "file": loaded.file,
                "settings": {name: {"value": value, "origin": loaded.origins[name]} for name, value in values.items()},
            }
        )
        return
    rows = [(name, _shown(name, value), loaded.origins[name]) for name, value in values.items()]
    output.print_table((Column("setting"), Column("value"), Column("origin")), rows, empty="")


def _shown(name: str, value: object) -> object:
    if value is None:
        return {"queues": "all", "url": "-", "app": "-", "poll": "auto"}.get(name, "never")
    if isinstance(value, tuple):
        return ",".join(value)
    return output.span(value) if isinstance(value, float) else value
