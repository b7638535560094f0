"""A clock that is moved by hand, and with it the world a store and a worker see."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.errors import BadSetting
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_VERSION: Final = 7 << 76
_VARIANT: Final = 2 << 62
_COUNTER_BITS: Final = 42
_CHANCE_BITS: Final = 32


class FakeClock(SystemEnvironment):
    """An environment whose time stands still until it is moved: `Holdfast("memory://", environment=FakeClock())`.

    It begins at `start`, or at the machine's time. With a `seed` ids, tokens and jitter are the same in every run. A
    `ticking` one goes on by itself as well, for tests that run a real worker. Safe from any thread; threads are real.
    """

    def __init__(self, start: datetime | None = None, *, seed: int | None = None, ticking: bool = False) -> None:
        self._start = datetime.now(UTC) if start is None else _aware(start)
        self._moved = timedelta()
        self._ticks_from = time.monotonic() if ticking else None
        self._chance = random.Random(seed)  # noqa: S311  no secret is worth anything in a test
        self._ids = 0
        self._lock = threading.RLock()
        self._watchers: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """Return the time it shows, UTC."""
        return self._start + self._elapsed()

    def monotonic(self) -> float:
        """Return the seconds that have passed since it began."""
        return self._elapsed().total_seconds()

    def _elapsed(self) -> timedelta:
        with self._lock:
            ticked = 0.0 if self._ticks_from is None else time.monotonic() - self._ticks_from
            return self._moved + timedelta(seconds=ticked)

    def advance(self, by: float | timedelta) -> datetime:
        """Let so many seconds (or a `timedelta`) pass; returns the new time."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta():
            raise BadSetting(f"the clock goes forward only, and {by} would take it back")
        with self._lock:
            self._moved += step
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()
        return self.now()

    def move_to(self, moment: datetime) -> datetime:
        """Let time pass until `moment`; returns it."""
        with self._lock:
            step = _aware(moment) - self.now()
        if step < timedelta():
            raise BadSetting(f"the clock goes forward only: it shows {self.now()}, and {moment} has passed")
        return self.advance(step)

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Have a function called after every move, in the thread that moved it."""
        with self._lock:
            self._watchers.append(watcher)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.remove(watcher)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        with self._lock:
            return self._chance.random()

    def lot(self) -> float:
        """Return 0: among equals whoever was first is first, so that a test sees one order."""
        return 0.0

    def token(self) -> UUID:
        """Return a fresh secret."""
        with self._lock:
            return UUID(int=self._chance.getrandbits(128), version=4)

    def job_id(self) -> UUID:
        """Return a fresh job id: a UUIDv7 of the time it shows, ordered among themselves also while that stands still."""
        with self._lock:
            self._ids += 1
            milliseconds = int(self.now().timestamp() * 1000)
            tail = (self._ids % (1 << _COUNTER_BITS)) << _CHANCE_BITS | self._chance.getrandbits(_CHANCE_BITS)
        # 74 bits follow the time: 12 before the variant, 62 after it
        return UUID(int=milliseconds << 80 | _VERSION | (tail >> 62) << 64 | _VARIANT | tail & ((1 << 62) - 1))

    def __repr__(self) -> str:
        return f"<FakeClock {self.now().isoformat()}>"


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise BadSetting(f"{moment} has no time zone: use datetime(…, tzinfo=UTC)")
    return moment.astimezone(UTC)
