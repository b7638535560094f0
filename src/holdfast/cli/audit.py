"""`holdfast audit`: who did what to what."""

from typing import Annotated

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, run
from holdfast.cli.output import Column
from holdfast.finding import Mistake
from holdfast.store.port import Action, Store

LINES = 50
SHOWN = 3
"""Targets that a table names; `--json` names up to a hundred."""
COLUMNS = (
    Column("no", right=True, goes=True),
    Column("when"),
    Column("who"),
    Column("action"),
    Column("count", right=True),
    Column("what", shrinks=True),
    Column("detail", shrinks=True),
)


def audit(
    *,
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = LINES,
    actor: str | None = None,
    action: Action | None = None,
    common: Common = COMMON,
) -> None:
    """Show who did what: every enqueue, cancel, retry, pause, drain and the like, the newest first.

    Example: holdfast audit --action delete --actor ann@desk

    What is done by this command line, the API or the dashboard is written down together with what it changes. A program's own
    calls are in the event logs of its jobs. Lines are never changed, and never removed but for those about enqueues
    (retention_enqueues).

    Parameters
    ----------
    limit
        At most so many lines.
    actor
        Only what this one did: user and host of a command line, or the name of a key.
    action
        Only this kind of action.
    """
    if limit < 1:
        raise Mistake(f"--limit must be 1 or more, not {limit}")

    async def work(store: Store) -> None:
        now = await store.now()
        lines = await store.audits(limit=limit, actor=actor, action=action)
        if common.as_json:
            output.print_json({"lines": [output.fields(line) for line in lines]})
            return
        rows = [
            (
                line.no,
                output.when(line.at, now),
                line.actor or "-",
                line.action,
                line.count,
                ", ".join(line.targets[:SHOWN]) + (" …" if line.count > SHOWN else "") or "-",
                line.detail or "-",
            )
            for line in lines
        ]
        output.print_table(COLUMNS, rows, empty="nobody has done anything that is written down here")

    run(common, work)
