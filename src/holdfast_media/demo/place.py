"""Where a demonstration takes place: a folder with a film, a SQLite file, and what is made of the film."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast_media.cli.common import OWN_DATABASE
from holdfast_media.ffmpeg import find_ffmpeg, run

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 40
SHORTEST: Final = 12
RATE: Final = 30
SIZE: Final = "640x360"
CHUNK: Final = 4.0
SEGMENT: Final = 2
LEASE: Final = 3.0
"""Seconds: how soon a killed worker is missed. A real one has longer leases: there is no hurry, and busy machines stall."""
TRIAL: Final = 4
"""Seconds of film that are encoded to see how fast this machine is: about one on two free cores."""
SLOW: Final = 2.5
"""Seconds that the trial may take: beyond that the film is shorter, so that the whole comes to a minute all the same."""
LADDER: Final = Path(__file__).with_name("ladder.toml")


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one demonstration."""

    folder: Path
    seconds: int | None = None
    """How long the film is; `None`: as long as this machine makes in good time."""

    @property
    def film(self) -> Path:
        """The source."""
        return self.folder / "film.mp4"

    @property
    def url(self) -> str:
        """The store of jobs and videos: where every command finds it that is told the output."""
        return f"sqlite:///{self.output / OWN_DATABASE}"

    @property
    def output(self) -> Path:
        """Where artifacts go."""
        return self.folder / "media"

    def master(self, video_id: str) -> Path:
        """Return the playlist that plays the film."""
        return self.output / "videos" / video_id / "master.m3u8"

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
            "HOLDFAST_MEDIA_TOGETHER": "false",
            "HOLDFAST_MEDIA_RETRY_AFTER": "0.1",
            "NO_COLOR": "1",
        }


@contextmanager
def made_place(keep: Path | None, seconds: int | None = None, *, leave: bool = True) -> Iterator[Place]:
    """Give a folder: one to be kept, or a temporary one, which stays if all went well and it is to be left to be watched."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield Place(keep.absolute(), seconds)
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        yield Place(folder, seconds)
    except BaseException:
        leave = False
        raise
    finally:
        if not leave:
            shutil.rmtree(folder, ignore_errors=True)


def try_out() -> float:
    """Encode a moment of film as the workers will; returns how many seconds that took."""
    arguments = ["-f", "lavfi", "-i", f"testsrc2=size={SIZE}:rate={RATE}:duration={TRIAL}", "-vf", "scale=-2:240"]
    arguments += ["-c:v", "libx264", "-preset", "medium", "-threads", "1", "-f", "null", "-"]
    return run(arguments, ffmpeg=find_ffmpeg(), duration=TRIAL).seconds


def fitting(trial: float) -> int:
    """Return how long the film may be on a machine whose trial took so many seconds: whole chunks, and enough of them."""
    chunks = int(SECONDS * min(1.0, SLOW / trial) / CHUNK)
    return max(SHORTEST, int(chunks * CHUNK))


def make_film(place: Place, seconds: int) -> int:
    """Synthesise the film, with a clock in the picture and a tone; returns how many frames it has."""
    picture = f"testsrc2=size={SIZE}:rate={RATE}:duration={seconds}"
    sound = f"sine=frequency=330:beep_factor=4:duration={seconds}"
    arguments = ["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", sound, "-c:v", "libx264", "-preset", "ultrafast"]
    arguments += ["-pix_fmt", "yuv420p", "-g", str(RATE), "-c:a", "aac", "-shortest", "-y", str(place.film)]
    return run(arguments, ffmpeg=find_ffmpeg(), duration=seconds).frames


def count_frames(playlist: Path, seconds: float) -> int:
    """Decode a playlist from beginning to end, and return how many frames come out."""
    arguments = ["-xerror", "-i", str(playlist), "-map", "0:v:0", "-f", "null", "-"]
    return run(arguments, ffmpeg=find_ffmpeg(), duration=seconds).frames
