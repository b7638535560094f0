"""`holdfast top`: queues, workers and running jobs, live."""

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, run
from holdfast.cli.output import Column, cell
from holdfast.cli.snapshot import MOST_RUNNING, Snapshot, Throughput, as_json, elapsed, left, take
from holdfast.core.spans import ago, span
from holdfast.core.states import State
from holdfast.finding import Mistake, seconds
from holdfast.store.port import QueueView, Store

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR = 20
SHORTEST = 0.1
ROWS = 20


def top(*, interval: Annotated[str, Parameter(alias="-i")] = "1s", once: Yes = False, common: Common = COMMON) -> None:
    """Watch queues, workers and running jobs. Ctrl-C ends it.

    Example: holdfast top --interval 2s

    Where nobody looks (a pipe) it prints once; so does --json.

    Parameters
    ----------
    interval
        How long between two looks.
    once
        Print once and end.
    """
    rest = seconds(interval, "--interval")
    if rest < SHORTEST:
        raise Mistake(f"--interval must be {SHORTEST:g} s or more, not {interval}")

    async def work(store: Store) -> None:
        if once or common.as_json or not output.interactive():
            snapshot = await take(store)
            if common.as_json:
                output.print_json(as_json(snapshot, None))
            elif output.interactive():
                output.console().print(drawn(snapshot, None))
            else:
                _print_plain(snapshot)
            return
        await _live(store, rest)

    run(common, work)


async def _live(store: Store, rest: float) -> None:
    from rich.live import Live  # noqa: PLC0415  only on a terminal

    throughput = Throughput()
    with Live(console=output.console(), screen=True, auto_refresh=False) as live:
        while True:
            snapshot = await take(store)
            live.update(drawn(snapshot, throughput.add(snapshot)), refresh=True)
            await asyncio.sleep(rest)


def drawn(snapshot: Snapshot, per_second: float | None) -> "RenderableType":
    """Return the whole view."""
    from rich.console import Group  # noqa: PLC0415  only on a terminal
    from rich.text import Text  # noqa: PLC0415  only on a terminal

    counts = "  ".join(f"{snapshot.stats.count(state)} {state}" for state in State)
    rate = "" if per_second is None else f"  |  {per_second:.1f} jobs/s"
    return Group(
        Text(f"holdfast  {output.moment(snapshot.at)}  |  {counts}{rate}", style="bold"),
        Text(),
        _queues(snapshot),
        Text(),
        _workers(snapshot),
        Text(),
        _running(snapshot),
    )


def _queues(snapshot: Snapshot) -> "RenderableType":
    columns = (
        Column("queue"),
        Column("waiting", right=True),
        Column("scheduled", right=True),
        Column("running", right=True),
        Column("failed", right=True),
        Column("oldest", right=True),
        Column("paused", shrinks=True),
    )
    busiest = sorted(snapshot.queues, key=lambda queue: (-queue.counts.get(State.READY, 0), queue.name))
    rows = [
        [
            cell(queue.name),
            cell(queue.counts.get(State.READY, 0)),
            cell(queue.counts.get(State.SCHEDULED, 0) + queue.counts.get(State.BLOCKED, 0)),
            cell(queue.counts.get(State.RUNNING, 0)),
            cell(queue.counts.get(State.FAILED, 0)),
            span(queue.oldest_waiting),
            cell(_pause(queue)),
        ]
        for queue in busiest[:ROWS]
    ]
    return output.table(columns, rows, title=_title("queues", len(busiest)))


def _workers(snapshot: Snapshot) -> "RenderableType":
    columns = (
        Column("worker", shrinks=True),
        Column("state"),
        Column("running", right=True),
        Column("slots", right=True),
        Column("heard"),
    )
    rows = [
        [
            cell(view.worker.name),
            view.doing(snapshot.at),
            cell(view.running),
            cell(view.worker.slots),
            ago(view.heartbeat_at or view.registered_at, snapshot.at),
        ]
        for view in snapshot.workers[:ROWS]
    ]
    return output.table(columns, rows, title=_title("workers", len(snapshot.workers)))


def _running(snapshot: Snapshot) -> "RenderableType":
    columns = (
        Column("running job", is_id=True),
        Column("task"),
        Column("for", right=True),
        Column("progress"),
        Column("left", right=True),
        Column("step", shrinks=True),
    )
    rows = [
        [
            str(job.id),
            cell(job.task),
            span(elapsed(job, snapshot.at)),
            "-" if job.progress is None else bar(job.progress),
            span(left(job, snapshot.at)),
            cell(" ".join(part for part in (job.step, job.message) if part) or ("expired" if job.lapsed else "-")),
        ]
        for job in snapshot.running[:ROWS]
    ]
    total = max(len(snapshot.running), snapshot.stats.count(State.RUNNING))
    return output.table(columns, rows, title=_title("running", total))


def bar(percent: float) -> str:
    """Return a progress bar."""
    full = round(percent / 100 * BAR)
    return "█" * full + "░" * (BAR - full) + f" {percent:3.0f} %"


def _title(name: str, count: int) -> str:
    return f"{name} ({count})" if count <= ROWS else f"{name} ({ROWS} of {count})"


def _pause(queue: QueueView) -> str:
    if queue.paused_at is None:
        return "-"
    return " ".join(part for part in ("paused", f"by {queue.paused_by}" if queue.paused_by else "", queue.reason) if part)


def _print_plain(snapshot: Snapshot) -> None:
    """Write the same facts as lines that begin with their kind."""
    for state in State:
        print(f"count\t{state}\t{snapshot.stats.count(state)}")
    for queue in snapshot.queues:
        waiting = queue.counts.get(State.READY, 0)
        print("\t".join(map(cell, ("queue", queue.name, waiting, span(queue.oldest_waiting), _pause(queue)))))
    for view in snapshot.workers:
        heard = view.heartbeat_at or view.registered_at
        print(
            "\t".join(map(cell, ("worker", view.worker.name, view.doing(snapshot.at), view.running, view.worker.slots, heard)))
        )
    for job in snapshot.running[:MOST_RUNNING]:
        print("\t".join(map(cell, ("running", job.id, job.task, f"{elapsed(job, snapshot.at):.1f}", job.progress, job.step))))
