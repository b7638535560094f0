"""`holdfast alerts`: where they go, what was delivered, and whether it would be."""

import asyncio
import base64
import secrets
from datetime import UTC, datetime

import holdfast
from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, run
from holdfast.cli.output import Column
from holdfast.config import load
from holdfast.core.spans import span
from holdfast.errors import Fatal, Retryable
from holdfast.finding import NotThere
from holdfast.server.alerts.delivering import QUEUE, TASK, send, told_of
from holdfast.server.alerts.kinds import Alert, AlertKind
from holdfast.server.alerts.target import SECRET, Target, targets_of
from holdfast.store.port import JobFilter, Store

BYTES = 32
COLUMNS = (Column("target"), Column("host"), Column("form"), Column("events", shrinks=True), Column("cooldown", right=True))
DELIVERIES = (
    Column("job"),
    Column("when"),
    Column("target"),
    Column("alert"),
    Column("state"),
    Column("attempts", right=True),
    Column("told", shrinks=True),
)


def ls(*, common: Common = COMMON) -> None:
    """List where alerts go, as the settings say it.

    Example: holdfast alerts ls
    """
    targets = targets_of(load().settings.alerts)
    if common.as_json:
        output.print_json(
            {"targets": [output.fields(one) | {"secret": one.secret is not None, "url": one.host} for one in targets]}
        )
        return
    rows = [(one.name, one.host, one.form, _events(one), span(one.cooldown)) for one in targets]
    output.print_table(COLUMNS, rows, empty="no targets: alerts go nowhere until the settings have one ([alerts.NAME])")


def log(*, limit: int = 20, common: Common = COMMON) -> None:
    """Show what was delivered, newest first. `holdfast jobs retry ID` delivers one again.

    Example: holdfast alerts log --limit 50

    Parameters
    ----------
    limit
        How many, at most.
    """

    async def work(store: Store) -> None:
        now = await store.now()
        page = await store.find(JobFilter(task=TASK, queue=QUEUE), limit=limit)
        if common.as_json:
            output.print_json({"deliveries": [output.fields(view) for view in page.jobs]})
            return
        rows = [
            (str(view.id), output.when(view.created_at, now), told.target, told.kind, view.shown, view.attempt, told.text)
            for view in page.jobs
            for told in [told_of(view)]
        ]
        output.print_table(DELIVERIES, rows, empty="nothing was delivered yet")

    run(common, work)


def test(target: str, /) -> None:
    """Send an alert that says it is a test, at once and without a server.

    Example: holdfast alerts test ops

    Parameters
    ----------
    target
        Its name in the settings.
    """
    targets = {one.name: one for one in targets_of(load().settings.alerts)}
    if target not in targets:
        known = ", ".join(targets) or "none"
        raise NotThere(f"the settings have no target {target!r}; there are: {known}")
    alert = Alert(kind=AlertKind.WORKER_STARTUP, text="this is a test: nothing has happened", count=0)
    sending = send(
        targets[target],
        alert,
        datetime.now(UTC),
        message_id=f"msg_{secrets.token_hex(16)}",
        agent=f"Holdfast/{holdfast.__version__}",
    )
    try:
        delivery = asyncio.run(sending)
    except (Fatal, Retryable) as error:
        raise NotThere(f"{target} was not reached: {error} ({error.code})") from None
    output.note(f"{target} answered with {delivery.status} within {delivery.milliseconds:g} ms")


def secret() -> None:
    """Print a fresh secret to sign alerts with: for the settings here, and for whoever receives them.

    Example: holdfast alerts secret
    """
    print(SECRET + base64.b64encode(secrets.token_bytes(BYTES)).decode())


def _events(target: Target) -> str:
    return "all" if set(target.events) == set(AlertKind) else ", ".join(target.events)
