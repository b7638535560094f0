"""How much the server takes from encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEBI: Final = 1024 * 1024
GIBI: Final = 1024 * MEBI


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """How much an archive may hold."""

    files: int = 10_000
    total: int = 20 * GIBI
    """Bytes of all its files together, unpacked."""
    file: int = 10 * GIBI
    """Bytes of one file."""
    ratio: float = 100.0
    """Unpacked bytes for each byte of the archive, beyond the first mebibyte."""
    seconds: float = 900.0
    """For unpacking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is refused: with 413 what is too large, with 429 what is too many, with 408 what takes too long."""

    total: int = 100 * GIBI
    """Bytes of one upload."""
    part: int = 64 * MEBI
    """Bytes of one part."""
    parts: int = 10_000
    """Parts of one upload."""
    uploads: int = 64
    """Uploads that one job may have open at once."""
    all_uploads: int = 2_000
    """Uploads that all jobs together may have open at once."""
    part_seconds: float = 300.0
    """For the body of one part to arrive."""
    idle: float = 24 * 3600.0
    """Seconds after which an upload is removed that nobody goes on with."""
    at_once: int = 8
    """Completions and checks that are worked on at once; who comes beyond is asked to come again (503)."""
    proof: float = 30.0
    """Seconds after which a download that goes on has to hold its lease still."""
    archive: ArchiveLimits = ArchiveLimits()
