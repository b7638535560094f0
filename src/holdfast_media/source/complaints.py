"""What libav says while it reads: bytes that it cannot place it passes over, says so, and goes on as if all were well."""

from __future__ import annotations

import re
from typing import Final

_PASSED_OVER: Final = re.compile(
    rb"^\[matroska,webm @ \w+\] .*(?:exceeds containing master element|invalid as first byte of an EBML number"
    rb"|indicated by an EBML number|Invalid track number|Seek to desired resync point failed)"
)
"""Of Matroska, which is made of elements, each with its length: what is none was overwritten. Not all that it complains of is
damage: an attachment without a name is none."""
_NO_MEMORY: Final = (b"get_buffer() failed", b"allocate memory", b"MemoryError")
"""A decoder without memory for a frame calls what it was given invalid, so this line is all that tells."""
_LONGEST: Final = 2000


class Complaints:
    """Takes standard error as it comes, and keeps what matters of it."""

    def __init__(self) -> None:
        self.first = ""
        """The first complaint about bytes that were passed over."""
        self.no_memory = False
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Look at these bytes: lines may be cut anywhere."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LONGEST]
        for line in lines:
            self.no_memory |= any(words in line for words in _NO_MEMORY)
            if not self.first and _PASSED_OVER.match(line):
                self.first = line.partition(b"] ")[2].decode(errors="replace").strip().rstrip(".")
