"""An app with periodic tasks of the hour in which clocks are changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast import Holdfast, Job
from tests.faults.tracing import URL, note

if TYPE_CHECKING:
    from uuid import UUID

BERLIN = "Europe/Berlin"

app = Holdfast(os.environ.get(URL, "memory://"))


@app.on_worker
def tell(event: str, worker: UUID) -> None:
    note(event, worker=str(worker))


@app.task(cron="30 2 * * *", timezone=BERLIN, missed="all")
async def at_half_past_two(*, job: Job) -> None:
    """Comes once a night."""
    note("began", job=str(job.id), task="at_half_past_two")


@app.task(cron="0 * * * *", timezone=BERLIN, missed="all")
async def every_hour(*, job: Job) -> None:
    """Follows the clock on the wall."""
    note("began", job=str(job.id), task="every_hour")


@app.task(cron="*/30 2 * * *", timezone=BERLIN, missed="all")
async def twice_after_two(*, job: Job) -> None:
    """Follows it too."""
    note("began", job=str(job.id), task="twice_after_two")
