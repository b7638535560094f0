"""Waiting for something to become true, with a generous bound: no test depends on the machine's speed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 20.0) -> None:
    """Ask again and again until the answer is true; fail the test after so many seconds."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
