"""What a container promises about its own bytes: looked at before anything is decoded, by reading a few headers.

A file that was cut near its end has all of its first frames and decodes without an error, so only such a promise tells.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

_EBML: Final = b"\x1a\x45\xdf\xa3"
_SEGMENT: Final = b"\x18\x53\x80\x67"
_BOXES: Final = frozenset({b"ftyp", b"styp", b"mdat", b"free", b"skip", b"wide", b"uuid", b"pnot", b"meta", b"pdin"})
"""What may stand before the index of an MP4."""
_MOST_BOXES: Final = 1000
_LONG: Final = 8
"""Bytes of the longest number in Matroska, and of the header of a box."""


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Where the file ends at the earliest, in bytes; `None`: it does not say."""

    end: int | None = None
    size: int
    """What is there."""
    open_ended: bool = False
    """Whether it says that nobody knew where it would end, as recorders of live pictures write."""

    @property
    def kept(self) -> bool:
        """Whether all is there that is promised."""
        return self.end is None or self.end <= self.size


def promise_of(path: Path) -> Promise:
    """Return what the file promises: Matroska the end of its only segment, MP4 that of its index; others nothing.

    Reads headers alone, however large the file is. What is too odd to be understood promises nothing: reading it tells more.
    Raises `OSError`.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(_LONG)
        if start.startswith(_EBML):
            return _matroska(file, size)
        if start[4:] in _BOXES:
            return Promise(end=_end_of_index(file, size), size=size)
    return Promise(size=size)


def _matroska(file: BinaryIO, size: int) -> Promise:
    file.seek(len(_EBML))
    header = _number(file)
    if header is None:
        return Promise(size=size)
    file.seek(header, os.SEEK_CUR)
    if file.read(len(_SEGMENT)) != _SEGMENT:
        return Promise(size=size)
    length = _number(file)
    return Promise(end=None if length is None else file.tell() + length, size=size, open_ended=length is None)


def _number(file: BinaryIO) -> int | None:
    """Read a length as Matroska writes it; `None`: one that says that it is not known, or none at all."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    more = _LONG - first[0].bit_length()
    value = int.from_bytes(first + file.read(more)) & ((1 << 7 * (more + 1)) - 1)
    return None if value == (1 << 7 * (more + 1)) - 1 else value


def _end_of_index(file: BinaryIO, size: int) -> int | None:
    """Return where the index of an MP4 ends: with the rest of it missing, a track is, and nothing else says so."""
    at = 0
    for _ in range(_MOST_BOXES):
        file.seek(at)
        header = file.read(2 * _LONG)
        length, kind = int.from_bytes(header[:4]), header[4:_LONG]
        if length == 1:
            length = int.from_bytes(header[_LONG:])
        if kind == b"moov" and length >= _LONG:
            return at + length
        if kind not in _BOXES or length < _LONG or at + length > size:
            return None
        at += length
    return None
