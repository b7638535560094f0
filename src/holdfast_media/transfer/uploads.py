"""Uploads in parts, on the server's disk: every part is checked when it comes, and kept over restarts and attempts.

    ID/about.json     what it will be: key, size, SHA-256
    ID/data           the content; every part is copied to where it belongs when it has come whole
    ID/part.…         a part that comes, under a name of its own
    ID/000001         that part 1 is there, with its SHA-256
    ID/lock           held shared by who writes a part, alone by who completes it

The id is made of what the upload will be, so that a later attempt at the same goes on with the parts that are there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

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
COPIED: Final = 1024 * 1024
SWEEP_EVERY: Final = 60.0
"""Seconds between two sweeps: each looks at all uploads."""


class Busy(Exception):
    """Somebody completes the upload this moment, or too much is being done at once. It passes."""


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

    def __init__(self, folder: Path, limits: Limits, *, keep: str | None = None) -> None:
        """Use a folder; an upload with a file named `keep` in it is not swept: whoever has put it there sees to it."""
        self.folder = folder
        self._limits = limits
        self._keep = keep
        self._swept = -SWEEP_EVERY

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
                write(folder / "about.json", msgspec.json.encode(_Kept(about, job_id)))
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

    @contextmanager
    def alone(self, about: About) -> Iterator[None]:
        """Keep others from writing to, completing or removing an upload. Raises `Busy`, and `NOT_FOUND` where it is gone."""
        with self._locked(about, fcntl.LOCK_EX):
            yield

    def discard(self, about: About) -> None:
        """Remove an upload. Repeatable."""
        shutil.rmtree(self.folder / about.id, ignore_errors=True)

    def sweep(self) -> int:
        """Remove uploads that nobody goes on with; tells how many."""
        self._swept = time.monotonic()
        oldest = time.time() - self._limits.idle
        swept = 0
        for folder in self._open():
            with suppress(FileNotFoundError):
                if self._keep is not None and (folder / self._keep).exists():
                    continue
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
        if time.monotonic() - self._swept >= SWEEP_EVERY:
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


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    work = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        work.write_bytes(content)
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)


class Part:
    """A part that is being written, in a file of its own until it is finished. Blocks.

    So who sends it slowly, damaged or without a lease disturbs neither a part that is there nor who sends the same one.
    """

    def __init__(self, folder: Path, about: About, number: int, sha256: str, stack: ExitStack) -> None:
        self._mark = folder / f"{number:06}"
        self._whole = folder / "data"
        self._at = (number - 1) * about.part_size
        self._number = number
        self._sha256 = sha256
        self._size = self._left = about.size_of(number)
        self._digest = hashlib.sha256()
        self._stack = stack
        self._lock = threading.Lock()  # a write that nobody waits for any more ends before its file is closed
        work = folder / f"part.{uuid4().hex}"
        try:
            self._data = stack.enter_context(work.open("x+b", buffering=0))
        except FileNotFoundError:
            raise unknown() from None
        except OSError as error:
            raise trouble(error) from error
        stack.callback(work.unlink, missing_ok=True)

    def write(self, data: bytes) -> None:
        """Write more of it; `TOO_LARGE` as soon as it is more than the part has."""
        self._left -= len(data)
        if self._left < 0:
            raise MediaError("TOO_LARGE", f"the part has more than the {self._size:,} bytes that were said")
        self._digest.update(data)
        view = memoryview(data)
        try:
            with self._lock:
                while view:
                    view = view[self._data.write(view) :]
        except OSError as error:
            raise trouble(error) from error

    def finish(self) -> None:
        """Copy it to where it belongs, durably; raise where it is not whole, or not what its SHA-256 says."""
        if self._left:
            raise MediaError("CHECKSUM_MISMATCH", f"part {self._number} ended {self._left:,} bytes early")
        compare(f"part {self._number}", self._sha256, self._digest.hexdigest())
        try:
            with self._lock, self._whole.open("r+b") as whole:
                fcntl.flock(whole, fcntl.LOCK_EX)  # one at a time, for as long as a copy takes
                if self._is_there():
                    return
                self._mark.unlink(missing_ok=True)
                whole.seek(self._at)
                self._data.seek(0)
                shutil.copyfileobj(self._data, whole, COPIED)
                whole.flush()
                os.fsync(whole.fileno())
                write(self._mark, self._sha256.encode())
        except FileNotFoundError:
            raise unknown() from None
        except OSError as error:
            raise trouble(error) from error

    def _is_there(self) -> bool:
        with suppress(FileNotFoundError):
            return self._mark.read_text() == self._sha256
        return False

    def close(self) -> None:
        """Let go of it. Safe to call again."""
        with self._lock:
            self._stack.close()
