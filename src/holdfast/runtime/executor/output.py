"""What a process writes to a pipe, line by line."""

from __future__ import annotations

import asyncio
import os
import re
from typing import IO, TYPE_CHECKING, Final

from holdfast.core.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

LINE: Final = 8_000
"""Bytes of a line that are kept."""
TAIL: Final = 64 * 1024
"""Bytes that are kept of the end."""
CHUNK: Final = 64 * 1024
MOST_AT_END: Final = 16 * 2**20
"""Bytes read after the process has ended: something it left behind may go on writing for ever."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class Output:
    """Reads a pipe on the event loop and hands on each line as text that can be stored.

    A line ends with a newline or a carriage return, as progress displays write it. An over-long one is cut, and what is
    not UTF-8 is replaced.
    """

    def __init__(self, pipe: IO[bytes], line: Callable[[str], None]) -> None:
        self._pipe = pipe
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._partial = bytearray()
        self._cutting = False
        self._tail = bytearray()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def tail(self) -> str:
        """Return the end of what was written, at most `TAIL` bytes of it."""
        return clean(bytes(self._tail[-TAIL:]).decode(errors="replace"), TAIL)

    def forget(self) -> None:
        """Begin anew with an empty tail."""
        self._tail.clear()

    def drain(self) -> None:
        """Read what is there already, and take what was begun for a line."""
        read = 0
        while self._open and read < MOST_AT_END and (size := self._read()):
            read += size
        if self._partial:
            self._take(b"\n")

    def close(self) -> None:
        """Read no more."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()

    def _read(self) -> int:
        try:
            data = os.read(self._pipe.fileno(), CHUNK)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            return 0
        self._tail += data
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]
        self._take(data)
        return len(data)

    def _take(self, data: bytes) -> None:
        *lines, rest = _LINE_END.split(data)
        for line in lines:
            self._extend(line)
            self._emit()
        self._extend(rest)

    def _extend(self, data: bytes) -> None:
        room = LINE - len(self._partial)
        self._cutting = self._cutting or len(data) > room
        self._partial += data[: max(0, room)]

    def _emit(self) -> None:
        line, cut = bytes(self._partial), self._cutting
        self._partial.clear()
        self._cutting = False
        if line:
            self._line(clean(line.decode(errors="replace"), LINE) + (" … cut: a very long line" if cut else ""))
