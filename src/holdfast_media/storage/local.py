"""A local folder: every key is a file in it, and beside each its SHA-256 as `sha256sum` writes it.

    videos/42/720p/0001.m4s              the content
    videos/42/720p/.0001.m4s.sha256      its checksum: `sha256sum -c .0001.m4s.sha256`
    .holdfast/work/                      files that are being written
    .holdfast/locks/                     who publishes at this moment

The checksum is a file of its own, and no extended attribute: so it survives every way of copying the folder or a part of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
import uuid
import zlib
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from holdfast_media.errors import MediaError
from holdfast_media.storage.hashing import CHUNK, checked_sha256, content_type_of, sha256_of
from holdfast_media.storage.keys import checked_key, checked_prefix, is_key
from holdfast_media.storage.locking import locked, try_lock
from holdfast_media.storage.passing import Passing
from holdfast_media.storage.port import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast_media.storage.port import Attempt, BeforePublish, OnProgress, Stop

OWN: Final = ".holdfast"
LOCKS: Final = 64
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NO_RIGHT: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
YOUNG: Final = 60.0
"""Seconds in which a work file may not have its lock yet."""


class LocalStorage:
    """A folder, on one file system with hard links. Several processes may use it at once, and machines that share its locks.

    What is published is durable: content and folder are flushed to the disk before `put` returns.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._stop: Stop | None = None

    def bind(self, attempt: Attempt, *, stop: Stop | None = None) -> LocalStorage:  # noqa: ARG002  nobody asks here
        """Return it with a reason to stop; the folder asks nobody for a lease."""
        bound = copy(self)
        bound._stop = stop  # noqa: SLF001  a copy of this one
        return bound

    # looking

    def head(self, key: str) -> Stored | None:
        """Return what is under a key."""
        path = self._path(key)
        found = self._stored(key, path, sha256=_recorded(path))
        if found is not None and found.sha256 is None:
            with self._publishing(key):  # it is being replaced, or was put there by hand
                found = self._stored(key, path, sha256=_recorded(path))
        return found

    def open(self, key: str, start: int = 0) -> BinaryIO:
        """Return the file, from a byte on."""
        try:
            file = self._path(key).open("rb")
        except (FileNotFoundError, IsADirectoryError):
            raise not_found(key) from None
        except OSError as error:
            raise self._trouble(error, "STORAGE_READ_FAILED") from error
        file.seek(start)
        return file

    @contextmanager
    def lend(self, key: str, *, on_progress: OnProgress | None = None) -> Iterator[Path]:
        """Give the file itself."""
        path = self._path(key)
        if not path.is_file():
            raise not_found(key)
        if on_progress is not None:
            on_progress(1.0)
        yield path

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Return everything whose key begins with a prefix, by key."""
        checked_prefix(prefix)
        folder = self.folder / prefix.rpartition("/")[0]
        for path in _files(folder):
            key = path.relative_to(self.folder).as_posix()
            if (
                key.startswith(prefix)
                and is_key(key)
                and (found := self._stored(key, path, sha256=_recorded(path))) is not None
            ):
                yield found

    def check(self, key: str, *, sha256: str | None = None) -> bool:
        """Read the file and compare its SHA-256."""
        path = self._path(key)
        wanted = sha256 or _recorded(path)
        if wanted is None or not path.is_file():
            return False
        try:
            return sha256_of(path, Passing(0, None, self._stop)) == wanted
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._trouble(error, "STORAGE_READ_FAILED") from error

    def free_bytes(self) -> int | None:
        """Return how many bytes fit on its file system."""
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def url_for(self, key: str) -> str:
        """Return the file's URL."""
        return self._path(key).as_uri()

    # changing

    def put(
        self,
        key: str,
        path: Path,
        *,
        sha256: str | None = None,
        content_type: str | None = None,
        overwrite: bool = False,
        consume: bool = False,
        on_progress: OnProgress | None = None,
        before_publish: BeforePublish | None = None,
    ) -> Stored:
        """Publish a file: copied or moved into a work file, flushed, then linked to its name in one step."""
        del content_type  # a folder keeps none: the ending of the key says it
        target = self._path(key)
        if sha256 is not None:
            checked_sha256(sha256)
        if not overwrite and (found := self.head(key)) is not None:
            if consume:
                path.unlink(missing_ok=True)
            return found
        try:
            with self._work_file(path, sha256, Passing(path.stat().st_size, on_progress, self._stop), move=consume) as (
                work,
                sum_,
            ):
                with self._publishing(key):
                    created = self._publish(work, target, sum_, overwrite=overwrite, before_publish=before_publish)
                if consume:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise self._trouble(error, "STORAGE_UPLOAD_FAILED") from error
        found = self.head(key)
        if found is None:
            raise MediaError("STORAGE_UPLOAD_FAILED", f"{key} was removed while it was published")
        return replace(found, created=created)

    def delete(self, key: str) -> bool:
        """Remove a file and its checksum, and the folders that are empty then."""
        path = self._path(key)
        try:
            with self._publishing(key):
                try:
                    path.unlink()
                except (FileNotFoundError, NotADirectoryError):
                    return False
                finally:
                    with suppress(FileNotFoundError, NotADirectoryError):
                        _sum_path(path).unlink()
                _flush_folder(path.parent)
        except OSError as error:
            raise self._trouble(error, "STORAGE_UPLOAD_FAILED") from error
        for folder in path.relative_to(self.folder).parents[:-1]:
            try:
                (self.folder / folder).rmdir()
            except OSError:
                break
        return True

    def sweep(self, older_than: float = YOUNG) -> int:
        """Remove work files that nobody writes any more: whoever writes one holds its lock."""
        swept = 0
        newest = time.time() - max(older_than, YOUNG)
        for path in sorted(self._own("work").glob("*")):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime > newest or (descriptor := try_lock(path)) is None:
                    continue
                path.unlink()
                os.close(descriptor)
                swept += 1
        return swept

    def close(self) -> None:
        """Let go of nothing: a folder keeps nothing open."""

    # how

    def _path(self, key: str) -> Path:
        path = self.folder / checked_key(key)
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise MediaError("BAD_KEY", f"{key!r} leads through a link out of {self.folder}. Put the files themselves there")
        return path

    def _own(self, name: str) -> Path:
        return self.folder / OWN / name

    def _stored(self, key: str, path: Path, *, sha256: str | None) -> Stored | None:
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._trouble(error, "STORAGE_READ_FAILED") from error
        if not stat.S_ISREG(status.st_mode):
            return None
        return Stored(
            key=key,
            size=status.st_size,
            sha256=sha256,
            modified=datetime.fromtimestamp(status.st_mtime, UTC),
            etag=sha256 or f"{status.st_mtime_ns:x}-{status.st_size:x}",
            content_type=content_type_of(key),
        )

    @contextmanager
    def _publishing(self, key: str) -> Iterator[None]:
        """Be the only one who changes what is under a key."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._own("locks") / f"{zlib.crc32(key.encode()) % LOCKS:02}"))
            except OSError as error:
                if error.errno not in NO_RIGHT:  # nobody here changes a folder that may only be read
                    raise
            yield

    @contextmanager
    def _work_file(self, path: Path, sha256: str | None, passing: Passing, *, move: bool) -> Iterator[tuple[Path, str]]:
        """Give a flushed file on the storage's own file system, with its SHA-256; it is gone afterwards."""
        if (free := self.free_bytes()) is not None and not move and path.stat().st_size > free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        work = self._own("work") / f"{uuid.uuid4().hex}"
        work.parent.mkdir(parents=True, exist_ok=True)
        moved = move and self._moved(path, work)
        try:
            with locked(work) as descriptor:
                found = _hash(descriptor, passing) if moved else _copy(path, descriptor, passing)
                os.fsync(descriptor)
                compare(path.name, sha256, found)
                yield work, found
        except BaseException:
            if moved and work.exists():
                work.rename(path)  # it was given away for a publication that did not happen
            raise
        finally:
            work.unlink(missing_ok=True)

    def _moved(self, path: Path, work: Path) -> bool:
        try:
            path.rename(work)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise
        work.chmod(0o644)  # whatever the scratch file was
        return True

    def _publish(self, work: Path, target: Path, sha256: str, *, overwrite: bool, before_publish: BeforePublish | None) -> bool:
        """Give a work file its name; tells whether it got it. The checksum is there first: no reader finds a wrong one."""
        if target.is_file() and not overwrite:
            return False
        if before_publish is not None:
            before_publish()
        if overwrite:
            _sum_path(target).unlink(missing_ok=True)
            _make_folder(target.parent)
            work.rename(target)
            self._write_sum(target, sha256)
            _flush_folder(target.parent)
            return True
        while True:
            _make_folder(target.parent)
            try:
                self._write_sum(target, sha256)
                os.link(work, target)
            except FileExistsError:  # put there by hand this very moment
                _sum_path(target).unlink(missing_ok=True)
                return False
            except FileNotFoundError:  # somebody removed a folder that was empty
                continue
            except OSError:
                _sum_path(target).unlink(missing_ok=True)
                raise
            _flush_folder(target.parent)
            return True

    def _write_sum(self, path: Path, sha256: str) -> None:
        work = self._own("work") / uuid.uuid4().hex
        try:
            with work.open("w") as file:
                file.write(f"{sha256}  {path.name}\n")
                file.flush()
                os.fsync(file.fileno())
            work.rename(_sum_path(path))
        finally:
            work.unlink(missing_ok=True)

    def _trouble(self, error: OSError, code: str) -> MediaError:
        if error.errno in FULL:
            why = f"no room is left on the file system of {self.folder}. Free some, or choose a folder elsewhere"
            return MediaError("DISK_FULL", why)
        if error.errno in NO_RIGHT:
            why = f"{error.strerror}: {error.filename}. Give the user of this process the right to read and write {self.folder}"
            return MediaError("ACCESS_DENIED", why)
        return MediaError(code, f"{self.folder}: {error}")


def not_found(key: str) -> MediaError:
    """Return the error of a key under which nothing is."""
    return MediaError("NOT_FOUND", f"nothing is stored under {key}")


def compare(name: str, wanted: str | None, found: str) -> None:
    """Raise `CHECKSUM_MISMATCH` where a content is not what it should be."""
    if wanted is None or found == wanted:
        return
    why = f"{name} has the SHA-256 {found}, and should have {wanted}: it was changed or damaged on its way"
    raise MediaError("CHECKSUM_MISMATCH", why)


def _files(folder: Path) -> Iterator[Path]:
    """Return the files below a folder in the order of their keys; those that begin with a dot are the storage's own."""
    try:
        found = [one for one in os.scandir(folder) if not one.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return
    # as strings compare: "a.mp4" before "a/b", for "." is before "/"
    for one in sorted(found, key=lambda one: f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name):
        if one.is_dir(follow_symlinks=False):
            yield from _files(Path(one.path))
        elif one.is_file():
            yield Path(one.path)


def _copy(path: Path, descriptor: int, passing: Passing) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source, os.fdopen(os.dup(descriptor), "wb", buffering=0) as work:
        while data := source.read(CHUNK):
            digest.update(data)
            view = memoryview(data)
            while view:
                view = view[work.write(view) :]
            passing(len(data))
    return digest.hexdigest()


def _hash(descriptor: int, passing: Passing) -> str:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return sha256_of(file, passing)


def _sum_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256")


def _recorded(path: Path) -> str | None:
    try:
        return checked_sha256(_sum_path(path).read_text().partition(" ")[0])
    except (OSError, ValueError, MediaError):
        return None


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each flushed, so that what is put there is not lost with it."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        _flush_folder(one.parent)


def _flush_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
