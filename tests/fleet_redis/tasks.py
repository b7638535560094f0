"""What the workers of these tests run: `holdfast worker tests.fleet_redis.tasks:app`, as the settings say."""

from __future__ import annotations

import asyncio
import itertools
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
    report: Task[..., Any]


def declare(app: Holdfast) -> Tasks:
    """Return the tasks: one ends at once, one when it may, one gives its job back once, and one reports and goes on."""

    @app.task(name="note")
    async def note(number: int, trace: str) -> int:
        began(number, trace)
        return number

    @app.task(name="hold")
    async def hold(number: int, trace: str, gate: str) -> int:
        began(number, trace)
        await opened(gate)
        return number

    @app.task(name="again")
    async def again(*, job: Job) -> int:
        if job.attempt == 1:
            raise Reschedule(after=0.01)
        return job.attempt

    @app.task(name="report")
    async def report(begin: str, end: str, *, job: Job) -> None:
        await opened(begin)
        for number in itertools.count():  # again and again: what only people look at is sent once, and may be lost
            job.progress(42, f"half way, {number}")
            if Path(end).exists():  # noqa: ASYNC240  another process makes it
                return
            await asyncio.sleep(0.1)

    return Tasks(note, hold, again, report)


async def opened(gate: str) -> None:
    """Wait until another process makes a file."""
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240  as it says
        await asyncio.sleep(0.02)


def began(number: int, trace: str) -> None:
    """Leave a line for every time that a job is run: the store cannot know of a run that it did not allow."""
    line = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(line, f"{number} {os.getpid()}\n".encode())
    finally:
        os.close(line)


app = Holdfast()
declare(app)
