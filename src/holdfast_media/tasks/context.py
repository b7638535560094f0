"""What every task of the media application needs while it runs: settings, storage, scratch, and how failures are told."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast import Aborted, Cancel, Fatal, HoldfastError, Retryable, StaleLease
from holdfast_media.errors import DISK_FULL, INPUT_CHANGED, INPUT_MISSING, MediaError, Stopped
from holdfast_media.ffmpeg import find_ffmpeg
from holdfast_media.library import moves
from holdfast_media.library.statements import Statements, drive
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
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
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
        """Lend the source; raises INPUT_CHANGED when it is not what was probed."""
        if origin.ref.key is not None:
            with self.job.stage("fetch"), self.storage.lend(origin.ref.key) as path:
                yield path
            return
        path = Path(origin.ref.path or "")
        try:
            found = path.stat()
        except OSError as error:
            raise MediaError(INPUT_MISSING, f"the source cannot be read: {error.strerror}.") from error
        same = found.st_size == origin.size and (
            found.st_mtime_ns == origin.modified or identity(path, stop=self.stop) == origin.identity
        )
        if not same:
            raise MediaError(INPUT_CHANGED, "the source is not the file that was probed. Have it transcoded anew.")
        yield path

    def check_room(self, needed: float, *, scratch: bool = True) -> None:
        """Raise DISK_FULL when what is about to be written would not fit, in the storage or in the scratch folder."""
        self.settings.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        wanted = int(needed) + self.settings.reserve
        places = [("storage", self.storage.free_bytes())]
        if scratch:
            places.append(("scratch", free_bytes(self.settings.scratch)))
        for place, free in places:
            if free is not None and free < wanted:
                raise MediaError(
                    DISK_FULL,
                    f"{free / 1e6:,.0f} MB are free in the {place} folder, and {wanted / 1e6:,.0f} MB are needed "
                    f"({needed / 1e6:,.0f} MB for this, {self.settings.reserve / 1e6:,.0f} MB in reserve). Make room; it is "
                    "tried again.",
                )


def free_bytes(folder: Path) -> int:
    """Return how many bytes fit into a folder. By itself, so that tests can have a full disk without filling one."""
    return shutil.disk_usage(folder).free


@contextmanager
def failing(context: Context, version_id: str) -> Iterator[None]:
    """Move the version to failed when the job that drives it fails for good: under the fence, and before the job itself ends.

    Whoever is killed in between is found by the sweep.
    """
    job = context.job
    try:
        yield
    except Exception as error:
        last = isinstance(error, Fatal) or job.failures + 1 >= context.settings.attempts
        if isinstance(error, (Cancel, Aborted, StaleLease)) or job.abort.is_set() or job.settled or not last:
            raise
        code = getattr(error, "code", type(error).__name__)
        with context.transaction() as (_, on):
            context.do(moves.fail(on, version_id, str(code), str(error), driving=str(job.id)))
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
            context.job.log.warning("the end of what ffmpeg said:\n%s", error.detail)
        kind = Retryable if error.retryable else Fatal
        raise kind(error.message, code=error.code) from error
    except OSError as error:
        context.job.abort.check()
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise Retryable("there is no room left where it works. Make room; it is tried again.", code=DISK_FULL) from error
        raise


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
