"""What the tests of executors share: tasks without an app, claims without a store, a channel that remembers."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from holdfast.core.job import DEFAULT_POLICY
from holdfast.core.lease import Claimed
from holdfast.tasks.abort import Abort
from holdfast.tasks.context import Job, current_job
from holdfast.tasks.options import TaskOptions
from holdfast.tasks.task import Task, task_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.core.states import Event
    from holdfast.runtime.executor.port import Executor
    from holdfast.store.port import Part

WAIT = 30.0
"""Seconds that a test waits for what must happen; a busy machine is not a bug."""


class NoApp:
    """Stands where a task expects its app; nothing is enqueued here, and nothing is sealed."""

    sealer = None

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


def task(function: Callable[..., Any], *, max_bytes: int = 2**20, **options: Any) -> Task[..., Any]:
    return Task(function, task_name(function), TaskOptions(**options), NoApp(), max_bytes=max_bytes)


def claimed(task: Task[..., Any], args: str = "{}", attempt: int = 1) -> Claimed:
    now = datetime.now(UTC)
    return Claimed(uuid4(), uuid4(), attempt, 0, task.name, "default", 5, args, DEFAULT_POLICY, 60.0, now, now, now)


@dataclass
class Remembered:
    """A channel that keeps what it is told. `refusal` is what a checkpoint raises."""

    progressed: list[tuple[float, str, str]] = field(default_factory=list)
    staged: list[tuple[str, str]] = field(default_factory=list)
    logged: list[tuple[str, str, str, str]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    refusal: Exception | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def transactor(self) -> Any:
        raise NotImplementedError

    def progress(self, percent: float, step: str, message: str) -> None:
        self.progressed.append((percent, step, message))
        self.news.set()

    def stage(self, name: str, event: Event) -> None:
        self.staged.append((name, str(event)))

    def log(self, level: str, logger: str, message: str, fields: str) -> None:
        self.logged.append((level, logger, message, fields))
        self.news.set()

    def checkpoint(self, part: Part) -> Awaitable[None]:
        async def store() -> None:
            if self.refusal is not None:
                raise self.refusal
            self.parts.append(part)

        return store()

    def lines(self, logger: str) -> list[str]:
        return [message for _, name, message, _ in self.logged if name == logger]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not condition():
                self.news.clear()
                await self.news.wait()


@dataclass
class Attempt:
    """One attempt in the hands of an executor."""

    executor: Executor
    task: Task[..., Any]
    args: str = "{}"
    parts: tuple[Part, ...] = ()
    channel: Remembered = field(default_factory=Remembered)

    def __post_init__(self) -> None:
        self.claimed = claimed(self.task, self.args)
        self.job = Job(self.claimed, self.channel, Abort(), {part.name: part for part in self.parts})

    async def run(self) -> Any:
        current_job.set(self.job)
        async with asyncio.timeout(WAIT):
            return await self.executor.run(self.task, self.claimed, self.job, self.channel)

    def begin(self) -> asyncio.Task[Any]:
        return asyncio.create_task(self.run())

    async def begun(self) -> asyncio.Task[Any]:
        """Begin, and wait for the first progress."""
        running = self.begin()
        await self.channel.until(lambda: bool(self.channel.progressed))
        return running


async def until_gone(pid: int) -> None:
    """Wait until a process is no more, not even as a zombie of somebody else's."""
    async with asyncio.timeout(WAIT):
        while _runs(pid):  # noqa: ASYNC110  nobody tells when a stranger's process ends
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123  gone the next moment
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


NO_TOKEN = UUID(int=0)
