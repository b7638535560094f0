"""Opening the file, and saying what is wrong with it in words that help."""

from __future__ import annotations

import os
import re
import sqlite3
import time
import warnings
from pathlib import Path
from typing import Final

from holdfast.errors import BadUrl, SchemaError, StoreUnavailable

OLDEST_SQLITE: Final = (3, 35, 0)
CACHED_STATEMENTS: Final = 256
MOUNTS: Final = Path("/proc/mounts")
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"}
)


def check_path(path: str) -> None:
    """Refuse what is not a file: each connection would see another database."""
    if path in ("", ":memory:") or path.startswith("file:"):
        raise BadUrl(f"{path!r} is not the path of a file. For jobs in memory use memory://")


def connect(
    path: str, *, create: bool, busy_timeout: float, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Open the file; `create` makes a missing one. Belongs inside `translated`, like everything done with the connection."""
    _check_place(path, create=create)
    return sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,  # used in one thread; closed from another when opening is cancelled and that thread is gone
        cached_statements=CACHED_STATEMENTS,
        factory=factory,
    )


def settings(connection: sqlite3.Connection, path: str, busy_timeout: float) -> None:
    """Make commits durable, and leave checkpoints to `database.Writer`."""
    _use_wal(connection, path, busy_timeout)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def _check_place(path: str, *, create: bool) -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnavailable(path, 0.0, f"SQLite {sqlite3.sqlite_version} is too old, Holdfast needs {oldest} or newer")
    place = Path(path).absolute()
    if place.is_dir():
        raise StoreUnavailable(path, 0.0, "it is a directory: give the path of a file")
    if not place.parent.is_dir():
        raise StoreUnavailable(
            path, 0.0, f"the directory {place.parent} does not exist: create it with mkdir -p {place.parent}"
        )
    if create and not os.access(place.parent, os.W_OK):
        raise StoreUnavailable(path, 0.0, f"the directory {place.parent} is not writable for this user")


def _use_wal(connection: sqlite3.Connection, path: str, busy_timeout: float) -> None:
    """Switch the file to write-ahead logging. SQLite does not wait here when another process does the same, so we do."""
    deadline = time.monotonic() + busy_timeout
    mode = ""
    while not mode:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise StoreUnavailable(
            path, 0.0, f"the file system offers no write-ahead log (journal mode stays {mode!r}): use a local disk"
        )


class Place:
    """Which file a path led to when it was opened.

    With a write-ahead log SQLite does not notice that its file was deleted or replaced: writes would go on into a file that
    nobody else can open.
    """

    __slots__ = ("_absolute", "_identity", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._absolute = str(Path(path).absolute())  # the process may change its directory
        self._identity: tuple[int, int] | None = None

    def remember(self) -> None:
        """Note which file the path leads to now."""
        self._identity = self._look()

    def check(self) -> None:
        """Refuse to go on unless the path still leads to that file. Takes a microsecond: ask in every transaction."""
        found = self._look()
        if found is None or found != self._identity:
            what = "deleted or moved away" if found is None else "replaced by another one"
            raise StoreUnavailable(
                self._path,
                0.0,
                f"the file was {what} while it was open, nothing was done",
                fix="Put it back where it was; or, to use what is there now, open the store anew (restart the process)",
            )

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._absolute)  # noqa: PTH116  a Path would take longer than the look
        except OSError:
            return None
        return found.st_dev, found.st_ino


class translated:  # noqa: N801  used as a statement; a generator would cost the hot path some microseconds
    """Turn whatever SQLite raises into an error of Holdfast's."""

    __slots__ = ("_begun", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._begun = time.monotonic()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise an error of ours in the place of SQLite's."""
        if isinstance(error, sqlite3.Error):
            raise _translate(self._path, time.monotonic() - self._begun, error) from error


def _translate(path: str, waited: float, error: sqlite3.Error) -> StoreUnavailable | SchemaError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_busy(error):
        return StoreUnavailable(path, waited, "another process or transaction is writing and did not finish in time")
    if code == sqlite3.SQLITE_NOTADB:
        return SchemaError(f"{path} is not a SQLite database. Choose another path, or move that file away.")
    if code == sqlite3.SQLITE_CORRUPT:
        return SchemaError(
            f"{path} is damaged ({error}). Stop all workers, keep a copy, and salvage it with: "
            f"sqlite3 {path} .recover | sqlite3 recovered.db"
        )
    if code == sqlite3.SQLITE_FULL:
        fix = "Make room on it. Workers then go on by themselves"
        return StoreUnavailable(path, waited, "its disk is full, and nothing was written", fix=fix)
    if code == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(path, waited, "the file is not writable for this user")
    if code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH):
        return SchemaError(f"{path} does not hold what Holdfast expects there ({error}): has somebody else changed its tables?")
    return StoreUnavailable(path, waited, str(error) or type(error).__name__)


def is_busy(error: sqlite3.Error) -> bool:
    """Tell whether somebody else was writing, or has written since the transaction began to read."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


# --- what may be wrong with the machine ---------------------------------------------------------------------------------


def known_flaws(version: tuple[int, int, int]) -> list[str]:
    """Return what is known to be wrong with a version of SQLite, for `doctor` to tell.

    Not warned about at every open: nearly all installed versions have the one flaw there is, and the way in which
    `database.Writer` checkpoints keeps Holdfast's own processes clear of it. Other programs on the same file are not.
    """
    flaws = []
    if not (version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0)):
        flaws.append(
            "WAL-reset bug: when one process checkpoints at the moment in which another one starts the log anew, a "
            "commit may be lost (3.7.0 to 3.51.2; fixed in 3.51.3, 3.50.7 and 3.44.6; https://sqlite.org/wal.html#walresetbug)"
        )
    return flaws


def warn_of_network(path: str) -> None:
    """Warn when the file lies on a network file system, whose locks SQLite cannot rely on."""
    kind = file_system(Path(path).absolute(), MOUNTS)
    if kind in NETWORK_FILE_SYSTEMS:
        warnings.warn(
            f"{path} lies on a network file system ({kind}). SQLite's locks cannot be relied on there: jobs may be lost. "
            "Move the file to a local disk, or use PostgreSQL.",
            RuntimeWarning,
            stacklevel=2,
        )


def file_system(path: Path, mounts: Path) -> str | None:
    """Return the kind of file system a path lies on; `None` where that cannot be told (not on Linux)."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    resolved, best, kind = path.resolve(), -1, None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004  device, mount point, type
            continue
        # spaces and the like are written as octal escapes
        point = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[1])
        # of two mounts on one point the later one is seen
        if (str(resolved) + "/").startswith(point.rstrip("/") + "/") and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind
