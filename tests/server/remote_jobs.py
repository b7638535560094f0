"""An app for workers of the tests that run in processes of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Holdfast, Job

app = Holdfast("memory://")


@app.task(name="remote.hang", lease=30)
async def hang(mark: str) -> None:
    """Tell that it runs, and never end."""
    Path(mark).touch()  # noqa: ASYNC240  takes no time, and nothing else runs here
    await asyncio.Event().wait()


@app.task(name="remote.short")
async def short(number: int, *, job: Job) -> int:
    """Take a moment."""
    job.progress(50)
    await asyncio.sleep(0.02)
    return number * 2


@app.task(name="remote.patient", lease=2)
async def patient(folder: str, *, job: Job) -> int:
    """Tell that it runs, and that it was stopped; end when it is let go, or this attempt is."""
    place = Path(folder)
    let_go = (place / "go", place / f"go {job.attempt}")
    (place / f"began {job.attempt}").touch()
    try:
        while not any(one.exists() for one in let_go):  # noqa: ASYNC110  the test is another process
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        (place / f"stopped {job.attempt}").touch()
        raise
    return job.attempt
