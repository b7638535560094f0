"""One time limit for all that cutting takes: reading the source, running ffmpeg once or twice, reading what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from holdfast_media.errors import CLIP_TIMEOUT, MediaError


@dataclass(frozen=True, slots=True)
class Deadline:
    """So many seconds, from when this was made."""

    seconds: float
    begun: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self.begun + self.seconds - time.monotonic())

    def missed(self, *, detail: str, said_by: str) -> MediaError:
        """Return what to raise when a process was ended because none were."""
        message = f"cutting took longer than {self.seconds:g} s, and was ended"
        return MediaError(CLIP_TIMEOUT, message, detail=detail, said_by=said_by)
