"""The library of videos: their states, and what can be asked of them."""

from holdfast_media.library.library import Library
from holdfast_media.library.records import Asked, JobIds, Quality, SourceRef, Version, Video
from holdfast_media.library.refusals import BadRequest, LibraryError, NotFailed, VideoBusy, VideoNotFound
from holdfast_media.library.states import QualityState, VersionState, VideoState

__all__ = [
    "Asked",
    "BadRequest",
    "JobIds",
    "Library",
    "LibraryError",
    "NotFailed",
    "Quality",
    "QualityState",
    "SourceRef",
    "Version",
    "VersionState",
    "Video",
    "VideoBusy",
    "VideoNotFound",
    "VideoState",
]
