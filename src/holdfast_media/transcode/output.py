"""What ffmpeg is told about the sources it reads and the files it writes, and how a file becomes final."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import INPUT_MISSING, OUTPUT_EMPTY, MediaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast_media.transcode.plan import Plan

_MOST_PIXELS: Final = 8192 * 8192
_BLOCK: Final = 1 << 20
STRICT: Final = ("-xerror", "-err_detect", "explode")
FRAGMENTS: Final = "+empty_moov+default_base_moof"


def reading(source: Path, plan: Plan, *before: str) -> list[str]:
    """Return the arguments that open the source: with the reader that the probe found, and nothing but this file."""
    if not source.is_file():
        raise MediaError(INPUT_MISSING, "the source is not there any more.")
    limits = ["-protocol_whitelist", "file", "-max_pixels", str(_MOST_PIXELS)]
    return [*limits, *before, "-f", plan.container, "-i", f"file:{source.absolute()}"]


@contextmanager
def work_file(target: Path) -> Iterator[Path]:
    """Give a file to write beside the target, which it becomes, on disk and whole, when the block ends well."""
    work = target.with_name(target.name + ".part")
    try:
        yield work
        if not work.exists() or work.stat().st_size == 0:
            raise MediaError(OUTPUT_EMPTY, "ffmpeg ended well and wrote nothing. Another attempt may do better.")
        with work.open("rb+") as file:
            os.fsync(file.fileno())
        work.replace(target)
    finally:
        work.unlink(missing_ok=True)


def digest(path: Path) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        return os.fstat(file.fileno()).st_size, found
