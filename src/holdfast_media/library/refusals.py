"""What the library refuses, in words that say what to do."""

from __future__ import annotations

from holdfast import HoldfastError


class LibraryError(HoldfastError):
    """The library cannot do what was asked."""


class VideoNotFound(LibraryError, LookupError):
    """There is no such video: it never was, or it was deleted."""

    def __init__(self, video_id: str) -> None:
        self.video_id = video_id
        super().__init__(f"there is no video {video_id}: it was never added, or it has been deleted. See: holdfast media ls")


class VideoBusy(LibraryError):
    """A version of the video is being made, and a video has one such at most."""

    def __init__(self, video_id: str, number: int | None = None) -> None:
        self.video_id = video_id
        which = "another version" if number is None else f"version {number}"
        super().__init__(
            f"{which} of video {video_id} is being made already. Wait until it has ended, or give it up for a new one: "
            "replace=True (--replace)"
        )


class NotFailed(LibraryError):
    """A retry of what has not failed."""

    def __init__(self, video_id: str, state: str) -> None:
        self.video_id = video_id
        super().__init__(
            f"the newest version of video {video_id} is {state}, and only a failed one can be retried. "
            "To make it anew: retranscode"
        )


class BadRequest(LibraryError, ValueError):
    """A request that makes no sense; the message says why."""
