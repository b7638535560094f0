"""Which ffmpeg is used: the one that is set, else the one on PATH, else the one of the wheel `imageio-ffmpeg`."""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from holdfast_media.errors import FFMPEG_MISSING, FFMPEG_UNSUITABLE, MediaError

logger = logging.getLogger("holdfast.media")

VARIABLE: Final = "HOLDFAST_FFMPEG"
OLDEST: Final = (5, 1)
"""The first with `-fps_mode`, without which frames are dropped and doubled."""
_VERSION: Final = re.compile(r"^ffmpeg version n?(\d+)\.(\d+)")
_PATIENCE: Final = 10.0


class Found(NamedTuple):
    """An ffmpeg that can be used."""

    program: Path
    version: str
    """As it says it itself, such as 5.1 or N-110233-g9b2; empty: it does not say."""
    passed_over: str = ""
    """Why the one on PATH is not it; empty: it is, or there is none."""


def find_ffmpeg(setting: str | os.PathLike[str] | None = None) -> Path:
    """Return the program to run; raises as `look_for_ffmpeg` does."""
    found = look_for_ffmpeg(setting)
    if found.passed_over:
        _say_once(found.passed_over)
    return found.program


def look_for_ffmpeg(setting: str | os.PathLike[str] | None = None) -> Found:
    """Return the program to run, and what is to be said about it.

    One on PATH that is too old gives way to that of the wheel. A setting is never passed over in silence: who set it wants that
    one. Raises FFMPEG_MISSING when there is none, or the one that is set is none, and FFMPEG_UNSUITABLE when it is too old.
    """
    named = setting or os.environ.get(VARIABLE)
    if named:
        return _named(named)
    passed_over = ""
    if (found := shutil.which("ffmpeg")) is not None:
        program = Path(found).absolute()
        works, version = _asked(program)
        if works and not _too_old(version):
            return Found(program, version)
        passed_over = f"the ffmpeg on PATH is {version}, and {_OLDEST} or newer is needed" if works else _BROKEN
    try:
        from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]  # noqa: PLC0415  where no other is

        program = Path(get_ffmpeg_exe()).absolute()
    except (ImportError, RuntimeError) as error:
        message = f"{passed_over or 'no ffmpeg on this machine'}. Install one (apt install ffmpeg, or pip install "
        raise MediaError(
            FFMPEG_UNSUITABLE if passed_over else FFMPEG_MISSING, f"{message}'holdfast[media]'), or name it in {VARIABLE}."
        ) from error
    return Found(program, _asked(program)[1], passed_over)


def _named(named: str | os.PathLike[str]) -> Found:
    if (found := shutil.which(named)) is None:
        raise MediaError(
            FFMPEG_MISSING,
            f"the ffmpeg that is set ({Path(named).name!r}) is no program that can be run. "
            f"Correct the setting or {VARIABLE}, or remove it to use the one on PATH.",
        )
    program = Path(found).absolute()
    _, version = _asked(program)
    if _too_old(version):
        raise MediaError(
            FFMPEG_UNSUITABLE,
            f"the ffmpeg that is set ({program.name!r}) is {version}, and {_OLDEST} or newer is needed. "
            f"Name another one, or remove the setting or {VARIABLE} to use the one that comes with 'holdfast[media]'.",
        )
    return Found(program, version)


_OLDEST: Final = ".".join(map(str, OLDEST))
_BROKEN: Final = "the ffmpeg on PATH cannot be run"


def _too_old(version: str) -> bool:
    """Tell whether this is a release before the oldest; builds between releases say no number, and are believed."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST


def _asked(program: Path) -> tuple[bool, str]:
    """Return whether a program runs, and the version it says; asked again when another file stands in its place."""
    try:
        status = program.stat()
    except OSError:
        return False, ""
    return _ask(program, status.st_mtime_ns, status.st_size)


@functools.cache
def _ask(program: Path, _modified: int, _size: int) -> tuple[bool, str]:
    try:
        done = subprocess.run(  # noqa: S603  a program that the user or the system names, and no shell
            [program, "-version"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False, ""
    words = done.stdout.split(maxsplit=3)
    number = _VERSION.match(done.stdout)
    said = f"{number[1]}.{number[2]}" if number else words[2] if words[:2] == ["ffmpeg", "version"] and words[2:] else ""
    return done.returncode == 0, said


@functools.cache
def _say_once(why: str) -> None:
    logger.warning("%s: the one that came with imageio-ffmpeg is used", why)
