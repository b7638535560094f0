"""Ladders: which qualities a video is wanted in. The default one is `default.toml`; a user's own file looks the same."""

from __future__ import annotations

import msgspec


class Rung(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a ladder; `height` counts on the short side, so that it means the same for portrait."""

    name: str
    height: int
    video_kbps: int
    """The most that is spent; easy pictures take less, by `crf`."""
    audio_kbps: int
    required: bool = True
    """Whether the video fails when this quality fails."""
    crf: int = 23
    preset: str = "veryfast"
    time_factor: float = 2.0
    """Stretches the time-out: see `holdfast_media.ffmpeg.time_limit`."""


class Ladder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rungs by height, the highest first."""

    rungs: tuple[Rung, ...]


class Rendition(msgspec.Struct, frozen=True, kw_only=True):
    """One quality of one video: a rung, with the size it has for this source."""

    name: str
    width: int
    height: int
    video_kbps: int
    audio_kbps: int
    required: bool = True
    crf: int = 23
    preset: str = "veryfast"
    time_factor: float = 2.0
