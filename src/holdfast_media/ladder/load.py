"""Reading ladders from TOML, with errors that say where and how to mend it."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from holdfast_media.errors import LADDER_INVALID, MediaError
from holdfast_media.ladder.rungs import Ladder, Rung

PRESETS: Final = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_TAKEN: Final = ("audio", "master")
_BOUNDS: Final = (
    ("height", 2, 8192),
    ("video_kbps", 10, 500_000),
    ("audio_kbps", 16, 512),
    ("crf", 0, 51),
    ("time_factor", 0.1, 100),
)


def default_ladder() -> Ladder:
    """Return the ladder that comes with the package: 2160p to 360p."""
    text = resources.files("holdfast_media.ladder").joinpath("default.toml").read_text(encoding="utf-8")
    return parse_ladder(text, "default.toml")


def ladder_of(name: str) -> Ladder:
    """Return the ladder of a name or file; raises LADDER_INVALID."""
    return default_ladder() if name == "default" else load_ladder(Path(name).expanduser())


def load_ladder(path: Path) -> Ladder:
    """Return the ladder of a file; raises LADDER_INVALID, with the rung and the field, for one that cannot be used."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        there = "`holdfast media ladder` shows the one that comes with the package, to begin a file of your own with"
        raise MediaError(LADDER_INVALID, f"there is no ladder {path.name}: the file does not exist. {there}.") from error
    except UnicodeDecodeError as error:
        raise MediaError(LADDER_INVALID, f"the ladder {path.name} is no text (UTF-8).") from error
    except OSError as error:
        raise MediaError(LADDER_INVALID, f"the ladder {path.name} cannot be read: {error.strerror}.") from error
    return parse_ladder(text, path.name)


def parse_ladder(text: str, name: str = "ladder") -> Ladder:
    """Return the ladder in the text, its rungs sorted from high to low; raises LADDER_INVALID."""
    try:
        ladder = msgspec.convert(tomllib.loads(text), Ladder)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise MediaError(LADDER_INVALID, f"{name}: {error}.") from error
    if not ladder.rungs:
        raise MediaError(LADDER_INVALID, f"{name}: no rungs. Give at least one [[rungs]] table.")
    for rung in ladder.rungs:
        if (flaw := _flaw(rung)) is not None:
            raise MediaError(LADDER_INVALID, f"{name}: rung {rung.name!r}: {flaw}.")
    names = [rung.name.casefold() for rung in ladder.rungs]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        raise MediaError(LADDER_INVALID, f"{name}: two rungs are called {twice[0]!r}. Names are folders, so each is used once.")
    if not any(rung.required for rung in ladder.rungs):
        raise MediaError(LADDER_INVALID, f"{name}: no rung is required, so nothing could fail. Require at least one.")
    return Ladder(rungs=tuple(sorted(ladder.rungs, key=lambda rung: (-rung.height, -rung.video_kbps))))


def _flaw(rung: Rung) -> str | None:
    """Say what is wrong with a rung, if anything."""
    if not _NAME.fullmatch(rung.name) or rung.name in _TAKEN:
        return "a name is a folder: up to 32 letters, digits, dots, dashes or underscores, and neither 'audio' nor 'master'"
    for field, least, most in _BOUNDS:
        if not least <= getattr(rung, field) <= most:
            return f"{field} is {getattr(rung, field)}; it must be from {least} to {most}"
    if rung.preset not in PRESETS:
        return f"preset {rung.preset!r} is none of {', '.join(PRESETS)}"
    return None
