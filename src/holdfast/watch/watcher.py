"""The watcher: looks at a folder, waits until files are complete, and has the ledger enqueue them.

The periodic look is the truth: it sees what was there before, what came while nobody watched, and what a network file system
tells nobody about. Notifications of the kernel only make it look sooner.
"""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from holdfast.errors import MissingExtra, QueueFull, StoreUnavailable
from holdfast.watch import versions
from holdfast.watch.files import scan
from holdfast.watch.settling import Settling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.watch.files import Rules, Scan, Sighting
    from holdfast.watch.ledger import Ledger
    from holdfast.watch.versions import Version

Args = TypeVarTuple("Args")
Found = TypeVar("Found")

BATCH: Final = 100
"""Files that share a transaction: on SQLite it keeps other writers waiting."""
BREATH: Final = 0.05
"""The least seconds between two looks."""
SHARE: Final = 4.0
"""The least rest after a look, by how long the look took: a huge folder does not keep a processor busy."""
OUTAGE: Final = (0.5, 30.0)
"""Seconds between two tries while the store does not answer: at first, and at most."""
FULL: Final = (0.5, 5.0)
"""The same while a queue has no room: workers make some all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What to watch, and what to do with what is found."""

    folder: Path
    rules: Rules
    settle: float
    every: float
    """Seconds between two looks when nothing is heard of."""
    make: Callable[[str], NewJob]
    """Makes the job for a path."""
    hint: Callable[[Sequence[NewJob]], None]
    """Tells workers of new jobs."""
    taken: Callable[[str, UUID], None]
    """Hears of each file that became a job."""
    note: Callable[[str], None]
    """Says something to people."""
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Once:
    """What came of one look."""

    taken: int
    left: int
    """Files that were left: they still change, or there was no room for them."""
    full: QueueFull | None = None
    """Why there was none."""


class Watcher:
    """Watches one folder. One event loop; nothing that matters is kept here."""

    def __init__(self, watching: Watching, ledger: Ledger) -> None:
        self._watching = watching
        self._ledger = ledger
        self._settling = Settling(watching.settle)
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-watch")
        self._known: dict[str, Sighting] = {}
        """Files that were taken, as they were seen then: such a file is not read again."""
        self._told: dict[str, str] = {}
        self._missing = False
        self._down = False
        self._full = False
        self._taken = 0

    async def once(self) -> Once:
        """Take what is complete now: what stays the same for the settle time, as far as there is room for it."""
        await self._ledger.open(self._below)
        try:
            await self.look()
            if (next_at := self._settling.next_at()) is not None:
                await asyncio.sleep(max(0.0, next_at - self._watching.clock()))
                await self.look()
        except QueueFull as full:  # some may have been taken before: each batch is a transaction of its own
            return Once(self._taken, self._settling.waiting, full)
        return Once(self._taken, self._settling.waiting)

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until `stop` is set."""
        try:
            import watchfiles  # noqa: F401, PLC0415  an extra
        except ImportError as error:
            raise MissingExtra("watch", "holdfast watch", "watchfiles") from error
        await self._ledger.open(self._below)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(stop), name="holdfast-watch-listen")
                group.create_task(self._wake_at(stop), name="holdfast-watch-stop")
                await self._loop(stop)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # whichever was first ended the others

    def close(self) -> None:
        """Let go of the thread that looks."""
        self._thread.shutdown()

    async def look(self) -> None:
        """Look once, and enqueue what is complete. Repeatable."""
        found = await self._in_thread(scan, self._watching.folder, self._watching.rules)
        self._tell(found)
        if found.missing is not None:
            return
        self._known = {path: seen for path, seen in self._known.items() if path in found.files}
        fresh = {path: seen for path, seen in found.files.items() if self._known.get(path) != seen}
        await self._recognize(fresh)
        files = {path: seen for path, seen in fresh.items() if self._known.get(path) != seen}
        complete = self._settling.look(self._watching.clock(), files, found.partial)
        for start in range(0, len(complete), BATCH):
            await self._read_and_take({path: files[path] for path in complete[start : start + BATCH]})

    async def _recognize(self, files: dict[str, Sighting]) -> None:
        """Find out which of those that are new here were taken before: they need not settle."""
        likely = {path: seen for path, seen in files.items() if self._ledger.knows_like(path, versions.begin(seen))}
        if likely:
            found, _ = await self._in_thread(versions.read, likely)
            self._known |= {path: files[path] for path, version in found.items() if self._ledger.knows(path, version)}

    async def _read_and_take(self, files: dict[str, Sighting]) -> None:
        """Have files taken as they were seen; those that cannot be read, or are not so any more, wait anew."""
        found, troubles = await self._in_thread(versions.read, files)
        self._tell_of(troubles)
        for path in files.keys() - found.keys():
            self._settling.anew(path, self._watching.clock())
        await self._take(found)
        for path in found:
            self._known[path] = files[path]
            self._told.pop(path, None)

    async def _in_thread(self, function: Callable[[*Args], Found], *args: *Args) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def _loop(self, stop: asyncio.Event) -> None:
        tries = 0
        while not stop.is_set():
            self._wake.clear()
            begun = self._watching.clock()
            try:
                await self.look()
            except (StoreUnavailable, QueueFull) as error:
                self._tell_kept(error)
                first, most = FULL if isinstance(error, QueueFull) else OUTAGE
                rest = min(most, first * 2 ** min(tries, 10)) * random.uniform(0.5, 1.0)  # noqa: S311  spreads, hides nothing
                tries += 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), rest)
                continue
            tries = 0
            self._tell_well()
            await self._rest(stop, self._watching.clock() - begun)

    async def _rest(self, stop: asyncio.Event, took: float) -> None:
        """Wait for news, for a file to be complete, or for the next periodic look; but never for no time at all."""
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), max(BREATH, SHARE * took))
        next_at = self._settling.next_at()
        most = (
            self._watching.every if next_at is None else min(self._watching.every, max(0.0, next_at - self._watching.clock()))
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), most)

    async def _take(self, files: dict[str, Version]) -> None:
        """Have files taken, the oldest first; raises `QueueFull` when there is no room for one."""
        try:
            taken = await self._ledger.take(files, self._watching.make, self._watching.hint)
        except QueueFull:
            if len(files) == 1:
                raise
            oldest = sorted(files, key=lambda path: (files[path].modified, path))
            for some in (oldest[: len(oldest) // 2], oldest[len(oldest) // 2 :]):  # a queue may never have room for all
                await self._take({path: files[path] for path in some})
            return
        self._taken += len(taken)
        for path, job_id in taken:
            self._watching.taken(path, job_id)
        for path in files:
            self._settling.forget(path)

    async def _listen(self, stop: asyncio.Event) -> None:
        """Look sooner when the kernel tells of something. Without that, looks come at their time."""
        import watchfiles  # noqa: PLC0415  an extra

        folder, recursive = self._watching.folder, self._watching.rules.recursive
        try:
            changes = watchfiles.awatch(
                folder, watch_filter=None, recursive=recursive, stop_event=stop, debounce=200, step=20, rust_timeout=1000,
                ignore_permission_denied=True,
            )  # fmt: skip
            async for _ in changes:
                self._wake.set()
        except (OSError, RuntimeError) as error:
            self._watching.note(f"no notifications for {folder} ({error}): it is looked at every {self._watching.every:g} s")

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def _tell(self, found: Scan) -> None:
        """Say what is wrong once, not at every look."""
        note = self._watching.note
        if found.missing is not None and not self._missing:
            note(f"cannot look at {self._watching.folder}: {found.missing}. It is looked at again until that changes")
        elif found.missing is None and self._missing:
            note(f"{self._watching.folder} is there again")
        self._missing = found.missing is not None
        if found.missing is None:
            self._told = {path: reason for path, reason in self._told.items() if path in found.files or path in found.troubles}
            self._tell_of(found.troubles)

    def _tell_of(self, troubles: Mapping[str, str]) -> None:
        for path, reason in troubles.items():
            if self._told.get(path) != reason:
                self._watching.note(f"left alone: {path}: {reason}")
        self._told |= troubles

    def _tell_kept(self, error: StoreUnavailable | QueueFull) -> None:
        if isinstance(error, QueueFull):
            if not self._full:
                self._watching.note(f"{no_room(error)}. Files wait where they are; they are taken when there is room")
            self._full = True
            return
        if not self._down:
            self._watching.note(f"{error}. Files wait where they are; it is tried again until it answers")
        self._down = True

    def _tell_well(self) -> None:
        if self._down:
            self._watching.note("the store answers again")
        if self._full:
            self._watching.note("there was room for all files")
        self._down = self._full = False

    @property
    def _below(self) -> str:
        return f"{str(self._watching.folder).rstrip('/')}/"


def no_room(error: QueueFull) -> str:
    """Say that a queue is full, without what its error says of the call: of the files before, some were taken."""
    return f"queue {error.queue!r} is full: it takes {error.max_depth} jobs that wait"
