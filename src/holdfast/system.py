"""The real world behind `core.environment`."""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ThreadRunner:
    """A thread of its own for blocking calls, in turn."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in the thread and return what it gave."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """End the thread after what it is doing."""
        self._pool.shutdown(wait=True)


class SystemEnvironment:
    """The machine's own clock, randomness and threads."""

    def now(self) -> datetime:
        """Return the wall clock, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return random.random()  # noqa: S311  jitter, not a secret

    def token(self) -> UUID:
        """Return a fresh secret."""
        return uuid4()

    def job_id(self) -> UUID:
        """Return a fresh job id: a UUIDv7, ordered by time."""
        return uuid7()

    def runner(self, name: str) -> ThreadRunner:
        """Start a thread."""
        return ThreadRunner(name)
