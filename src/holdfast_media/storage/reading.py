"""A reader over a connection that may break: it goes on where it broke off."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from holdfast_media.errors import MediaError
from holdfast_media.storage.retrying import Patience, Transient

if TYPE_CHECKING:
    from holdfast_media.storage.port import Stop

BUFFER: Final = 256 * 1024


class Body(Protocol):
    """What is left of a content, from where it was asked for."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end. Raises `Transient` where the connection breaks."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


Fetch: TypeAlias = Callable[[int], Body]
"""Returns the content from a byte on, and refuses when it is no longer the same. Raises `Transient`."""


class ResumingReader(io.RawIOBase):
    """Reads a content of known size. A content that ends early counts as a broken connection."""

    def __init__(self, fetch: Fetch, size: int, start: int, *, patience: Patience, stop: Stop | None) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._at = min(start, size)
        self._patience = patience
        self._stop = stop
        self._body: Body | None = None

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as much as is there, at most what fits."""
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        data = self._patience.repeat(lambda: self._some(wanted), self._stop)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _some(self, wanted: int) -> bytes:
        try:
            if self._body is None:
                self._body = self._fetch(self._at)
            data = self._body.read(wanted)
        except Transient:
            self._hang_up()
            raise
        if not data:
            self._hang_up()
            why = f"the content ended after {self._at:,} of {self._size:,} bytes"
            raise Transient(MediaError("STORAGE_READ_FAILED", why))
        return data

    def close(self) -> None:
        """Hang up."""
        self._hang_up()
        super().close()

    def _hang_up(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            with suppress(Exception):  # whatever it was, nothing more is wanted of it
                body.close()


def replaced(key: str) -> MediaError:
    """Return the error of a content that is another one than it was when its reading began."""
    return MediaError("STORAGE_READ_FAILED", f"{key} was replaced while it was read. Read it again")
