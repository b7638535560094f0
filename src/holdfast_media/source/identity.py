"""The identity of a source: what recipes are made of."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import INPUT_MISSING, MediaError, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK: Final = 1 << 20


def identity(path: Path, *, stop: Callable[[], str | None] | None = None) -> str:
    """Return `<size>-<SHA-256>` of the whole file: two files with one identity have the same bytes.

    Read in blocks of a megabyte, about two gigabytes a second; nothing shorter is safe, for files that differ in one byte in
    the middle are different films. Raises INPUT_MISSING, `Stopped`.
    """
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
                if stop is not None and (reason := stop()) is not None:
                    raise Stopped(reason)
    except OSError as error:
        raise MediaError(INPUT_MISSING, f"the source cannot be read: {error.strerror}.") from error
    return f"{size}-{digest.hexdigest()}"
