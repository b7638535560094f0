"""Odd inputs that become a video, each made when asked for."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING

import av

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sources = Callable[[str], Path]


def turned(path: Path, target: Path) -> Path:
    """Return a copy of a file that is to be shown turned by 90 degrees, by writing so into its header."""
    data = path.read_bytes()
    upright = b"\0\1\0\0" + b"\0" * 12 + b"\0\1\0\0" + b"\0" * 12 + b"\x40\0\0\0"
    quarter = b"\0" * 4 + b"\0\1\0\0" + b"\0" * 4 + b"\xff\xff\0\0" + b"\0" * 16 + b"\x40\0\0\0"
    at = data.rindex(upright)  # the movie has one as well, and it comes first
    target.write_bytes(data[:at] + quarter + data[at + len(upright) :])
    return target


def without_rate(path: Path, target: Path) -> Path:
    """Return a copy of the picture whose header says no frame rate: neither that of the container, nor that of the codec."""
    output = io.BytesIO()
    with av.open(str(path)) as given, av.open(output, "w", format="mpegts") as out:
        stream = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    target.write_bytes(output.getvalue())
    return target


def copied(name: str) -> Callable[[Path, Sources], None]:
    """Return what copies a source, whatever its new name says of it."""

    def make(path: Path, source: Sources) -> None:
        shutil.copyfile(source(name), path)

    return make


ODD: dict[str, Callable[[Path, Sources], object]] = {
    "a wrong extension": copied("25.mp4"),
    "a header with 0 frames per second": lambda path, source: without_rate(source("25.mp4"), path),
    "1 x 1 pixel": copied("one-pixel.mkv"),
    "10 bits": copied("ten-bit.mkv"),
    "variable frame rate": copied("vfr.mp4"),
    "a picture to be turned": lambda path, source: turned(source("silent.mp4"), path),
    "no sound": copied("silent.mp4"),
    "sound alone": copied("sound.m4a"),
    "sound that is longer than the picture": copied("longer-sound.mp4"),
}
"""By the beginnings of their rows in docs/media/inputs.md."""
