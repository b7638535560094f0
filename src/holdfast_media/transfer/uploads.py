"""Uploads in parts, on the server's disk: every part is checked when it comes, and kept over restarts and attempts.

    ID/about.json     what it will be: key, size, SHA-256
    ID/data           the content; every part is written where it belongs
    ID/000001         that part 1 is there, with its SHA-256
    ID/lock           held shared by who writes a part, alone by who completes it

The id is made of what the upload will be, so that a later attempt at the same goes on with the parts that are there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from holdfast_media.errors import MediaError
from holdfast_media.storage.hashing import checked_sha256
from holdfast_media.storage.keys import checked_key
from holdfast_media.storage.local import FULL, compare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast_media.transfer.limits import Limits

LEAST_PART: Final = 64 * 1024
ID_LENGTH: Final = 32


class Busy(Exception):
    """Somebody completes the upload this moment."""


class TooMany(Exception):
    """More uploads are open than may be."""


class Incomplete(Exception):
    """Parts are missing."""

    def __init__(self, missing: list[int]) -> None:
        super().__init__(f"{len(missing)} parts are missing, the first is part {missing[0]}")
        self.missing = missing


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What an upload will be."""

    key: str
    """For an archive: the folder that its files are published below."""
    size: int
    sha256: str
    part_size: int
    kind: Literal["file", "archive"] = "file"
    content_type: str | None = None
    overwrite: bool = False

    @property
    def id(self) -> str:
        """What it is known by."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:ID_LENGTH]

    @property
    def parts(self) -> int:
        """How many parts it has."""
        return -(-self.size // self.part_size)

    def size_of(self, number: int) -> int:
        """Return how many bytes a part has, counted from 1."""
        return min(self.part_size, self.size - (number - 1) * self.part_size)


class _Kept(msgspec.Struct, frozen=True):
    about: About
    job_id: str


class Uploads:
    """The uploads in a folder. Blocks; any number of processes may use one folder."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self._limits = limits

    def begin(self, about: About, job_id: str) -> list[int]:
        """Begin an upload, or go on with it; returns the numbers of the parts that are there."""
        self._check(about)
        folder = self.folder / about.id
        if not (folder / "about.json").exists():
            self._check_room(about, job_id)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with (folder / "data").open("ab") as data:
                    data.truncate(about.size)
                work = folder / f"about.{os.getpid()}"
                work.write_bytes(msgspec.json.encode(_Kept(about, job_id)))
                work.rename(folder / "about.json")
            except OSError as error:
                raise trouble(error) from error
        folder.touch()
        return self.have(about)

    def about(self, upload: str) -> About:
        """Return what an upload will be; `NOT_FOUND`: it was never begun, was completed, or was left alone for too long."""
        if len(upload) != ID_LENGTH or not all(letter in "0123456789abcdef" for letter in upload):
            raise unknown()
        try:
            return msgspec.json.decode((self.folder / upload / "about.json").read_bytes(), type=_Kept).about
        except (FileNotFoundError, msgspec.MsgspecError):
            raise unknown() from None

    def have(self, about: About) -> list[int]:
        """Return the numbers of the parts that are there, in order."""
        try:
            names = [path.name for path in (self.folder / about.id).iterdir()]
        except FileNotFoundError:
            raise unknown() from None
        return sorted(int(name) for name in names if name.isdecimal() and 1 <= int(name) <= about.parts)

    def part(self, about: About, number: int, sha256: str) -> Part:
        """Return what a part is written with, for the caller to close. It counts when it was finished."""
        if not 1 <= number <= about.parts:
            raise MediaError("TOO_LARGE", f"part {number} is not there: the upload has {about.parts}, counted from 1")
        checked_sha256(sha256)
        stack = ExitStack()
        with ExitStack() as trying:
            trying.push(stack)
            stack.enter_context(self._locked(about, fcntl.LOCK_SH))
            part = Part(self.folder / about.id, about, number, sha256, stack)
            trying.pop_all()
        return part

    @contextmanager
    def whole(self, about: About) -> Iterator[Path]:
        """Give the content of an upload all of whose parts are there, to who is alone with it.

        Raises `Incomplete`, `Busy`. A content that turns out wrong (`CHECKSUM_MISMATCH` inside) loses its parts.
        """
        folder = self.folder / about.id
        with self._locked(about, fcntl.LOCK_EX):
            have = frozenset(self.have(about))
            if missing := [number for number in range(1, about.parts + 1) if number not in have]:
                raise Incomplete(missing)
            try:
                yield folder / "data"
            except MediaError as error:
                if error.code in ("CHECKSUM_MISMATCH", "BAD_ARCHIVE", "TOO_LARGE"):
                    self.discard(about)
                raise

    def discard(self, about: About) -> None:
        """Remove an upload. Repeatable."""
        shutil.rmtree(self.folder / about.id, ignore_errors=True)

    def sweep(self) -> int:
        """Remove uploads that nobody goes on with; tells how many."""
        oldest = time.time() - self._limits.idle
        swept = 0
        for folder in self._open():
            with suppress(FileNotFoundError):
                if max(one.stat().st_mtime for one in (folder, *folder.iterdir())) < oldest:
                    shutil.rmtree(folder, ignore_errors=True)
                    swept += 1
        return swept

    def _check(self, about: About) -> None:
        limits = self._limits
        checked_key(about.key)
        checked_sha256(about.sha256)
        if about.size < 0 or about.size > limits.total:
            raise MediaError("TOO_LARGE", f"an upload of {about.size:,} bytes: {limits.total:,} are the most")
        if not LEAST_PART <= about.part_size <= limits.part:
            raise MediaError("TOO_LARGE", f"parts of {about.part_size:,} bytes: {LEAST_PART:,} to {limits.part:,} are taken")
        if about.parts > limits.parts:
            raise MediaError("TOO_LARGE", f"{about.parts:,} parts: {limits.parts:,} are the most. Make them larger")

    def _check_room(self, about: About, job_id: str) -> None:
        self.sweep()
        self.folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self.folder).free < about.size:
            raise MediaError("DISK_FULL", f"the server has no room for {about.size:,} bytes")
        there = list(self._open())
        if len(there) >= self._limits.all_uploads:
            raise TooMany(f"{len(there):,} uploads are open, which is the most")
        own = sum(self._job_of(folder) == job_id for folder in there)
        if own >= self._limits.uploads:
            raise TooMany(f"{own:,} uploads of this job are open, which is the most. Complete or remove some")

    def _job_of(self, folder: Path) -> str | None:
        try:
            return msgspec.json.decode((folder / "about.json").read_bytes(), type=_Kept).job_id
        except (OSError, msgspec.MsgspecError):
            return None

    def _open(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            for entry in os.scandir(self.folder):
                if entry.is_dir() and len(entry.name) == ID_LENGTH:
                    yield self.folder / entry.name

    @contextmanager
    def _locked(self, about: About, how: int) -> Iterator[None]:
        try:
            descriptor = os.open(self.folder / about.id / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            raise unknown() from None
        try:
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except OSError:
                raise Busy("another request completes, or writes to, this upload") from None
            yield
        finally:
            os.close(descriptor)


def trouble(error: OSError) -> MediaError:
    """Return what an error of the server's disk means."""
    if error.errno in FULL:
        return MediaError("DISK_FULL", "the server has no room left")
    return MediaError("STORAGE_UPLOAD_FAILED", f"the server cannot write: {error.strerror}")


def unknown() -> MediaError:
    """Return the error of an upload that is not there."""
    return MediaError("NOT_FOUND", "this upload is not known: it is complete, or was left alone for too long. Begin it again")


class Part:
    """A part that is being written, where it belongs in the content. Blocks."""

    def __init__(self, folder: Path, about: About, number: int, sha256: str, stack: ExitStack) -> None:
        self._mark = folder / f"{number:06}"
        self._number = number
        self._sha256 = sha256
        self._size = self._left = about.size_of(number)
        self._digest = hashlib.sha256()
        self._stack = stack
        self._mark.unlink(missing_ok=True)  # until it is written again it is not there
        try:
            self._data = stack.enter_context((folder / "data").open("r+b", buffering=0))
        except FileNotFoundError:
            raise unknown() from None
        self._data.seek((number - 1) * about.part_size)

    def write(self, data: bytes) -> None:
        """Write more of it; `TOO_LARGE` as soon as it is more than the part has."""
        self._left -= len(data)
        if self._left < 0:
            raise MediaError("TOO_LARGE", f"the part has more than the {self._size:,} bytes that were said")
        self._digest.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[self._data.write(view) :]
        except OSError as error:
            raise trouble(error) from error

    def finish(self) -> None:
        """Flush it and note that it is there; raise where it is not whole, or not what its SHA-256 says."""
        if self._left:
            raise MediaError("CHECKSUM_MISMATCH", f"part {self._number} ended {self._left:,} bytes early")
        compare(f"part {self._number}", self._sha256, self._digest.hexdigest())
        try:
            os.fsync(self._data.fileno())
            self._mark.write_text(self._sha256)
        except OSError as error:
            raise trouble(error) from error

    def close(self) -> None:
        """Let go of it. Safe to call again."""
        self._stack.close()
