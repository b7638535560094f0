"""What is sent to Redis, by us and by the driver, against the version that each command and each option came with."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.notify import redis
from holdfast.notify.port import Hint, Serving
from holdfast.notify.redis import RedisNotifier, notifier, streams
from holdfast.notify.redis.line import Line
from holdfast.notify.redis.streams import Streams
from holdfast.system import SystemEnvironment
from tests.notify.ear import Ear, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.support.redis import RedisServer

Version = tuple[int, int]

PROMISED: Final[Version] = (6, 2)
"""What docs/guides/redis.md says."""
SINCE: Final[dict[str, Version]] = {
    "AUTH": (1, 0),
    "CLIENT SETINFO": (7, 2),
    "CLIENT SETINFO LIB-NAME": (7, 2),
    "CLIENT SETINFO LIB-VER": (7, 2),
    "CLIENT SETNAME": (2, 6),
    "CLIENT MAINT_NOTIFICATIONS": (8, 4),
    "HELLO": (6, 0),
    "PING": (1, 0),
    "PUBLISH": (2, 0),
    "SELECT": (1, 0),
    "SUBSCRIBE": (2, 0),
    "XACK": (5, 0),
    "XACKDEL": (8, 2),
    "XADD": (5, 0),
    "XADD MAXLEN": (5, 0),
    "XADD MINID": (6, 2),
    "XADD NOMKSTREAM": (6, 2),
    "XADD LIMIT": (6, 2),
    "XADD KEEPREF": (8, 2),
    "XADD DELREF": (8, 2),
    "XADD ACKED": (8, 2),
    "XAUTOCLAIM": (6, 2),
    "XAUTOCLAIM COUNT": (6, 2),
    "XAUTOCLAIM JUSTID": (6, 2),
    "XGROUP CREATE": (5, 0),
    "XGROUP CREATE MKSTREAM": (5, 0),
    "XGROUP CREATE ENTRIESREAD": (7, 0),
    "XGROUP CREATECONSUMER": (6, 2),
    "XGROUP DELCONSUMER": (5, 0),
    "XINFO CONSUMERS": (5, 0),
    "XPENDING": (5, 0),
    "XPENDING IDLE": (6, 2),
    "XRANGE": (5, 0),
    "XRANGE COUNT": (5, 0),
    "XREADGROUP": (5, 0),
    "XREADGROUP BLOCK": (5, 0),
    "XREADGROUP CLAIM": (8, 4),
    "XREADGROUP COUNT": (5, 0),
    "XREADGROUP GROUP": (5, 0),
    "XREADGROUP NOACK": (5, 0),
    "XREADGROUP STREAMS": (5, 0),
}
"""The version of Redis that each came with, as its documentation says. What is not listed is to be looked up there."""
CONTAINERS: Final = {"CLIENT", "XGROUP", "XINFO"}
ERRORS: Final = {"BUSYGROUP", "NOGROUP", "UNBLOCKED"}
"""Words in our source that Redis says, not we."""
PATIENCE: Final = 5.0


async def test_no_command_and_no_option_is_newer_than_promised(
    redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "PROBE_EVERY", 0.01)
    monkeypatch.setattr(streams, "IDLE", 0.0)
    monkeypatch.setattr(streams, "FORGOTTEN", -1.0)
    async with watched(redis_server) as sent, everything(redis_server.url, name):
        await eventually(lambda: ("PING",) in sent)
    used = {part for command in sent for part in parts(command)}
    assert used <= SINCE.keys(), "look up in the documentation of Redis since when these are there"
    assert {part for part in used if SINCE[part] > PROMISED} == set()
    source = "".join(path.read_text() for path in Path(redis.__file__).parent.glob("*.py"))
    known = {word for part in used for word in part.split()}
    assert set(re.findall(r'"([A-Z]{2,})"', source)) - ERRORS <= known, "not all that may be sent was sent here"


async def test_nothing_is_refused_by_the_server(redis_server: RedisServer, name: str) -> None:
    """What `MONITOR` of 6.2 keeps to itself (`CLIENT`) is found in its counts of errors."""
    assert redis_server.ask("CONFIG RESETSTAT") == "+OK"
    async with everything(redis_server.url, name):
        pass
    assert set(re.findall(r"errorstat_(\w+)", redis_server.tell("INFO errorstats"))) <= ERRORS


@asynccontextmanager
async def everything(url: str, name: str) -> AsyncIterator[None]:
    """Have all sent that is ever sent; a subscription asks whether it lives while there is nothing to hear."""
    hint = Hint(frozenset({"mail"}))
    ear = Ear()
    handle = RedisNotifier(f"{url}?client_name=somebody", SystemEnvironment(), name=f"{name}:told", timeout=PATIENCE)
    try:
        await handle.listen(ear, Serving())
        handle.hint(hint | Hint(later=True))
        await eventually(lambda: bool(handle.heed()))
        handle.answered(handle.heed(), more=True)
        async with await Line.open(url, PATIENCE) as line:
            reader, other = Streams(name, "reader"), Streams(name, "other")
            await reader.join(line, PATIENCE)
            await line.call(reader.add(hint), reader.add(hint), timeout=PATIENCE)
            cut, kept = [(await reader.read(line, PATIENCE))[0] for _ in range(2)]
            await line.call(("XDEL", cut.stream, cut.id), timeout=PATIENCE)
            await other.reclaim(line, PATIENCE)
            await other._forget_trimmed(line, cut.stream.decode(), set(), PATIENCE)  # Valkey gives no reason to
            await other.acknowledge(line, [kept], PATIENCE)
            await other.strike_off_the_dead(line, PATIENCE)
            await reader.leave(line, PATIENCE)
        yield
    finally:
        await handle.close()
        assert ear.hints


@asynccontextmanager
async def watched(server: RedisServer) -> AsyncIterator[list[tuple[str, ...]]]:
    """Note every command that the server is sent, but those which say that they are of this test."""
    sent: list[tuple[str, ...]] = []
    host, _, port = server.url.removeprefix("redis://").removesuffix("/0").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def note() -> None:
        while line := await reader.readline():
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', line.decode().partition("] ")[2])
            if words and words[0].upper() != "XDEL":
                sent.append((words[0].upper(), *words[1:]))

    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    task = asyncio.create_task(note())
    try:
        yield sent
    finally:
        writer.close()
        await task
        await writer.wait_closed()


def parts(command: tuple[str, ...]) -> set[str]:
    """Return a command and its options, as the list has them. We and the driver write both in capitals, and nothing else."""
    words = [word for word in command if re.fullmatch(r"[A-Z][A-Z_-]+", word)]
    head = " ".join(words[:2]) if command[0] in CONTAINERS else command[0]
    options = words[len(head.split()) :]
    return {head, *(f"{head} {option}" for option in options)}
