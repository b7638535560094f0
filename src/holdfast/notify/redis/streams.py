"""The streams of work: one for each band of priorities, read by all workers as one group, each entry by one of them.

Entries are hints, never jobs: which queues have something, and the ids of some of it, said in JSON. Losing one costs time,
and reading one twice a claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from redis.exceptions import ResponseError

from holdfast.notify.joining import Gathered
from holdfast.notify.port import USUAL_PRIORITY, Hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.notify.redis.line import Command, Line

BANDS: Final = (("high", 7), ("normal", 4), ("low", 0))
"""Names of the bands with the lowest priority of each, highest first: the order in which they are read."""
GROUP: Final = "workers"
LONGEST: Final = 10_000
"""Entries that a stream holds, about: those of a fleet that is away for long are of no use to it."""
BLOCK: Final = 1.0
"""Seconds that a read waits for something to come."""
IDLE: Final = 2.0
"""Seconds after which an entry that was not answered for is given to another worker."""
FORGOTTEN: Final = 600.0
"""Seconds without a word after which a consumer that owes nothing is taken for dead, and struck off."""
AT_ONCE: Final = 100

_decode: Final = msgspec.json.Decoder(Hint).decode


class Lost(Exception):
    """A stream or its group is gone: flushed, evicted, or on a server that started anew."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A hint in a stream."""

    stream: bytes
    id: bytes
    hint: Hint


class Streams:
    """The streams of one store, as one consumer sees them."""

    def __init__(self, name: str, consumer: str) -> None:
        self.names = tuple(f"{{{name}}}:{band}" for band, _ in BANDS)
        """One slot of a cluster for all, so that they can be read at once."""
        self._consumer = consumer

    def add(self, hint: Hint) -> Command:
        """Return the command that puts a hint of work into the stream of its priority."""
        priority = USUAL_PRIORITY if hint.priority is None else hint.priority
        stream = next(name for name, (_, lowest) in zip(self.names, BANDS, strict=True) if priority >= lowest)
        text = msgspec.json.encode(Hint(hint.queues, priority=hint.priority, ready=hint.ready))
        return ("XADD", stream, "MAXLEN", "~", LONGEST, "*", "hint", text)

    async def join(self, line: Line, timeout: float) -> None:
        """See to it that streams and group are there. From the beginning: what was added before the group was is read too."""
        for name in self.names:
            try:
                await line.call(("XGROUP", "CREATE", name, GROUP, "0", "MKSTREAM"), timeout=timeout)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    async def read(self, line: Line, timeout: float) -> list[Entry]:
        """Wait for a hint, in all streams at once; returns at most one of each, highest first. Raises `Lost`."""
        waits = int(BLOCK * 1000)
        where: Command = ("STREAMS", *self.names, *(">" for _ in self.names))
        command: Command = ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", 1, "BLOCK", waits, *where)
        answer = await _ask(line, command, BLOCK + timeout)
        return [entry for stream, entries in answer or () for entry in _entries(stream, entries)]

    async def reclaim(self, line: Line, timeout: float) -> list[Entry]:
        """Take over what others were given and did not answer for. Raises `Lost`."""
        found: list[Entry] = []
        for name in self.names:
            command = ("XAUTOCLAIM", name, GROUP, self._consumer, int(IDLE * 1000), "0-0", "COUNT", AT_ONCE)
            entries = (await _ask(line, command, timeout))[1]
            taken = _entries(name.encode(), [entry for entry in entries if entry is not None])
            if len(taken) < len(entries):  # some were cut off the stream's end meanwhile: nobody can answer for those
                await self._forget_trimmed(line, name, {entry.id for entry in taken}, timeout)
            found += taken
        return found

    async def _forget_trimmed(self, line: Line, name: str, known: set[bytes], timeout: float) -> None:
        """Answer for entries in hand that the stream has no more: Redis 6.2 keeps those for ever, later ones drop them."""
        pending = await _ask(line, ("XPENDING", name, GROUP, "-", "+", AT_ONCE, self._consumer), timeout)
        # each is looked up: one that was handed out in an answer which never arrived is there, and not known here either
        if unknown := [entry[0] for entry in pending if entry[0] not in known]:
            found = await line.call(*(("XRANGE", name, entry, entry) for entry in unknown), timeout=timeout)
            if gone := [entry for entry, there in zip(unknown, found, strict=True) if not there]:
                await _ask(line, ("XACK", name, GROUP, *gone), timeout)

    async def acknowledge(self, line: Line, entries: Iterable[Entry], timeout: float) -> None:
        """Have nobody read them again."""
        await line.call(*(("XACK", entry.stream, GROUP, entry.id) for entry in entries), timeout=timeout)

    async def strike_off_the_dead(self, line: Line, timeout: float) -> None:
        """Remove consumers who owe nothing and have not been heard of for long. Raises `Lost`."""
        for name in self.names:
            for told in await _ask(line, ("XINFO", "CONSUMERS", name, GROUP), timeout):
                about = dict(zip(told[::2], told[1::2], strict=True))
                if about[b"pending"] == 0 and about[b"idle"] > FORGOTTEN * 1000:
                    await _ask(line, ("XGROUP", "DELCONSUMER", name, GROUP, about[b"name"]), timeout)

    async def leave(self, line: Line, timeout: float) -> None:
        """Be a consumer no more. What it did not answer for is forgotten with it."""
        await line.call(*(("XGROUP", "DELCONSUMER", name, GROUP, self._consumer) for name in self.names), timeout=timeout)


def joined(entries: Iterable[Entry]) -> Hint:
    """Return one hint that says what all of them say."""
    gathered = Gathered()
    for entry in entries:
        gathered.add(entry.hint)
    return gathered.take()


async def _ask(line: Line, command: Command, timeout: float) -> Any:
    try:
        return (await line.call(command, timeout=timeout))[0]
    except ResponseError as error:
        if str(error).startswith(("NOGROUP", "UNBLOCKED")) or "no such key" in str(error):
            raise Lost(str(error)) from error
        raise


def _entries(stream: bytes, entries: Iterable[Any]) -> list[Entry]:
    return [Entry(stream, entry[0], _hint(entry[1])) for entry in entries]


def _hint(fields: Any) -> Hint:
    """Return what an entry says; of one that cannot be read, that something has changed."""
    try:
        return _decode(dict(zip(fields[::2], fields[1::2], strict=True))[b"hint"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return Hint(anything=True)
