"""Which files are meant: one, or every media file of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast_media.library import BadRequest

if TYPE_CHECKING:
    from pathlib import Path

_PICTURE: Final = (
    "mp4",
    "m4v",
    "mov",
    "mkv",
    "webm",
    "avi",
    "wmv",
    "flv",
    "mpg",
    "mpeg",
    "mts",
    "m2ts",
    "ts",
    "3gp",
    "ogv",
    "mxf",
)
_SOUND: Final = ("mp3", "m4a", "aac", "wav", "flac", "ogg", "opus", "wma")
ENDINGS: Final = frozenset(f".{ending}" for ending in (*_PICTURE, *_SOUND))
"""Of files that are taken out of a folder; a file that is named is taken whatever it is called."""


def media_files(sources: tuple[Path, ...], *, but: Path | None = None) -> list[Path]:
    """Return the files that are meant, each once; folders are searched, hidden ones and the output left out."""
    found: dict[Path, None] = {}
    for source in sources:
        try:
            found |= dict.fromkeys(_meant(source, but))
        except OSError as error:
            raise BadRequest(f"{source} cannot be read: {error.strerror}") from None
    return list(found)


def _meant(source: Path, but: Path | None) -> list[Path]:
    if not source.exists():
        raise BadRequest(f"there is no file or folder {source}")
    if not source.is_dir():
        return [source.absolute()]
    inside = sorted(path for path in source.absolute().rglob("*") if _counts(path, source.absolute(), but))
    if not inside:
        raise BadRequest(f"no media file in {source}: looked for {', '.join(sorted(ENDINGS))}")
    return inside


def _counts(path: Path, folder: Path, but: Path | None) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() in ENDINGS and path.is_file() and not hidden and (but is None or but not in path.parents)
