"""Where a job works: a folder of its own, and in it one for each attempt.

    <root>/<job id>/<attempt>/   what this attempt works on; gone when it ends, however it ends
    <root>/<job id>/done/        what is finished, for a later attempt on this machine; gone with the job's end

Files come into `done` by one rename, whole and on disk: an attempt that was killed, or that only believes it still holds the
job, leaves nothing half there.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of one attempt, and what earlier ones have left."""

    folder: Path
    """Of this attempt alone."""
    done: Path
    """Of the job: finished files."""

    def work(self, name: str) -> Path:
        """Return where to write a file that is not finished."""
        return self.folder / name

    def finish(self, work: Path, name: str) -> Path:
        """Put a finished file where later attempts find it: on disk first, then by one rename. Repeatable."""
        sync(work)
        target = self.done / name
        work.replace(target)
        sync(self.done)
        return target

    def keep(self, work: Path, note: Path) -> None:
        """Keep what is not finished for a later attempt, with the note that says how much of it is good.

        Never one beside another's note: that would say something false.
        """
        (self.done / note.name).unlink(missing_ok=True)
        for path in (work, note):
            if path.exists():
                path.replace(self.done / path.name)

    def left_by_others(self, name: str) -> list[Path]:
        """Return the files of this name that earlier attempts have kept or were working on when killed, the newest first.

        To be copied, never moved: whoever made one may still write into it.
        """
        found = [path for path in self.folder.parent.glob(f"*/{name}") if path.parent != self.folder]
        return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)

    def forget(self) -> None:
        """Remove all that there is of the job: it has ended. Not when a later attempt works there: then this one is stale."""
        home = self.folder.parent
        if not any(path.name.isdecimal() and int(path.name) > int(self.folder.name) for path in home.glob("*")):
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def scratch(root: Path, job_id: object, attempt: int) -> Iterator[Scratch]:
    """Give an attempt its folder, empty, and remove it when the attempt ends, also by an error."""
    home = root / str(job_id)
    place = Scratch(home / str(attempt), home / "done")
    own(root)
    own(home)
    shutil.rmtree(place.folder, ignore_errors=True)
    for folder in (place.done, place.folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a stale attempt may have removed it again
    try:
        yield place
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)


def own(folder: Path) -> None:
    """Make a folder that nobody else may look into, or take the one that is there.

    Raises `BadSetting` for one that somebody else has put where everybody may, as in `/tmp`: whatever is written there would
    be theirs to read and to replace.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.parent.stat().st_mode & stat.S_IWOTH and folder.lstat().st_uid != os.getuid():
        raise BadSetting(
            f"{folder} was made by somebody else, in a folder where everybody may: nothing is worked on there. Name another "
            "folder to work in: HOLDFAST_MEDIA_SCRATCH, or `scratch` of [media] in holdfast.toml"
        )


def sweep(root: Path, older_than: float, *, but: object = None) -> list[str]:
    """Remove the folders of jobs in which nothing has changed for so many seconds; returns their names.

    Those are of workers that were killed and of jobs that went on elsewhere. Whatever else is in the folder is left alone.
    """
    limit = time.time() - older_than
    swept = []
    for home in root.iterdir() if root.is_dir() else ():
        if _ID.fullmatch(home.name) and home.name != str(but) and not home.is_symlink() and _changed(home) < limit:
            shutil.rmtree(home, ignore_errors=True)
            swept.append(home.name)
    return swept


def sync(path: Path) -> None:
    """Have the system write a file, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _changed(home: Path) -> float:
    """Return when anything in it was changed last; now, for what just vanishes."""
    try:
        return max(path.lstat().st_mtime for path in (home, *home.rglob("*")))
    except OSError:
        return time.time()
