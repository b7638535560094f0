"""Where a demonstration takes place: a folder with a film, a SQLite file, and what is made of the film."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast_media.ffmpeg import find_ffmpeg, run

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 40
SHORTEST: Final = 12
RATE: Final = 30
SIZE: Final = "854x480"
CHUNK: Final = 4.0
SEGMENT: Final = 2
LEASE: Final = 3.0
"""Seconds: how soon a killed worker is missed. A real one has longer leases: there is no hurry, and busy machines stall."""
FFMPEG: Final = "HOLDFAST_FFMPEG"
LADDER: Final = Path(__file__).with_name("ladder.toml")


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one demonstration."""

    folder: Path
    seconds: int = SECONDS
    """How long the film is."""

    @property
    def film(self) -> Path:
        """The source."""
        return self.folder / "film.mp4"

    @property
    def url(self) -> str:
        """The store of jobs and videos."""
        return f"sqlite:///{self.folder / 'jobs.db'}"

    @property
    def output(self) -> Path:
        """Where artifacts go."""
        return self.folder / "media"

    def environment(self) -> dict[str, str]:
        """Return what the processes are told; what this one was told about a store of its own is none of theirs."""
        own = {
            name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") or name == "HOLDFAST_FFMPEG"
        }
        return own | {
            "HOLDFAST_URL": self.url,
            "HOLDFAST_MEDIA_STORAGE": str(self.output),
            "HOLDFAST_MEDIA_SCRATCH": str(self.folder / "scratch"),
            "HOLDFAST_MEDIA_LADDER": str(LADDER),
            "HOLDFAST_MEDIA_CHUNK_SECONDS": str(CHUNK),
            "HOLDFAST_MEDIA_SEGMENT_SECONDS": str(SEGMENT),
            "HOLDFAST_MEDIA_LEASE": str(LEASE),
            "HOLDFAST_MEDIA_THREADS": "1",
            "HOLDFAST_MEDIA_RETRY_AFTER": "0.1",
            "NO_COLOR": "1",
        }


@contextmanager
def made_place(keep: Path | None, seconds: int = SECONDS) -> Iterator[Place]:
    """Give a folder: a temporary one that is removed at the end, or one to be kept."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield Place(keep.absolute(), seconds)
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        yield Place(folder, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_film(place: Place) -> int:
    """Synthesise the film, with a clock in the picture and a tone; returns how many frames it has."""
    picture = f"testsrc2=size={SIZE}:rate={RATE}:duration={place.seconds}"
    sound = f"sine=frequency=330:beep_factor=4:duration={place.seconds}"
    arguments = ["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", sound, "-c:v", "libx264", "-preset", "ultrafast"]
    arguments += ["-pix_fmt", "yuv420p", "-g", str(RATE), "-c:a", "aac", "-shortest", "-y", str(place.film)]
    return run(arguments, ffmpeg=find_ffmpeg(), duration=place.seconds).frames


def count_frames(playlist: Path, seconds: float) -> int:
    """Decode a playlist from beginning to end, and return how many frames come out."""
    arguments = ["-xerror", "-i", str(playlist), "-map", "0:v:0", "-f", "null", "-"]
    return run(arguments, ffmpeg=find_ffmpeg(), duration=seconds).frames
