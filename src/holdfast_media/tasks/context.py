"""What every task of the media application needs while it runs: settings, storage, scratch, and how failures are told."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast import Aborted, Cancel, Fatal, HoldfastError, Reschedule, Retryable, StaleLease
from holdfast_media.clip.redaction import Redaction
from holdfast_media.clip.scratch import own
from holdfast_media.errors import DISK_FULL, INPUT_CHANGED, INPUT_MISSING, MediaError, Stopped
from holdfast_media.ffmpeg import find_ffmpeg
from holdfast_media.library import moves
from holdfast_media.library.statements import Statements, drive
from holdfast_media.room import check_room, free_bytes
from holdfast_media.source import identity
from holdfast_media.storage import Attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from holdfast import BlockingTransaction, Job
    from holdfast_media.library import Version, Video
    from holdfast_media.library.statements import Dialect
    from holdfast_media.settings import Settings
    from holdfast_media.storage import Storage
    from holdfast_media.tasks.work import Origin

T = TypeVar("T")

MARKER: Final = "package.json"
LONGEST_REST: Final = 120.0
"""Seconds that a job waits for room on the disk before it looks again, at most."""
ROOMY: Final = 1.3
"""How much more room than the bit rate says is asked for: rate control is no promise."""


class Context:
    """One attempt at a job of the media application."""

    def __init__(
        self,
        job: Job,
        settings: Settings,
        storage: Storage,
        dialect: Callable[[], Dialect],
        look_up: Callable[[str], Video | None],
    ) -> None:
        self.job = job
        self.settings = settings
        self.storage = storage.bind(Attempt.of(job), stop=self.stop)
        self._dialect = dialect
        self._known: set[Path] = set()
        self.look_up = look_up
        """Returns a video as it is now, outside of the job's transaction; `None`: it is deleted."""

    # --- the library ------------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[tuple[BlockingTransaction, Statements]]:
        """Give the job's transaction, and the library's statements in it."""
        with self.job.transaction_sync() as tx:
            yield tx, Statements(tx, self._dialect())

    def version(self, version_id: str) -> Version | None:
        """Return a version as it is now, under the fence; `None`: it is not to be made any more."""
        with self.transaction() as (_, on):
            found = drive(moves.version(on, version_id))
            video = None if found is None else drive(moves.locked(on, found.video_id))
        return found if found is not None and video is not None and found.active else None

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one of the library's moves in the open transaction."""
        return drive(coroutine)

    # --- stopping and failing ---------------------------------------------------------------------------------------------

    def stop(self) -> str | None:
        """Return why to stop, for the engine."""
        return str(self.job.abort.reason) if self.job.abort.is_set() else None

    def shown(self, text: str) -> str:
        """Return a text without paths outside the scratch folder, as log lines and errors may have it."""
        return Redaction(self.settings.scratch, self._known)(text)

    @property
    def ffmpeg(self) -> Path:
        """The program."""
        return find_ffmpeg(self.settings.ffmpeg)

    # --- files ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a folder of this attempt alone; it goes with the attempt.

        One that failed leaves its folder where `cleanup_partial_on_failure` is off, for somebody to look at; the sweep takes
        it some day.
        """
        home = self.settings.scratch / str(self.job.id)
        folder = home / str(self.job.attempt)
        own(self.settings.scratch)
        own(home)
        shutil.rmtree(folder, ignore_errors=True)
        if self.settings.cleanup_partial_on_failure:
            remove_earlier(home, self.job.attempt)
        folder.mkdir(parents=True, mode=0o700)  # an attempt that ends may have removed it again
        failed = True
        try:
            yield folder
            failed = False
        finally:
            if not failed or self.settings.cleanup_partial_on_failure or self.job.abort.is_set():
                shutil.rmtree(folder, ignore_errors=True)
                # other attempts may have folders there: then it stays
                with _ignoring(errno.ENOTEMPTY, errno.ENOENT, errno.EEXIST):
                    home.rmdir()

    @contextmanager
    def source(self, origin: Origin) -> Iterator[Path]:
        """Lend the source; raises INPUT_CHANGED when it is not what was probed: before it is lent, and again when it is back.

        So publish what was made of it after the block: inside nobody knows yet what it was made of.
        """
        if origin.ref.key is not None:
            stored = self.storage.head(origin.ref.key)
            if stored is not None and stored.sha256 is not None and f"{stored.size}-{stored.sha256}" != origin.identity:
                raise changed()
            with self.job.stage("fetch"), self.storage.lend(origin.ref.key) as path, self.watched(path, origin):
                yield path
            return
        path = Path(origin.ref.path or "")
        found = _status(path)
        same = found.st_size == origin.size and (
            found.st_mtime_ns == origin.modified or identity(path, stop=self.stop) == origin.identity
        )
        if not same:
            raise changed()
        with self.watched(path, origin):
            yield path

    @contextmanager
    def watched(self, path: Path, origin: Origin) -> Iterator[None]:
        """Raise INPUT_CHANGED at the end of the block when the file is not any more what was probed.

        Where nothing has touched it its bytes need not be read again.
        """
        self._known.add(path)
        before = _status(path)
        yield
        after = _status(path)
        if _marks(before) != _marks(after) and identity(path, stop=self.stop) != origin.identity:
            raise changed()

    def check_room(self, needed: float, *, scratch: bool = True) -> None:
        """Raise DISK_FULL when what is about to be written would not fit, in the storage or in the scratch folder."""
        own(self.settings.scratch)
        places = [("storage", self.storage.free_bytes())]
        if scratch:
            places.append(("scratch", free_bytes(self.settings.scratch)))
        check_room(needed, self.settings.reserve, places)


def changed() -> MediaError:
    """Return what is raised when a source is not the file that was probed."""
    return MediaError(INPUT_CHANGED, "the source is not the file that was probed. Have it transcoded anew.")


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise MediaError(INPUT_MISSING, f"the source cannot be read: {error.strerror}.") from error


def _marks(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@contextmanager
def failing(context: Context, version_id: str) -> Iterator[None]:
    """Move the version to failed when the job that drives it fails for good: in the transaction that fails the job.

    A job that is killed too often fails where no code of ours runs: that is found by the sweep.
    """
    job = context.job
    try:
        yield
    except Exception as error:
        last = isinstance(error, Fatal) or job.failures + 1 >= context.settings.attempts
        if isinstance(error, (Cancel, Aborted, Reschedule, StaleLease)) or job.abort.is_set() or job.settled or not last:
            raise
        code = getattr(error, "code", type(error).__name__)
        with context.transaction() as (tx, on):
            if context.do(moves.fail(on, version_id, str(code), str(error), driving=str(job.id))):
                tx.fail(error)
        raise


@contextmanager
def told(context: Context) -> Iterator[None]:
    """Turn what the engine and the storage raise into what the queue understands."""
    try:
        yield
    except HoldfastError:
        raise
    except Stopped:
        context.job.abort.check()
        raise
    except MediaError as error:
        context.job.abort.check()  # what was asked to stop did not fail
        if error.detail:
            context.job.log.warning("the end of what %s said:\n%s", error.said_by, context.shown(error.detail))
        if error.code == DISK_FULL:
            raise _later(context, error.message) from error
        kind, message = Retryable if error.retryable else Fatal, context.shown(error.message)
        # the record of the attempt has the cause's own words too
        raise kind(message, code=error.code) from (error if message == error.message else None)
    except OSError as error:
        context.job.abort.check()
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise _later(context, "there is no room left where it works. Make room; it is tried again.") from error
        raise


def _later(context: Context, message: str) -> Reschedule:
    """Return what has a job wait for room: that is nobody's failure, and may take people longer than all attempts last."""
    after = min(LONGEST_REST, context.settings.retry_after * 30)
    context.job.log.warning("%s: %s", DISK_FULL, message)
    context.job.progress(0, f"{DISK_FULL}: {message}")  # the grid shows it as long as it waits
    return Reschedule(after=after)


def remove_earlier(home: Path, attempt: int) -> None:
    """Remove what attempts before this one have left of a job: whoever was killed could not do it."""
    for one in home.iterdir() if home.is_dir() else ():
        if one.name.isdecimal() and int(one.name) < attempt:
            shutil.rmtree(one, ignore_errors=True)


@contextmanager
def _ignoring(*numbers: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in numbers:
            raise


def sync(path: Path) -> None:
    """Have the system write a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
