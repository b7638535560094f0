"""Sources whose every frame says its number, and reading those numbers back: no clip can pretend."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import av

from holdfast_media.ffmpeg import find_ffmpeg as found

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RATE = 30
SECONDS = 6
GAP = 75
"""Frames between two key frames: 2.5 s, so that a copy cannot begin where it was asked to."""
# left half: the number's last digit of base 20, right half: the one before it; ten steps of grey apart, for encoding loses some
NUMBERED = "nullsrc=s=64x36:r={rate}:d={seconds},geq=lum='20+10*if(lt(X,32),mod(N,20),mod(floor(N/20),20))':cb=128:cr=128"


class Frame(NamedTuple):
    number: int
    at: float
    digest: str


def make(path: Path, *options: str, rate: str = str(RATE), seconds: float = SECONDS, sound: bool = True) -> Path:
    """Make a film; `options` say how it is encoded."""
    inputs = ["-f", "lavfi", "-i", NUMBERED.format(rate=rate, seconds=seconds)]
    if sound:
        inputs += ["-f", "lavfi", "-i", f"sine=440:d={seconds}", "-c:a", "aac"]
    encoder = ["-c:v", "libx264", "-preset", "ultrafast", "-g", str(GAP), "-sc_threshold", "0", "-bf", "2", "-qp", "10"]
    ffmpeg(*inputs, *encoder, *options, str(path))
    return path


def copy(source: Path, target: Path) -> Path:
    """Put the same streams into another container."""
    ffmpeg("-i", str(source), "-c", "copy", str(target))
    return target


def program() -> Path:
    """The real ffmpeg."""
    return found()


def ffmpeg(*arguments: str) -> None:
    subprocess.run([program(), "-v", "error", "-nostdin", "-y", *arguments], check=True, capture_output=True)


def frames(path: Path) -> list[Frame]:
    """Decode a film: the number that each frame shows, its time from the first one, and its exact content."""
    read: list[Frame] = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            plane = frame.planes[0]  # the grey of YUV
            data = bytes(plane)
            rows = b"".join(data[row * plane.line_size : row * plane.line_size + 64] for row in range(36))
            middle = 18 * plane.line_size
            low, high = (round((data[middle + at] - 20) / 10) for at in (16, 48))
            read.append(Frame(low + 20 * high, moment(frame), hashlib.sha256(rows).hexdigest()))
    return [Frame(one.number, one.at - read[0].at, one.digest) for one in read]


def moment(one: Any) -> float:
    """When a frame, or a piece of sound, is there, in seconds."""
    return float(one.pts * one.time_base)


def numbers(path: Path) -> list[int]:
    return [frame.number for frame in frames(path)]


def loudness(path: Path) -> Sequence[tuple[float, int]]:
    """Return when there is sound: the time of each piece, and how many samples it has."""
    with av.open(str(path)) as container:
        return [(moment(piece), piece.samples) for piece in container.decode(audio=0)]
