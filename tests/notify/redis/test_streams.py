"""Entries that were cut off a stream's end while somebody had them in hand: nobody owes an answer for those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.notify.port import Hint
from holdfast.notify.redis import streams
from holdfast.notify.redis.line import Line
from holdfast.notify.redis.streams import GROUP, Streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.redis import RedisServer

PATIENCE = 5.0


@pytest.fixture
async def line(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    """A connection to a server where all that was not answered for may be taken over at once."""
    monkeypatch.setattr(streams, "IDLE", 0.0)
    async with await Line.open(redis_server.url, PATIENCE) as line:
        yield line


@pytest.fixture
async def reader(line: Line, name: str) -> Streams:
    """A consumer that reads and will not answer."""
    reader = Streams(name, "reader")
    await reader.join(line, PATIENCE)
    return reader


@pytest.fixture
def other(name: str) -> Streams:
    """A consumer that takes over."""
    return Streams(name, "other")


async def read(line: Line, reader: Streams, *queues: str) -> list[bytes]:
    """Have hints added and read; returns the ids of their entries."""
    await line.call(*(reader.add(Hint(frozenset({queue}))) for queue in queues), timeout=PATIENCE)
    return [entry.id for _ in queues for entry in await reader.read(line, PATIENCE)]


async def trim(line: Line, reader: Streams, keeping: int) -> None:
    await line.call(("XTRIM", reader.names[1], "MAXLEN", keeping), timeout=PATIENCE)


async def pending(line: Line, reader: Streams) -> list[bytes]:
    """Return the entries that the group waits for an answer to."""
    (found,) = await line.call(("XPENDING", reader.names[1], GROUP, "-", "+", 1000), timeout=PATIENCE)
    return [entry[0] for entry in found]


async def test_nobody_owes_an_answer_for_entries_that_were_trimmed(line: Line, reader: Streams, other: Streams) -> None:
    ids = await read(line, reader, "one", "two", "three")
    await trim(line, reader, keeping=0)
    assert await pending(line, reader) == ids, "the server does not forget them by itself"
    assert await other.reclaim(line, PATIENCE) == []
    assert await pending(line, reader) == []


async def test_entries_that_are_still_there_are_taken_over_beside_trimmed_ones(
    line: Line, reader: Streams, other: Streams
) -> None:
    ids = await read(line, reader, "one", "two", "three")
    await trim(line, reader, keeping=1)
    assert [(entry.id, entry.hint.queues) for entry in await other.reclaim(line, PATIENCE)] == [(ids[2], frozenset({"three"}))]
    assert await pending(line, reader) == [ids[2]]


async def test_more_trimmed_entries_than_are_taken_over_at_once_are_forgotten_in_some_rounds(
    line: Line, reader: Streams, other: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "AT_ONCE", 2)
    await read(line, reader, "one", "two", "three", "four", "five")
    await trim(line, reader, keeping=0)
    for _ in range(3):
        assert await other.reclaim(line, PATIENCE) == []
    assert await pending(line, reader) == []


async def test_an_entry_whose_reading_was_cut_off_is_not_forgotten_with_trimmed_ones(
    line: Line, reader: Streams, other: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await read(line, reader, "one")
    await read(line, other, "two")  # as if the answer had been lost: it knows nothing of this entry
    monkeypatch.setattr(streams, "IDLE", 30.0)
    await _idle(line, reader, ids)
    await trim(line, reader, keeping=1)
    assert await other.reclaim(line, PATIENCE) == []
    monkeypatch.setattr(streams, "IDLE", 0.0)
    assert [entry.hint.queues for entry in await other.reclaim(line, PATIENCE)] == [{"two"}]


async def _idle(line: Line, reader: Streams, ids: list[bytes]) -> None:
    """Have entries look as if nobody had answered for them in a minute."""
    await line.call(("XCLAIM", reader.names[1], GROUP, "reader", 0, *ids, "IDLE", 60_000, "JUSTID"), timeout=PATIENCE)
