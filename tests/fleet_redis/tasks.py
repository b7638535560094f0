"""What the workers of these tests run: `holdfast worker tests.fleet_redis.tasks:app`, as the settings say."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import Holdfast, Job, Reschedule

if TYPE_CHECKING:
    from holdfast.tasks.task import Task


class Tasks(NamedTuple):
    """What is run, by name."""

    note: Task[..., Any]
    hold: Task[..., Any]
    again: Task[..., Any]


def declare(app: Holdfast) -> Tasks:
    """Return the tasks: one that ends at once, one that ends when it may, and one that gives its job back once."""

    @app.task(name="note")
    async def note(number: int, trace: str) -> int:
        began(number, trace)
        return number

    @app.task(name="hold")
    async def hold(number: int, trace: str, gate: str) -> int:
        began(number, trace)
        while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240  another process makes it
            await asyncio.sleep(0.02)
        return number

    @app.task(name="again")
    async def again(*, job: Job) -> int:
        if job.attempt == 1:
            raise Reschedule(after=0.01)
        return job.attempt

    return Tasks(note, hold, again)


def began(number: int, trace: str) -> None:
    """Leave a line for every time that a job is run: the store cannot know of a run that it did not allow."""
    line = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(line, f"{number} {os.getpid()}\n".encode())
    finally:
        os.close(line)


app = Holdfast()
declare(app)
