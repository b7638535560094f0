"""One app as it was before a deploy and as it is after it: the tasks of each have the same names, and other args."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast import Holdfast, Job
from tests.faults.tracing import URL, note

if TYPE_CHECKING:
    from uuid import UUID

VERSION = "FAULTS_VERSION"
"""In the environment: `new` after the deploy."""


def make(version: str) -> Holdfast:
    """Return the app of a version."""
    app = Holdfast(os.environ.get(URL, "memory://"))

    @app.on_worker
    def tell(event: str, worker: UUID) -> None:
        note(event, worker=str(worker))

    @app.task(name="greet", retry=2, lease=10)
    async def greet(name: str, *, job: Job) -> str:
        note("began", job=str(job.id), attempt=job.attempt, version=version)
        return f"hello {name}"

    if version == "new":

        @app.task(name="resize", retry=2, lease=10)
        async def resize(size: tuple[int, int], *, job: Job) -> int:
            note("began", job=str(job.id), attempt=job.attempt, version=version)
            return size[0] * size[1]

        @app.task(name="rotate", retry=2, lease=10)
        async def rotate(degrees: int, *, job: Job) -> int:
            note("began", job=str(job.id), attempt=job.attempt, version=version)
            return degrees

    else:

        @app.task(name="resize", retry=2, lease=10)
        async def resize_square(size: int, *, job: Job) -> int:
            note("began", job=str(job.id), attempt=job.attempt, version=version)
            return size * size

    return app


app = make(os.environ.get(VERSION, "old"))
