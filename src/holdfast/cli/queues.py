"""`holdfast queues`: what each holds, and pausing."""

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, actor, run, tell
from holdfast.cli.output import Column
from holdfast.core.spans import span
from holdfast.core.states import State
from holdfast.core.text import checked_name
from holdfast.notify.port import Hint
from holdfast.store.port import QueueView, Store

COLUMNS = (
    Column("queue"),
    *(Column(state, right=True) for state in State),
    Column("oldest", right=True),
    Column("paused", shrinks=True),
)


def ls(*, common: Common = COMMON) -> None:
    """List the queues: how many jobs each holds by state, how long the oldest waits, whether and why it is paused.

    Example: holdfast queues ls
    """

    async def work(store: Store) -> None:
        now = await store.now()
        views = await store.queues()
        if common.as_json:
            output.print_json({"queues": [output.fields(view) for view in views]})
            return
        rows = [
            (
                view.name,
                *(view.counts.get(state, 0) for state in State),
                span(view.oldest_waiting),
                "-" if view.paused_at is None else f"{output.when(view.paused_at, now)} {_pause(view)}",
            )
            for view in views
        ]
        output.print_table(COLUMNS, rows, empty="no queues: nothing has been enqueued yet")

    run(common, work)


def pause(queue: str, /, *, reason: str = "", common: Common = COMMON) -> None:
    """Stop claims from a queue. What runs goes on; what waits stays.

    Example: holdfast queues pause mail --reason "provider is down"

    Parameters
    ----------
    queue
        Its name.
    reason
        Shown to everyone who asks why.
    """
    checked_name(queue, "queue")

    async def work(store: Store) -> None:
        known = await _find(store, queue)
        await store.pause(queue, by=actor(), reason=reason)
        if common.as_json:
            output.print_json({"queue": queue, "paused": True, "known": known is not None})
            return
        print(f"paused: {output.harmless(queue)}")
        if known is None:
            output.note("it has no jobs and never had any: is the name right? It stays paused for those to come")

    run(common, work)


def resume(queue: str, /, *, common: Common = COMMON) -> None:
    """Let claims from a queue go on.

    Example: holdfast queues resume mail

    Parameters
    ----------
    queue
        Its name.
    """
    checked_name(queue, "queue")

    async def work(store: Store) -> None:
        known = await _find(store, queue)
        was = known is not None and known.paused_at is not None
        await store.resume(queue, by=actor())
        await tell(common, Hint(frozenset({queue})))
        if common.as_json:
            output.print_json({"queue": queue, "paused": False, "was_paused": was})
        else:
            print(f"resumed: {output.harmless(queue)}" if was else f"{output.harmless(queue)} was not paused")

    run(common, work)


async def _find(store: Store, name: str) -> QueueView | None:
    return next((view for view in await store.queues() if view.name == name), None)


def _pause(view: QueueView) -> str:
    by = f"by {view.paused_by}" if view.paused_by else ""
    return ": ".join(part for part in (by, view.reason) if part)
