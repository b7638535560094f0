"""What every worker does for the whole fleet: how often, and what wakes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.notify.port import Hint
from holdfast.runtime.housekeeping import BATCH, SWEEP_UNHINTED, Sweeper
from tests.runtime.parts import Hints, a_base

if TYPE_CHECKING:
    from holdfast import Holdfast

WAIT = 30.0


class Book:
    """A store that counts what a sweeper asks for."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.freed = 0

    async def unblock(self, limit: int) -> int:
        self.calls.append("unblock")
        return min(limit, self.freed)

    async def drop_overdue(self, limit: int) -> int:
        self.calls.append(f"drop {limit}")
        return 0

    async def mark_offline(self, seconds: float) -> list[Any]:
        self.calls.append(f"mark {seconds:g}")
        return []


class Notifier(Hints):
    """Remembers hints; a test says whether they arrive."""

    healthy = True


@pytest.fixture
def book() -> Book:
    return Book()


async def test_waiters_are_swept_every_second_while_hints_do_not_arrive_and_the_rest_is_not(book: Book) -> None:
    notifier = Notifier()
    sweeper = Sweeper(a_base(book, notifier))
    assert await sweeper.tick() is None
    notifier.healthy = False
    assert await sweeper.tick() == SWEEP_UNHINTED == 1.0
    assert book.calls == ["unblock", f"drop {BATCH}", "mark 300", "unblock"]
    assert notifier.sent == []


async def test_freed_waiters_are_hinted_at_and_a_full_batch_is_followed_by_another(book: Book) -> None:
    notifier = Notifier()
    sweeper = Sweeper(a_base(book, notifier))
    book.freed = BATCH
    assert await sweeper.tick() == 0.0
    assert notifier.sent == [Hint(later=True, anything=True)]


async def test_a_hint_of_waiters_wakes_the_sweeper(memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []
    real = Sweeper.tick

    async def tick(self: Sweeper) -> float | None:
        ticks.append(1)
        return await real(self)

    monkeypatch.setattr(Sweeper, "tick", tick)
    async with memory_app.worker():
        async with asyncio.timeout(WAIT):
            while not ticks:  # noqa: ASYNC110  nobody here is told
                await asyncio.sleep(0.01)
        await memory_app.client().open()
        before = len(ticks)
        memory_app.client().notifier.hint(Hint(waiters=True))
        async with asyncio.timeout(WAIT / 6):  # well before it would come by itself
            while len(ticks) == before:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.01)
