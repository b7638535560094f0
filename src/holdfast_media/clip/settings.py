"""What can be set about clips."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast import Retry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.speech.transcript import Transcriber
    from holdfast_media.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSettings:
    """Where clips are made and kept, where their sources may come from, and how long each part of it may take."""

    storage: Callable[[], Storage]
    """Gives where clips are published; asked when the first one is made."""
    scratch: Path
    """Where jobs work: one folder for each job, and in it one for each attempt."""
    ffmpeg: Path | None = None
    """Else the one that is found."""
    transcriber: Transcriber | None = None
    """Who writes down what is said; `None`: nobody."""

    folders: tuple[Path, ...] | None = None
    """Where local sources may be; `None`: anywhere."""
    networks: tuple[str, ...] = ()
    """Private networks that sources may be fetched from, such as `10.0.0.0/8`; public addresses always may."""
    max_bytes: int = 20 * 1024**3
    """The most that is fetched."""
    ytdlp: str | None = None
    """The program; else the one on PATH or in this Python."""
    ytdlp_format: str = "bestvideo*[height<=1080]+bestaudio/best[height<=1080]/best"

    fetch_timeout: float = 3600.0
    """Seconds for a download: `UPSTREAM_FAILURE`."""
    fetch_stall: float = 30.0
    """Seconds without a byte: `UPSTREAM_FAILURE`."""
    ytdlp_timeout: float = 1800.0
    """Seconds for yt-dlp: `YTDLP_TIMEOUT`, and it is killed."""
    clip_timeout: float | None = None
    """Seconds for cutting, all its runs together: `CLIP_TIMEOUT`, and it is killed.

    `None`: seven times the clip's length, in 300 to 14,400.
    """
    stall_after: float = 60.0
    """Seconds without a frame after which ffmpeg is killed: `INTERNAL_TRANSIENT`."""
    reserve: int = 256 * 10**6
    """Bytes that must stay free where something is fetched, cut or kept: else it is not begun, `INTERNAL_TRANSIENT`."""
    keep_scratch: float = 86_400.0
    """Seconds after which folders in which nothing changes are swept: of workers that were killed."""

    queue: str = "media"
    lease: float = 30.0
    retry: Retry = field(default_factory=lambda: Retry(max_attempts=5, initial=5.0))
