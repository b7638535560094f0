"""`SqliteNotifier`: hints among the processes that share a file.

Within the process they are exact and come at once. Across processes there is nobody to carry them: each process watches
a number that SQLite changes with every commit of somebody else.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.notify.bell import stop_or_write
from holdfast.notify.channel import Channel
from holdfast.notify.hub import Hub
from holdfast.notify.port import NOTHING_HANDED, Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.core.environment import Environment, Runner
    from holdfast.notify.bell import Stop
    from holdfast.notify.hub import Mailbox
    from holdfast.notify.port import Handed, Listener, Serving

SHORTEST_REST: Final = 0.005
LONGEST_REST: Final = 0.05
LOOKS_PER_CHECK: Final = 20
"""Looks between two checks that the path still names the file that is watched: about a second when nothing happens."""

_HUBS: Final[dict[tuple[int, str], Hub]] = {}
"""Where the notifiers of this process meet, by process and real path.

By process, because a forked child has its parent's entries, with locks that may be held and loops that are not its own.
"""


class SqliteNotifier:
    """Hints for a store in a file. Several notifiers, in one process or many on one machine, may share it.

    Never creates the file and never writes to it; a file that is not there makes it unhealthy until there is one.
    `watch=False` does without the thread that notices other processes, for a world in which there are none.
    """

    def __init__(self, path: str | os.PathLike[str], environment: Environment, *, watch: bool = True) -> None:
        self._path = os.path.realpath(path)
        self._environment = environment
        self._watch = watch
        self._hub = _HUBS.setdefault((os.getpid(), self._path), Hub())
        self._mailboxes: list[Mailbox] = []
        self._channel = Channel(self._path)
        self._watcher = Watcher(self._path, self._channel)
        self._starting = asyncio.Lock()
        self._runner: Runner | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stop: Stop | None = None
        self._closed = False

    async def listen(self, listener: Listener, serving: Serving | None = None) -> None:  # noqa: ARG002  all hear all
        """Begin to hear hints, and to watch for commits of other processes: those are told as `anything`."""
        if self._closed:
            raise RuntimeError("this notifier is closed: it hears nothing any more")
        self._mailboxes.append(self._hub.listen(listener))
        async with self._starting:
            if self._watch and self._watching is None:
                self._runner = self._runner or self._environment.runner("holdfast-sqlite-watch")
                await self._runner.run(self._watcher.look)
                self._stop = stop = stop_or_write(f"{self._path}-wal", SHORTEST_REST)
                # One call for as long as it listens: a hop between threads for each look would cost several times the look.
                self._watching = asyncio.create_task(
                    self._runner.run(lambda: self._watcher.watch(stop, self._something_changed))
                )

    def _something_changed(self) -> None:
        for mailbox in tuple(self._mailboxes):
            mailbox.post(Hint(anything=True))

    @property
    def healthy(self) -> bool:
        """Whether commits of other processes are noticed now."""
        return self._channel.up and self._watching is not None and not self._watching.done()

    def hint(self, hint: Hint, *, told: bool = False) -> None:  # noqa: ARG002  others are told by the commit
        """Reach every listener of this process at once; other processes notice the commit itself. Never raises."""
        if hint and not self._closed:
            self._hub.send(hint)

    def with_commit(self, hint: Hint) -> None:
        """Return nothing: the commit itself is noticed."""

    def heed(self) -> Handed:
        """Return nothing: everyone hears everything."""
        return NOTHING_HANDED

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Do nothing: others have heard."""

    def figures(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    async def close(self) -> None:
        """Deliver to its own listeners what has been sent, and let go of file and thread. Safe to call again."""
        self._closed = True
        while self._mailboxes:
            self._hub.leave(self._mailboxes.pop())
        async with self._starting:
            runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            if self._stop is not None and self._watching is not None:
                self._stop.set()
                await asyncio.wait({self._watching})
            # in its thread: closing the last connection to a file brings its log back into it
            await runner.run(self._watcher.close)
        finally:
            runner.close()
            self._watcher.close()
            if self._stop is not None:
                self._stop.close()


class Watcher:
    """Looks whether anybody has committed to a file. Everything blocks: it belongs in a thread of its own."""

    def __init__(self, path: str, channel: Channel) -> None:
        self._path = path
        self._channel = channel
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._version = 0
        self._looks = 0

    def watch(self, stop: Stop, tell: Callable[[], None]) -> None:
        """Look until told to stop: often while there is something to tell, ten times less often while there is not."""
        rest = SHORTEST_REST
        while not stop.wait(rest):
            if self.look():
                tell()
                rest = SHORTEST_REST
            else:
                rest = min(rest * 2, LONGEST_REST)

    def look(self) -> bool:
        """Tell whether anything may have changed since the last look."""
        try:
            changed = self._changed()
        except (sqlite3.Error, OSError) as error:
            self.close()
            self._channel.lost(error)
            return False
        self._channel.restored()
        return changed

    def _changed(self) -> bool:
        self._looks += 1
        if self._looks % LOOKS_PER_CHECK == 0 and _identity(self._path) != self._identity:
            self.close()  # another file has been put in its place: the one that is open will never change again
        if self._connection is None:
            self._identity = _identity(self._path)
            self._connection = _connect(self._path)
            self._version = _data_version(self._connection)
            return True
        before, self._version = self._version, _data_version(self._connection)
        return self._version != before

    def close(self) -> None:
        """Let go of the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _identity(path: str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def _connect(path: str) -> sqlite3.Connection:
    # not `mode=ro`: such a connection cannot bring the log back into the file when it is the last to go
    return sqlite3.connect(
        f"{Path(path).as_uri()}?mode=rw",
        uri=True,
        timeout=0,  # looks again soon anyway
        isolation_level=None,
        check_same_thread=False,  # used in one thread; closed from another when nobody waited for it to close there
    )


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
