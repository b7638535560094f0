"""`holdfast migrate`, `prune` and `config`: the store's schema, its old jobs, and the settings."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, actor, run, store_url
from holdfast.cli.output import Column
from holdfast.config import SECRETS, load
from holdfast.core.spans import span
from holdfast.core.states import LIVE, TERMINAL, State
from holdfast.finding import Mistake, jobs_where, matching
from holdfast.store.port import ChainView, JobFilter, JobView, Retention, Store

if TYPE_CHECKING:
    from uuid import UUID

BATCH = 5_000
CHAINS = 500
"""Chains that are looked at together."""


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
    signals: str | None = None,
    enqueues: str | None = None,
    workers: str | None = None,
    dry_run: Yes = False,
    common: Common = COMMON,
) -> None:
    """Delete jobs that ended long ago, with all their records; old signals, and old lines of the audit log about enqueues.

    Example: holdfast prune --succeeded 7d --failed never

    What is not given is taken from the settings retention_succeeded, retention_failed, retention_canceled,
    retention_signals, retention_enqueues and retention_workers. The steps of a chain are kept until its last one is old
    enough; what a live job waits for, or will be handed the result of, is kept until that job has ended. Workers prune by
    themselves too: by these settings where they are set, else by the retention that their app declares. Of what is pruned
    here, the audit log says by whom.

    Parameters
    ----------
    succeeded
        How long succeeded jobs are kept: 12h, 7d, never.
    failed
        How long failed ones are.
    canceled
        How long canceled ones are.
    signals
        How long signals are, from when they were emitted.
    enqueues
        How long the audit log keeps lines about enqueues. All others it keeps for ever.
    workers
        How long workers that are offline are listed. Jobs name for ever who processed them.
    dry_run
        Only count jobs. Looks at every job there is, so it may take a while.
    """
    given = {"succeeded": succeeded, "failed": failed, "canceled": canceled}
    given |= {"signals": signals, "enqueues": enqueues, "workers": workers}
    retention = load({f"retention_{name}": value for name, value in given.items()}).settings.retention

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
        pruned = await store.prune(retention, limit=BATCH, after=after, by=actor())
        total, after = total + pruned.count, pruned.after
        if after is None:
            return total


async def _old(store: Store, retention: Retention) -> Counter[str]:
    now = await store.now()
    bounds = {state: now - timedelta(seconds=age) for state, age in retention.seconds().items()}
    counts: Counter[str] = Counter()
    steps: Counter[UUID] = Counter()
    """By their chain: they go when its last step does."""
    needed = {chain async for job in matching(jobs_where(store, JobFilter(states=LIVE)), limit=None) for chain in job.after}
    async for job in matching(jobs_where(store, JobFilter(states=TERMINAL)), limit=None):
        if job.chain_id is not None:
            steps[job.chain_id] += 1
        elif _is_old(job, bounds) and job.id not in needed:
            counts[job.state] += 1
    ids = list(steps.keys() - needed)
    for start in range(0, len(ids), CHAINS):
        for chain in await store.chains(ids[start : start + CHAINS]):
            if chain is not None and _is_old(chain, bounds):
                counts[chain.state] += steps[chain.id]
    return counts


def _is_old(ended: JobView | ChainView, bounds: Mapping[State, datetime]) -> bool:
    bound = bounds.get(ended.state)
    return bound is not None and ended.finished_at is not None and ended.finished_at <= bound


def config(*, common: Common = COMMON) -> None:
    """Show every setting with its value and where that comes from.

    Example: holdfast config

    holdfast.toml, or [tool.holdfast] in pyproject.toml, of the current folder < environment (HOLDFAST_CONCURRENCY=20) < flags.
    """
    from holdfast.connect import without_password  # noqa: PLC0415  not needed for --help
    from holdfast.core.redact import MASK  # noqa: PLC0415  as above

    loaded = load({"url": common.url})
    values = output.fields(loaded.settings)
    if values["url"] is not None:
        values["url"] = without_password(values["url"])
    if values["redis_url"] is not None:
        values["redis_url"] = without_password(values["redis_url"])
    values["alerts"] = {
        name: about | ({"secret": MASK} if "secret" in about else {}) for name, about in values["alerts"].items()
    }
    values |= {name: "***" for name in SECRETS if values[name] is not None}
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
    if value is None or value == "":
        return {"queues": "all", "poll": "auto"}.get(name, "never" if name.startswith("retention") else "-")
    if isinstance(value, (tuple, dict)):
        return ",".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return span(value) if isinstance(value, float) else value
