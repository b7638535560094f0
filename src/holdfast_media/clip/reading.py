"""Where the frames of a stretch of a file are, read from its packets: nothing is decoded, and only that stretch is read.

The reading is done by libav in a process of its own with limits (`reader.py`): a hostile file may crash that, never the worker.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.clip import child
from holdfast_media.errors import INPUT_UNREADABLE, PROBE_FAILED, MediaError
from holdfast_media.ffmpeg.supervise import Late
from holdfast_media.source.probe import READER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.clip.deadline import Deadline

FORMATS: Final = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,avi,flv,asf,ogg,wav,mp3,aac,flac,mxf,gif,ivf,nut,caf,aiff,ac3,eac3,opus,w64,"
    "h264,hevc,m4v,mpegvideo,dv,rm,av1,obu,y4m,yuv4mpegpipe,nsv,amr,au,voc,wv,tta,ape,dts,truehd,vc1,mpegtsraw"
)
"""Readers of plain files. Those that open further files or addresses, such as playlists, are not among them."""
MEMORY: Final = 2 * 1024**3
STREAMS: Final = 64


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The picture in a stretch. Times are ticks of `time_base`, the file's own clock."""

    index: int
    codec: str
    time_base: tuple[int, int]
    frame: tuple[int, int]
    """How long a frame lasts, in seconds as a fraction; the average of a variable rate."""
    key: int | None
    """The last key frame at or before the first frame; `None`: there is none, as in a file that was cut out of another."""
    first: int | None
    """The first frame of the stretch; `None`: it has none."""
    last: int | None
    """The last frame of the stretch."""
    after: int | None
    """Where the stretch ends: the first frame behind it, or the end of the last one of the file."""
    frames: int
    ends: bool
    """Whether the picture ends in this stretch."""
    steady: bool
    """Whether every packet says its time; else the figures above are not to be relied on."""


class Sound(msgspec.Struct, frozen=True, kw_only=True):
    """The sound of a file."""

    index: int
    codec: str


class Stretch(msgspec.Struct, frozen=True, kw_only=True, tag="stretch"):
    """What there is between two times of a file."""

    container: str
    origin: tuple[int, int]
    """What the file's own clock says at the beginning, that is at the first frame, or at the first sound of what has none."""
    seconds: float | None
    """How long the file is, by its header."""
    picture: Picture | None
    sound: Sound | None

    def seconds_at(self, tick: int) -> float:
        """Return a time of the picture in seconds from the beginning of the file."""
        assert self.picture is not None  # noqa: S101  only asked of what has one
        return float(tick * Fraction(*self.picture.time_base) - Fraction(*self.origin))


def read_stretch(path: Path, start: float, end: float | None, *, stop: Callable[[], str | None], deadline: Deadline) -> Stretch:
    """Read what there is between two times, in seconds from the beginning; without an end: to the end of the file.

    A time means the frame that is nearest to it within half a millisecond: people and programs round. Raises `MediaError` with
    an `INPUT_…` code for what cannot be read, `CLIP_TIMEOUT` for what takes too long (a disk may be slow, so another attempt
    can help), `PROBE_FAILED` when the reader could not run, and `Stopped`.
    """
    lines: list[str] = []
    arguments = [
        sys.executable,
        "-m",
        "holdfast_media.clip.reader",
        str(path),
        repr(start),
        "end" if end is None else repr(end),
    ]
    try:
        ended = child.run(arguments, timeout=deadline.left(), stop=stop, on_line=lines.append, memory=MEMORY)
    except Late as late:
        raise deadline.missed(detail=late.tail, said_by=READER) from None
    if ended.returncode in {-9, -15}:
        raise MediaError(
            PROBE_FAILED,
            "the process that reads the source was killed from outside, perhaps for want of memory",
            detail=ended.tail,
            said_by=READER,
        )
    if ended.returncode < 0:
        message = f"the source is so broken that reading it crashes (signal {-ended.returncode})"
        raise MediaError(INPUT_UNREADABLE, message, detail=ended.tail, said_by=READER)
    try:
        answer = msgspec.json.decode(lines[-1] if lines else "", type=Stretch | Refusal)
    except msgspec.MsgspecError:
        raise MediaError(
            PROBE_FAILED,
            f"the process that reads the source gave no answer (exit {ended.returncode})",
            detail=ended.tail,
            said_by=READER,
        ) from None
    if isinstance(answer, Refusal):
        raise MediaError(answer.code, answer.message, detail=ended.tail, said_by=READER)
    return answer


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """Why a file cannot be used."""

    code: str
    message: str
