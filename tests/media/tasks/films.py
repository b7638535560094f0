"""Small films, made by ffmpeg and not downloaded, and what is in what was made of them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from holdfast_media.ffmpeg import find_ffmpeg

if TYPE_CHECKING:
    from pathlib import Path

RATE = 10


def film(path: Path, *, seconds: int = 8, sound: bool = True, picture: bool = True, size: str = "320x180") -> Path:
    """Make a film: a test picture that differs in every frame, and a tone."""
    inputs: list[str] = []
    if picture:
        inputs += ["-f", "lavfi", "-i", f"testsrc2=size={size}:rate={RATE}:duration={seconds}"]
    if sound:
        inputs += ["-f", "lavfi", "-i", f"sine=frequency=440:duration={seconds}"]
    codecs = ["-c:v", "libx264", "-preset", "ultrafast", "-g", "5", "-pix_fmt", "yuv420p"] if picture else []
    ffmpeg(*inputs, *codecs, *(["-c:a", "aac"] if sound else []), "-shortest", str(path))
    return path


def ffmpeg(*arguments: str) -> str:
    done = subprocess.run(
        [find_ffmpeg(), "-hide_banner", "-y", *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


def frames(playlist: Path) -> list[str]:
    """Return a checksum of each frame that a player would show: by decoding all of them."""
    said = subprocess.run(
        [find_ffmpeg(), "-v", "error", "-i", str(playlist), "-map", "0:v:0", "-f", "framemd5", "-"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return [line.rpartition(",")[2].strip() for line in said.stdout.splitlines() if line and not line.startswith("#")]


def ladder(path: Path, *rungs: tuple[str, int, bool]) -> Path:
    """Write a ladder of small qualities: name, height, whether it is required."""
    lines = [
        f'[[rungs]]\nname = "{name}"\nheight = {height}\nvideo_kbps = 300\naudio_kbps = 64\npreset = "ultrafast"\n'
        f"required = {str(required).lower()}\n"
        for name, height, required in rungs
    ]
    path.write_text("\n".join(lines))
    return path
