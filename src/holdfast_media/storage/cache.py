"""Downloads that are kept: resumed where one broke off, checked, shared by processes, and never more than a bounded size.

    NAME         a complete content
    NAME.part    a download that goes on, or broke off
    NAME.lock    held by who downloads it, or uses it

Whoever uses a content holds its lock shared, so that nobody removes it; locks end with their process.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import MediaError
from holdfast_media.storage.hashing import CHUNK, sha256_of
from holdfast_media.storage.local import FULL, compare
from holdfast_media.storage.locking import locked, try_lock
from holdfast_media.storage.passing import Passing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from holdfast_media.storage.port import OnProgress, Stop, Stored

LIMIT: Final = 20 * 1024**3
"""Bytes that are kept when nobody uses them."""


class Cache:
    """A folder of downloads. A single content may be larger than the limit: it is removed when nobody uses it any more."""

    def __init__(self, folder: Path | None = None, *, limit: int = LIMIT) -> None:
        self.folder = folder or default_folder()
        self.limit = limit

    @contextmanager
    def lend(
        self,
        stored: Stored,
        identity: str,
        read: Callable[[int], BinaryIO],
        *,
        on_progress: OnProgress | None = None,
        stop: Stop | None = None,
    ) -> Iterator[Path]:
        """Give a content as a local file. `identity` tells it from others where its SHA-256 is not known."""
        name = stored.sha256 or hashlib.sha256(f"{identity}\n{stored.etag}\n{stored.size}".encode()).hexdigest()
        path = self.folder / name
        lock = self.folder / f"{name}.lock"
        try:
            while True:
                if not _is_whole(path, stored):
                    with locked(lock):
                        if not _is_whole(path, stored):
                            self._download(path, stored, read, Passing(stored.size, on_progress, stop))
                with locked(lock, shared=True):
                    if not _is_whole(path, stored):
                        continue  # removed in between
                    os.utime(path)  # used now: what was not used for longest goes first
                    if on_progress is not None:
                        on_progress(1.0)
                    yield path
                    return
        finally:
            self.trim()

    def trim(self) -> int:
        """Remove what nobody uses, the longest unused first, until the rest is within the limit; tells how many bytes went."""
        found = []
        for path in self.folder.glob("*"):
            with suppress(FileNotFoundError):
                if not path.name.endswith(".lock"):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        too_many = sum(size for _, size, _ in found) - self.limit
        removed = 0
        for _, size, path in sorted(found):
            if removed >= too_many:
                break
            lock = self.folder / f"{path.name.removesuffix('.part')}.lock"
            if (descriptor := try_lock(lock, create=True)) is None:
                continue
            try:
                path.unlink(missing_ok=True)
                lock.unlink(missing_ok=True)
                removed += size
            finally:
                os.close(descriptor)
        return removed

    def _download(self, path: Path, stored: Stored, read: Callable[[int], BinaryIO], passing: Passing) -> None:
        part = path.with_name(f"{path.name}.part")
        try:
            with part.open("ab") as file:
                begun = file.tell()
                if begun > stored.size:
                    file.truncate(begun := 0)
                if shutil.disk_usage(self.folder).free < stored.size - begun:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301  told below as any other
                passing.back_to(begun)
                with read(begun) as source:
                    while data := source.read(CHUNK):
                        file.write(data)
                        passing(len(data))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno in FULL:
                part.unlink(missing_ok=True)
                why = f"no room is left in {self.folder} for {stored.size:,} bytes. Free some, or choose another cache folder"
                raise MediaError("DISK_FULL", why) from error
            raise MediaError("STORAGE_READ_FAILED", f"{self.folder}: {error}") from error
        if part.stat().st_size != stored.size:
            part.unlink(missing_ok=True)
            raise MediaError("STORAGE_READ_FAILED", f"{stored.key} has another size than was said")
        if stored.sha256 is not None:
            try:
                compare(stored.key, stored.sha256, sha256_of(part))
            except MediaError:
                part.unlink(missing_ok=True)  # what was kept of it may be what is wrong: begin anew
                raise
        part.rename(path)


def default_folder() -> Path:
    """Return where downloads are kept where nobody says it: `HOLDFAST_MEDIA_CACHE`, or the user's cache folder."""
    if given := os.environ.get("HOLDFAST_MEDIA_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "holdfast-media"


def _is_whole(path: Path, stored: Stored) -> bool:
    try:
        return path.stat().st_size == stored.size
    except FileNotFoundError:
        return False
