"""Locks between processes: held on files, and gone with whoever held them."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[int]:
    """Hold the lock of a file, which is made where it is missing and may be removed by whoever holds it alone."""
    descriptor = _held(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(path: Path, *, create: bool = False) -> int | None:
    """Take the lock of a file alone and return its descriptor, for the caller to close; `None`: held by another, or gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    if not _is_still(path, descriptor):
        os.close(descriptor)
        return None
    return descriptor


def _held(path: Path, how: int) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # the folder was removed in between
            continue
        try:
            fcntl.flock(descriptor, how)
            if _is_still(path, descriptor):  # who held it alone may have removed it while we waited
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        there, here = path.stat(), os.fstat(descriptor)
        return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)
    return False
