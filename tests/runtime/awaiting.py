"""Waiting for what a worker does, with a generous bound: no test depends on the machine's speed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Handle, State

WAIT = 30.0


async def until(condition: Callable[[], Any], seconds: float = WAIT) -> None:
    """Look again and again until it holds; fail the test after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def until_state(handle: Handle[Any], state: State) -> None:
    """Wait until a job is in a state."""
    async with asyncio.timeout(WAIT):
        while await handle.state() is not state:  # noqa: ASYNC110  nobody here is told
            await asyncio.sleep(0.01)
