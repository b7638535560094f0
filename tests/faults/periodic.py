"""An app with one periodic task."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast import Holdfast, Job
from tests.faults.tracing import URL, note

if TYPE_CHECKING:
    from uuid import UUID

app = Holdfast(os.environ.get(URL, "memory://"))


@app.on_worker
def tell(event: str, worker: UUID) -> None:
    note(event, worker=str(worker))


@app.task(cron="* * * * *", missed="all")
async def tick(*, job: Job) -> None:
    """Notes that it ran."""
    note("began", job=str(job.id), attempt=job.attempt)
