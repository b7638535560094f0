"""What became of the film: every chunk and every frame."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a demonstration."""

    video: str
    """The id of the film in its library."""
    seconds: float
    killed: str | None
    """The worker that was killed; `None`: all was over before one could be."""
    chunks: int
    """Of the film."""
    done: int
    """Chunks that are there in every quality."""
    redone: int
    """Chunks that were begun more than once."""
    encodes: int
    """Each chunk in each quality."""
    source_frames: int
    frames: Mapping[str, int]
    """Frames that come out when each quality is decoded."""
    killed_at: float | None = None
    """How many percent of the work were done when it was."""
    taken_over_after: float | None = None
    """Seconds from the kill until another worker had the chunk."""
    taken_over_by: str | None = None
    """Who that was."""

    @property
    def lost(self) -> int:
        """Chunks that nobody has done."""
        return self.chunks - self.done

    @property
    def adds_up(self) -> bool:
        """Whether nothing is lost, a kill cost no more than one chunk, and every frame is there in every quality."""
        whole = all(count == self.source_frames for count in self.frames.values()) and len(self.frames) > 0
        return self.lost == 0 and self.redone <= (self.killed is not None) and whole

    def __str__(self) -> str:
        worst = min(self.frames.values(), key=lambda count: -abs(count - self.source_frames), default=0)
        return f"{self.chunks} chunks, {self.redone} redone, {self.lost} lost, frames {worst}/{self.source_frames}"
