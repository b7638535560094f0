"""What is asked for, and the addresses that follow from it: the same clip of the same bytes has one address."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.clip.cutting import Cut
from holdfast_media.clip.resolving import is_address, local_path
from holdfast_media.errors import BAD_RANGE, MediaError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
"""Of how clips are made. Another one makes other clips, beside those that are there."""
ROOT: Final = "clips"
DIGITS: Final = 3
"""Of a time, after the point."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A clip that is asked for. Times are seconds of the source, from its first frame, in whole milliseconds."""

    source: str
    start: float
    end: float | None
    fast: bool
    asr: bool
    language: str | None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Lies beside a clip, put there last: what it holds, and the file that is meant."""

    cut: Cut
    key: str
    size: int
    sha256: str


def make_request(
    source: str,
    start: float = 0.0,
    end: float | None = None,
    *,
    fast: bool = False,
    asr: bool = False,
    language: str | None = None,
) -> Request:
    """Return what is asked for, the same however its times are written: a time means the nearest millisecond.

    Frames are looked for half a millisecond around it (`reader.NEAR`), so the one that was meant is found.
    """
    end = None if end is None else round(end, DIGITS)
    return Request(source=source, start=round(start, DIGITS), end=end, fast=fast, asr=asr, language=language)


def check(request: Request) -> None:
    """Raise `BAD_RANGE` for times that cannot be."""
    if request.start < 0 or (request.end is not None and request.end <= request.start):
        raise MediaError(
            BAD_RANGE, f"a clip ends after it begins, at 0 or later: not from {request.start:g} s to {request.end} s"
        )


def job_key(request: Request) -> str:
    """Return what makes two requests the same while one of them is on its way."""
    return _digest({"clip": work_key(request), "asr": request.asr, "language": request.language})


def work_key(request: Request) -> str:
    """Return what makes the clips of two requests the same, whatever else is wanted of them.

    Where the source is a file that can be seen from here, its version is part of it: a file that was replaced is another clip.
    """
    source, version = request.source, ""
    if not is_address(source):
        with suppress(OSError, MediaError):
            path = local_path(source)
            status = path.stat()
            source, version = os.path.realpath(path), f"{status.st_size}-{status.st_mtime_ns}"
    return _digest({**_asked(request), "source": source, "file": version})


def clip_folder(request: Request, identity: str) -> str:
    """Return the folder of a clip's artifacts in the storage."""
    digest = _digest({**_asked(request), "source": identity})
    return f"{ROOT}/{digest[:2]}/{digest}"


def clip_key(folder: str, container: str) -> str:
    """Return where a clip is."""
    return f"{folder}/clip.{container}"


def captions_key(folder: str, transcriber: str, language: str | None) -> str:
    """Return where the subtitles of a clip are."""
    return f"{folder}/captions-{_digest({'by': transcriber, 'language': language})[:24]}.vtt"


def _asked(request: Request) -> dict[str, object]:
    end = None if request.end is None else round(request.end * 1000)
    return {"recipe": VERSION, "start": round(request.start * 1000), "end": end, "fast": request.fast}


def _digest(recipe: Mapping[str, object]) -> str:
    return hashlib.sha256(msgspec.json.encode(recipe, order="deterministic")).hexdigest()
