"""How long encoding and reading may take, and how much memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast_media.ffmpeg.cores import processors

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST: Final = 300.0
LONGEST: Final = 14_400.0
_SLOWEST: Final = 2_000_000
"""Bytes a second that are read at least: from a far disk, by a machine that does other things too."""

_BESIDE: Final = 2 << 30
"""Bytes beside frames: programs, tables of long films, sound."""
_FRAMES: Final = 256
_FRAMES_OF_A_THREAD: Final = 12
"""Frames of each size that are held at once: three times what was measured with x264's preset medium (82, and 3.4 for each
thread). Its preset veryslow takes twice as much as that one: 6.0 GiB and not 3.0, for 2160p and three smaller ones at once."""


def memory_limit(frame: float = 0.0, pixels: Iterable[int] = (), *, threads: int = 0) -> int:
    """Return the most bytes that ffmpeg may use to decode frames of so many bytes and encode them in these sizes.

    Ample: nearly twice what the slowest preset was seen to take. It is for a source that makes a decoder grow without end,
    before the kernel has to choose whom it ends. `threads` are those that it is given; 0: as many as there are processors.
    """
    held = _FRAMES + _FRAMES_OF_A_THREAD * (threads or processors())
    return _BESIDE + round((frame + sum(pixels) * 1.5) * held)


def time_limit(seconds: float, factor: float = 1.0) -> float:
    """Return the most seconds that encoding `seconds` of video may take: twice its length, times the factor of the quality.

    Never below five minutes, for machines are busy, and never above four hours.
    """
    return min(max(seconds * 2 * factor, SHORTEST), LONGEST)


def reading_limit(size: int, seconds: float = 0.0) -> float:
    """Return the most seconds that reading a file of so many bytes may take, and decoding it where that is so many seconds.

    Never below five minutes, and never above four hours.
    """
    return min(max(size / _SLOWEST, time_limit(seconds)), LONGEST)
