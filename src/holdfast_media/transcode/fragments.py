"""Writing fragmented MP4: a header that shifts time where it must, and one fragment for each segment."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from holdfast_media.transcode.boxes import HEADER, boxes, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast_media.transcode.boxes import Sample

_KEY: Final = 0x02000000
_NO_KEY: Final = 0x01010000
_TABLE: Final = 0xF01  # data offset; duration, size, flags and shift of every sample
_BRANDS: Final = b"iso6\x00\x00\x02\x00iso6iso5mp41hlsf"


def box(kind: bytes, *content: bytes) -> bytes:
    """Return a box."""
    body = b"".join(content)
    return struct.pack(">I4s", HEADER + len(body), kind) + body


def header(moov: bytes, shift: int) -> bytes:
    """Return the file that comes before the segments: what the encoder wrote, and an edit list when time is shifted.

    `shift` ticks are cut from the start: what frames wait for those they lean on, or what an encoder of sound puts before it.
    What names the program that wrote it is left out.
    """
    parts = []
    for kind, begin, end in boxes(moov):
        if kind == b"udta":
            continue
        body = moov[begin:end]
        parts.append(box(kind, _with_edit(body, shift) if kind == b"trak" and shift else body))
    return box(b"ftyp", _BRANDS) + box(b"moov", *parts)


def fragment(number: int, samples: Sequence[Sample], wait: int) -> bytes:
    """Return all of a segment but its data: the table of samples, and the head of the box that the data follows in.

    Samples come in the order of decoding, with `decoded` and `duration` already as they are to be; each is shown `wait` ticks
    later than it says, which the header cuts off again.
    """
    rows = b"".join(
        struct.pack(
            ">IIII", sample.duration, sample.size, _KEY if sample.key else _NO_KEY, sample.shown - sample.decoded + wait
        )
        for sample in samples
    )

    def moof(data_offset: int) -> bytes:
        table = struct.pack(">III", _TABLE, len(samples), data_offset)
        track = box(b"tfhd", struct.pack(">II", 0x020000, 1))  # offsets count from this fragment
        time = box(b"tfdt", struct.pack(">IQ", 1 << 24, samples[0].decoded))
        return box(b"moof", box(b"mfhd", struct.pack(">II", 0, number)), box(b"traf", track, time, box(b"trun", table, rows)))

    size = sum(sample.size for sample in samples)
    return moof(len(moof(0)) + HEADER) + struct.pack(">I4s", HEADER + size, b"mdat")


def codec(moov: bytes) -> str:
    """Return the codec as RFC 6381 writes it: avc1.64001f, or mp4a.40.2."""
    begin, end = _entry(moov)
    kind = moov[begin - 4 : begin]
    if kind == b"avc1":
        place, _ = find(moov, b"avcC", start=begin + 78, end=end)
        return f"avc1.{moov[place + 1 : place + 4].hex()}"
    return "mp4a.40.2"


def size_of_picture(moov: bytes) -> tuple[int, int]:
    """Return width and height."""
    begin, _ = _entry(moov)
    width, height = struct.unpack_from(">HH", moov, begin + 24)
    return width, height


def clock(moov: bytes) -> int:
    """Return the ticks per second."""
    begin, _ = find(moov, b"trak", b"mdia", b"mdhd")
    ticks: int = struct.unpack_from(">I", moov, begin + (20 if moov[begin] else 12))[0]
    return ticks


def _entry(moov: bytes) -> tuple[int, int]:
    """Return where the content of the first entry of the sample description begins and ends."""
    begin, end = find(moov, b"trak", b"mdia", b"minf", b"stbl", b"stsd")
    for _, start, finish in boxes(moov, begin + 8, end):
        return start, finish
    raise AssertionError("a description without an entry")  # pragma: no cover


def _with_edit(trak: bytes, shift: int) -> bytes:
    """Return the track with an edit list that begins `shift` ticks in, in place of any it has."""
    edit = box(b"edts", box(b"elst", struct.pack(">IIQqI", 1 << 24, 1, 0, shift, 1 << 16)))
    parts = []
    for kind, begin, end in boxes(trak):
        if kind != b"edts":
            parts.append(box(kind, trak[begin:end]))
        if kind == b"tkhd":
            parts.append(edit)
    return b"".join(parts)
