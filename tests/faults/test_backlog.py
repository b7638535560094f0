"""A backlog that never ends, and low priorities behind it: everybody has a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.faults.support import WAIT
from tests.runtime.conftest import app, make_app, postgres_database, postgres_schemas, url

if TYPE_CHECKING:
    from holdfast import Holdfast

__all__ = ["app", "make_app", "postgres_database", "postgres_schemas", "url"]

pytestmark = pytest.mark.row(39)

BACKLOG = 200
TENTH = 10
"""Every tenth claim takes what has waited longest."""


async def test_low_priorities_have_their_turn_while_high_ones_keep_coming(app: Holdfast) -> None:
    """Each job of high priority enqueues the next one: there is always one that goes before."""
    begun: list[str] = []
    done = asyncio.Event()
    lows = ("low", "lower", "lowest")

    @app.task(name="urgent", priority=9)
    async def urgent() -> None:
        begun.append("urgent")
        await urgent.enqueue()

    for name, priority in zip(lows, (4, 2, 0), strict=True):

        @app.task(name=name, priority=priority)
        async def patient(name: str) -> None:
            begun.append(name)
            if set(lows) <= set(begun):
                done.set()

        await patient.enqueue(name)
    await app.enqueue_many([urgent.call() for _ in range(BACKLOG)])
    async with app.worker(concurrency=1):
        await asyncio.wait_for(done.wait(), WAIT)
        # With one slot each claim takes one job. PostgreSQL goes by what it last saw: a lane that has become empty since may
        # cost it one of its turns.
        waited = max(begun.index(name) for name in lows)
        assert waited <= 2 * len(lows) * TENTH, f"the last of {len(lows)} was begun after {waited} others"
    assert (await app.stats())["live"] == BACKLOG, "the backlog is as long as before"
