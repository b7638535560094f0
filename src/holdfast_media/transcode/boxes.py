"""Reading fragmented MP4 files: boxes, and the samples in their order of decoding. Knows only what our own encodes write."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER: Final = 8
_WIDE_HEADER: Final = 16
_MOST_METADATA: Final = 64 << 20
# of tfhd and trun, ISO/IEC 14496-12
_BASE_OFFSET, _DESCRIPTION, _DEFAULT_DURATION, _DEFAULT_SIZE, _DEFAULT_FLAGS = 0x01, 0x02, 0x08, 0x10, 0x20
_DATA_OFFSET, _FIRST_FLAGS, _DURATION, _SIZE, _FLAGS, _SHIFT = 0x001, 0x004, 0x100, 0x200, 0x400, 0x800
_NO_SYNC: Final = 0x10000


class Broken(Exception):
    """The bytes are no fragmented MP4, or end early."""


class Sample(NamedTuple):
    """One frame or packet of sound: where its bytes are, and when it is decoded and shown, in ticks of the track."""

    offset: int
    size: int
    decoded: int
    duration: int
    shown: int
    key: bool


class Movie(NamedTuple):
    """A fragmented MP4 with one track: its `moov` box as it stands, and its samples."""

    moov: bytes
    samples: list[Sample]


def read_movie(file: BinaryIO, moov: bytes = b"") -> Movie:
    """Return the header and the samples of a file, or of a segment, whose header is then given; raises `Broken`."""
    samples: list[Sample] = []
    size = file.seek(0, 2)
    offset = 0
    defaults = _defaults(moov) if moov else (0, 0, 0)
    while offset < size:
        kind, header, length = _head(file, offset, size)
        if kind in (b"moov", b"moof"):
            if length > _MOST_METADATA:
                raise Broken(f"a box of {length} bytes of metadata")
            file.seek(offset + header)
            body = file.read(length - header)
            if kind == b"moov":
                moov = body
                defaults = _defaults(moov)
            else:
                samples += _samples(body, offset, defaults)
        offset += length
    if not moov:
        raise Broken("no header")
    if samples and max(sample.offset + sample.size for sample in samples) > size:
        raise Broken("the last samples are cut off")
    return Movie(moov, samples)


def boxes(data: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[bytes, int, int]]:
    """Give the kind of each box between the offsets, and where its content begins and ends."""
    end = len(data) if end is None else end
    while start < end:
        if end - start < HEADER:
            raise Broken("a box without a head")
        length, kind = struct.unpack_from(">I4s", data, start)
        if length < HEADER or start + length > end:
            raise Broken(f"a box {kind!r} longer than what holds it")
        yield kind, start + HEADER, start + length
        start += length


def find(data: bytes, *path: bytes, start: int = 0, end: int | None = None) -> tuple[int, int]:
    """Return where the content of the first box on this path begins and ends; raises `Broken` when there is none."""
    for kind, begin, finish in boxes(data, start, end):
        if kind == path[0]:
            return (begin, finish) if len(path) == 1 else find(data, *path[1:], start=begin, end=finish)
    raise Broken(f"no box {path[0]!r}")


def _head(file: BinaryIO, offset: int, size: int) -> tuple[bytes, int, int]:
    """Return the kind of the box at this place of the file, the length of its head, and its whole length."""
    file.seek(offset)
    raw = file.read(_WIDE_HEADER)
    if len(raw) < HEADER:
        raise Broken("a box without a head")
    length, kind = struct.unpack_from(">I4s", raw)
    header = HEADER
    if length == 1 and len(raw) == _WIDE_HEADER:
        header, length = _WIDE_HEADER, struct.unpack_from(">Q", raw, HEADER)[0]
    if length < header or offset + length > size:
        raise Broken(f"the box {kind!r} is cut off")
    return kind, header, length


def _defaults(moov: bytes) -> tuple[int, int, int]:
    """Return duration, size and flags of a sample that does not say."""
    begin, _ = find(moov, b"mvex", b"trex")
    duration, size, flags = struct.unpack_from(">III", moov, begin + 12)
    return duration, size, flags


def _samples(moof: bytes, place: int, defaults: tuple[int, int, int]) -> Iterator[Sample]:
    """Give the samples of a fragment that stands at this place of the file."""
    begin, end = find(moof, b"traf")
    duration, size, flags = defaults
    decoded = 0
    offset = place
    for kind, start, _ in boxes(moof, begin, end):
        if kind == b"tfhd":
            base, duration, size, flags = _fragment_defaults(moof, start, (duration, size, flags))
            offset = place if base is None else base
        elif kind == b"tfdt":
            wide = moof[start] == 1
            decoded = struct.unpack_from(">Q" if wide else ">I", moof, start + 4)[0]
        elif kind == b"trun":
            for sample in _run(moof, start, offset, decoded, (duration, size, flags)):
                yield sample
                decoded = sample.decoded + sample.duration


def _fragment_defaults(moof: bytes, start: int, defaults: tuple[int, int, int]) -> tuple[int | None, int, int, int]:
    present = int.from_bytes(moof[start + 1 : start + 4])
    at = start + 8
    base: int | None = None
    if present & _BASE_OFFSET:
        base = struct.unpack_from(">Q", moof, at)[0]
        at += 8
    if present & _DESCRIPTION:
        at += 4
    found = list(defaults)
    for position, bit in enumerate((_DEFAULT_DURATION, _DEFAULT_SIZE, _DEFAULT_FLAGS)):
        if present & bit:
            found[position] = struct.unpack_from(">I", moof, at)[0]
            at += 4
    return base, found[0], found[1], found[2]


def _run(moof: bytes, start: int, offset: int, decoded: int, defaults: tuple[int, int, int]) -> Iterator[Sample]:
    present = int.from_bytes(moof[start + 1 : start + 4])
    count = struct.unpack_from(">I", moof, start + 4)[0]
    at = start + 8
    if present & _DATA_OFFSET:
        offset += struct.unpack_from(">i", moof, at)[0]
        at += 4
    first_flags: int | None = None
    if present & _FIRST_FLAGS:
        first_flags = struct.unpack_from(">I", moof, at)[0]
        at += 4
    fields = [bit for bit in (_DURATION, _SIZE, _FLAGS, _SHIFT) if present & bit]
    row = struct.Struct(">" + "".join("i" if bit == _SHIFT else "I" for bit in fields))
    if at + row.size * count > len(moof):
        raise Broken("a table of samples is cut off")
    values = {_DURATION: defaults[0], _SIZE: defaults[1], _FLAGS: defaults[2], _SHIFT: 0}
    for number in range(count):
        values.update(zip(fields, row.unpack_from(moof, at), strict=True))
        at += row.size
        flags = first_flags if number == 0 and first_flags is not None else values[_FLAGS]
        shown = decoded + values[_SHIFT]
        yield Sample(offset, values[_SIZE], decoded, values[_DURATION], shown, not flags & _NO_SYNC)
        offset += values[_SIZE]
        decoded += values[_DURATION]
