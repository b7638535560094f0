"""Clips as a part of the media application: their settings out of the application's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Retry
from holdfast_media.clip.settings import ClipSettings

if TYPE_CHECKING:
    from holdfast_media.media import Media


def settings_for(media: Media) -> ClipSettings:
    """Return how clips are made in a media application."""
    given = media.settings
    return ClipSettings(
        storage=lambda: media.storage,
        scratch=given.scratch,
        ffmpeg=None if given.ffmpeg is None else Path(given.ffmpeg),
        transcriber=media.transcriber,
        folders=None if given.clip_folders is None else tuple(Path(folder).expanduser() for folder in given.clip_folders),
        networks=given.clip_networks,
        max_bytes=given.clip_max_bytes,
        ytdlp=given.ytdlp,
        fetch_timeout=given.fetch_timeout,
        ytdlp_timeout=given.ytdlp_timeout,
        clip_timeout=given.clip_timeout,
        stall_after=given.stall_after,
        reserve=given.reserve,
        queue=given.clip_queue,
        lease=given.lease,
        retry=Retry(max_attempts=given.attempts, initial=given.retry_after),
    )
