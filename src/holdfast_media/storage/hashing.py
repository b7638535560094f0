"""SHA-256 of files, and what kind of content a name tells of."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Final

from holdfast_media.errors import MediaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK: Final = 1024 * 1024
ANY: Final = "application/octet-stream"
TYPES: Final = {
    ".m3u8": "application/vnd.apple.mpegurl",
    ".mpd": "application/dash+xml",
    ".m4s": "video/iso.segment",
    ".mp4": "video/mp4",
    ".m4a": "audio/mp4",
    ".ts": "video/mp2t",
    ".vtt": "text/vtt",
    ".mkv": "video/x-matroska",
    ".webm": "video/webm",
    ".mov": "video/quicktime",
    ".webp": "image/webp",
}
"""Said here and not looked up: what the machine knows differs from machine to machine."""
_DIGITS: Final = re.compile(r"[0-9a-f]{64}")


def sha256_of(source: Path | BinaryIO, on_bytes: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits; `on_bytes` is told how many bytes were read each time."""
    if not hasattr(source, "read"):
        with source.open("rb") as file:
            return sha256_of(file, on_bytes)
    digest = hashlib.sha256()
    while data := source.read(CHUNK):
        digest.update(data)
        if on_bytes is not None:
            on_bytes(len(data))
    return digest.hexdigest()


def checked_sha256(text: str) -> str:
    """Return a SHA-256 that is one, or raise `BAD_CHECKSUM`."""
    if not _DIGITS.fullmatch(text):
        raise MediaError("BAD_CHECKSUM", f"{text[:80]!r} is no SHA-256: it has 64 hexadecimal digits in lower case")
    return text


def content_type_of(key: str, given: str | None = None) -> str:
    """Return the kind of content: the given one, or what the ending of the key says."""
    if given is not None:
        return given
    ending = PurePosixPath(key).suffix.lower()
    return TYPES.get(ending) or mimetypes.types_map.get(ending, ANY)
