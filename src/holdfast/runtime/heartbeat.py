"""The heartbeat: extends leases from a thread of its own, with a connection of its own.

A handler that blocks the event loop, or a sync one that never comes up for air, does not lose its lease. What cannot be
extended in time is asked to stop before anybody else may start it. Nothing is extended beyond its execution time-out.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from holdfast.core.abort import AbortReason, reason_of
from holdfast.core.breaker import entered
from holdfast.core.health import Pulse
from holdfast.core.states import State
from holdfast.errors import HoldfastError, SchemaError, StoreUnavailable, UnknownWorker
from holdfast.notify.port import SHOWN
from holdfast.runtime import counters as count
from holdfast.runtime.attempt import Commit
from holdfast.runtime.service import wait_for_event
from holdfast.store.port import Beat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.core.environment import LoopThread
    from holdfast.core.lease import Lease
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.base import Base
    from holdfast.runtime.watchdog import Watchdog
    from holdfast.store.port import JobView, Signal, Store, Worker

T = TypeVar("T")
logger = logging.getLogger("holdfast.worker")

BEAT: Final = 20.0
"""Seconds between the signs of life of a worker."""
BATCH: Final = 1000
SLOWEST: Final = 5.0
"""Seconds a call may take."""
LATER: Final = 5.0
LAST_BEAT: Final = 2.0
PEEK: Final = 0.5
"""Seconds between looks at held jobs while things change."""
PEEK_REST: Final = 40
"""Times as long as a look took, until the next: on SQLite heartbeats are changes too, and 20,000 jobs take long to look at."""
NEWS_REST: Final = 1.0
"""Seconds between two signs of life that tell how it stands with Redis: its breaker may change several times a second."""
GUARD: Final = 0.25
"""Seconds between looks at the clock while jobs run."""


class Heartbeat:
    """Extends what is held. `abort` is called from the heartbeat's thread, `heed` on the worker's event loop."""

    def __init__(
        self,
        base: Base,
        worker: Worker,
        held: Mapping[Lease, Attempt],
        watchdog: Watchdog,
        *,
        make_store: Callable[[], Store],
        abort: Callable[[Attempt, AbortReason], None],
        heed: Callable[[Signal], None],
    ) -> None:
        self.pulse = Pulse("heartbeat")
        self.guard_pulse = Pulse("guard")
        self._worker = worker
        self._make_store = make_store
        self._held = held
        self._environment = base.environment
        self._outage = base.outage
        self._backoff = base.outage.backoff()
        self._counters = base.counters
        self._notifier = base.notifier
        self._watchdog = watchdog
        self._abort = abort
        self._heed = heed
        self._worker_loop = asyncio.get_running_loop()
        self._thread: LoopThread | None = None
        self._wake = asyncio.Event()
        self._guard_wake = asyncio.Event()
        self._stopping = False
        self._ended = False
        self._urgent = False
        self._peeking = False
        self._peek_at = 0.0
        self._beat_at = 0.0
        self._news_at = 0.0
        self._has_news = False
        """Whether what the worker says of itself has changed since it was last sent. Of the heartbeat's thread."""
        self._told = 0
        """How often the breaker around Redis had changed its phase by the last sign of life."""
        self._sleeps_until = 0.0
        self._guard_sleeps_until = 0.0
        self._in_time_until = 0.0
        """Until then nothing runs out of time that was held when all of it was last looked at. Of the heartbeat's thread."""
        self._new_in_time_until = math.inf
        """The same of what was claimed since. Lowered on the worker's event loop."""

    @property
    def lives(self) -> bool:
        """Whether its thread runs, unless it was asked to end."""
        return not self._ended or self._stopping

    def start(self) -> None:
        """Start the thread."""
        self._thread = self._environment.loop_thread("holdfast-heartbeat", self._main)

    def notice(self, attempts: Sequence[Attempt]) -> None:
        """Take note of new leases: one of them may be due before the next beat. From the worker's event loop."""
        if self._thread is None:
            return
        # all were claimed in this moment: those with the same lease and time-out come due in the same moment
        kinds = {(one.claimed.lease_seconds, one.claimed.policy.timeout): one for one in attempts}.values()
        in_time_until = min(_in_time_until(one) for one in kinds)
        self._new_in_time_until = min(self._new_in_time_until, in_time_until)
        if min(one.extend_at for one in kinds) < self._sleeps_until:
            self._sleeps_until = 0.0
            self._thread.call(self._wake_all)
        elif in_time_until < self._guard_sleeps_until:
            self._guard_sleeps_until = 0.0
            self._thread.call(self._guard_wake.set)

    def hurry(self) -> None:
        """Look at every lease now: somebody says that one was touched. From any thread."""
        if self._thread is not None:
            self._urgent = True
            self._thread.call(self._wake.set)

    def peek(self) -> None:
        """Look whether a lease was touched: something changed, and nobody can say what. From any thread."""
        if self._thread is not None and not self._peeking:
            self._peeking = True
            self._thread.call(self._wake.set)

    def tell(self) -> None:
        """Give a sign of life now: what the worker says of itself has changed. From any thread."""
        if self._thread is not None:
            self._thread.call(self._tell)

    def _tell(self) -> None:
        self._beat_at = 0.0
        self._has_news = True
        self._wake.set()

    def heed_redis(self) -> None:
        """Give a sign of life soon, if the breaker around Redis has changed its phase: people look at it. From any thread."""
        if self._thread is not None and entered(self._notifier.figures()) != self._told:
            self._thread.call(self._wake.set)

    async def stop(self) -> None:
        """Have the thread end, and wait for it."""
        if self._thread is not None:
            self.halt()
            await self._thread.join()
            self._thread = None

    def halt(self) -> None:
        """Have the thread end."""
        self._stopping = True
        if self._thread is not None:
            self._thread.call(self._wake_all)

    def _wake_all(self) -> None:
        self._wake.set()
        self._guard_wake.set()

    async def _main(self) -> None:
        store = self._make_store()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beats(store))
                group.create_task(self._guards(store))
        finally:
            self._ended = True
            await store.close()

    async def _beats(self, store: Store) -> None:
        opened = False
        while not self._stopping:
            self._wake.clear()
            self._sleeps_until = math.inf  # before looking: what is claimed meanwhile must wake it
            self.pulse.came(self._environment.monotonic())
            try:
                if not opened:
                    await self._in_time(store, store.open(), self._at_stake())
                    opened = True
                await self._extend_due(store)  # before anything that might take long or fail
                await self._side_jobs(store)
            except (StoreUnavailable, SchemaError) as error:
                self._counters.add(count.HEARTBEAT_FAILURES)
                rest = min(self._backoff.failed(error), self._hurry())
            except Exception:
                self._counters.add(count.HEARTBEAT_FAILURES)
                logger.exception("heartbeat: an error of its own; it goes on")
                rest = 1.0
            else:
                self._backoff.succeeded()
                rest = self._until_next()
            now = self._environment.monotonic()
            self.pulse.came(now, rest)
            self._sleeps_until = now + rest
            await wait_for_event(self._wake, rest)
        self.pulse.waits()
        if opened:
            await self._last_beat(store)

    async def _last_beat(self, store: Store) -> None:
        """Leave the final counts behind."""
        self._beat_at = 0.0
        try:
            async with asyncio.timeout(LAST_BEAT):
                await self._beat(store)
        except (HoldfastError, TimeoutError) as error:
            logger.warning("the last counters could not be written: %s", str(error) or "the store does not answer")

    async def _in_time(self, store: Store, call: Awaitable[T], at_stake: float) -> T:
        """Bound a call by what is at stake: a line that is silently dead must not cost leases that another one could save."""
        seconds = _bound(at_stake)
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError:
            where = str(getattr(store, "target", "the store"))  # behind HTTP it is the server, whose address helps
            raise StoreUnavailable(where, seconds, "a heartbeat was not answered in time") from None

    async def _side_jobs(self, store: Store) -> None:
        """Give the sign of life and look at held jobs: neither may keep leases from being extended."""
        try:
            async with asyncio.timeout(_bound(self._at_stake())):
                await self._beat(store)
                await self._look(store)
        except TimeoutError:
            self._beat_at = self._environment.monotonic() + LATER
            logger.warning("the sign of life took too long; it is given later")
        except (StoreUnavailable, SchemaError):
            raise
        except Exception:
            self._beat_at = self._environment.monotonic() + LATER
            logger.exception("the sign of life could not be given; it is tried later")
        if self._urgent:
            await self._extend_due(store)

    def _at_stake(self) -> float:
        """Return the seconds until the first lease must be given up."""
        now = self._environment.monotonic()
        return min((one.held_until - one.margin - now for one in list(self._held.values())), default=BEAT)

    def _hurry(self) -> float:
        """Return after how many seconds to try again at the latest, for the sake of leases that can still be saved.

        For one that had to be given up there is no hurry: many workers would wear down a store that is about to come back.
        """
        now = self._environment.monotonic()
        left = [one.held_until - one.margin - now for one in list(self._held.values())]
        return max(0.1, min((seconds for seconds in left if seconds > 0), default=math.inf) / 4)

    def _until_next(self) -> float:
        now = self._environment.monotonic()
        due = [attempt.extend_at for attempt in self._extendable()]
        if self._peeking:
            due.append(self._peek_at)
        if entered(self._notifier.figures()) != self._told:
            due.append(self._news_at)
        return max(0.0, min([*due, self._beat_at]) - now)

    def _extendable(self) -> list[Attempt]:
        now = self._environment.monotonic()
        return [attempt for attempt in list(self._held.values()) if attempt.extendable(now)]

    async def _beat(self, store: Store) -> None:
        now, figures = self._environment.monotonic(), self._notifier.figures()
        is_news = entered(figures) != self._told and now >= self._news_at
        if now < self._beat_at and not is_news:
            return
        self._counters.level(count.HINTED, int(self._notifier.healthy))
        for name, value in figures.items():
            self._counters.level(name, value)
        has_news, self._has_news = self._has_news, False  # before it is sent: what changes meanwhile is to be sent too
        counters = msgspec.json.encode(self._counters.snapshot()).decode()
        try:
            signal = await store.beat(Beat(worker=self._worker.id, counters=counters))
        except UnknownWorker:
            await store.register(self._worker)
            return
        self._outage.heard()
        self._told, self._news_at = entered(figures), now + NEWS_REST
        if not self._has_news:
            self._beat_at = now + BEAT * (0.9 + 0.2 * self._environment.random())
        with suppress(RuntimeError):  # the worker's event loop is closed
            if has_news:
                self._worker_loop.call_soon_threadsafe(self._notifier.hint, SHOWN)
            self._worker_loop.call_soon_threadsafe(self._heed, signal)

    async def _look(self, store: Store) -> None:
        """Read, not write, what became of the held jobs: a write would be a change that others notice in turn."""
        now = self._environment.monotonic()
        if not self._peeking or now < self._peek_at:
            return
        self._peeking, self._peek_at = False, now + PEEK
        running = [attempt for attempt in list(self._held.values()) if not attempt.finished and not attempt.abort.is_set()]
        for start in range(0, len(running), BATCH):
            batch = running[start : start + BATCH]
            views = await store.get([attempt.lease.job_id for attempt in batch])
            if any(_touched(attempt, view) for attempt, view in zip(batch, views, strict=True)):
                self._urgent = True
        took = self._environment.monotonic() - now
        self._peek_at = now + max(PEEK, min(PEEK_REST * took, 2 * BEAT))

    async def _extend_due(self, store: Store) -> None:
        """Extend what is due soon, all in one statement; or everything, when somebody said that a lease was touched."""
        urgent, self._urgent = self._urgent, False
        now = self._environment.monotonic()
        due = [one for one in self._extendable() if urgent or one.extend_at <= now + one.claimed.lease_seconds / 6]
        given_up_at = now + self._at_stake()  # of all that is held, and so found once, not for every batch
        for start in range(0, len(due), BATCH):
            await self._extend(store, due[start : start + BATCH], given_up_at)

    async def _extend(self, store: Store, attempts: Sequence[Attempt], given_up_at: float) -> None:
        asked_at = self._environment.monotonic()
        answers = await self._in_time(store, store.extend([attempt.lease for attempt in attempts]), given_up_at - asked_at)
        self._outage.heard()
        self._counters.add(count.HEARTBEATS)
        for attempt, answer in zip(attempts, answers, strict=True):
            reason = reason_of(answer.hold)
            attempt.asked(asked_at)
            attempt.lost = reason is not None
            if answer.expires_at is not None:
                attempt.extended(asked_at)
            if attempt.finished or attempt.commit is not Commit.NONE:
                continue  # its settlement is on the way, and answers for itself
            if reason is not None:
                self._counters.add(count.STALE, label="extend")
                self._abort(attempt, reason)
            elif answer.cancel_requested:
                self._abort(attempt, AbortReason.CANCELED)

    async def _guards(self, store: Store) -> None:
        """Watch the clock while jobs run, whatever the store or the event loop is doing."""
        while not self._stopping:
            self._guard_wake.clear()
            self._guard_sleeps_until = math.inf  # before looking: what is claimed meanwhile must wake it
            self.guard_pulse.came(self._environment.monotonic())
            rest = self._guard()
            await self._watchdog.check(store, list(self._held.values()))
            if rest is None:
                self.guard_pulse.waits()
            else:
                self._guard_sleeps_until = self._environment.monotonic() + rest
            await wait_for_event(self._guard_wake, rest)
        self.guard_pulse.waits()

    def _guard(self) -> float | None:
        """Stop what ran out of time; returns when to look again, `None` while nothing is held.

        All that is held is looked at only when some of it may have run out: what is held was in time when it was last looked
        at, and is extended meanwhile, never shortened. Otherwise 20,000 leases would be gone through four times a second.
        """
        if not self._held:
            return None
        now = self._environment.monotonic()
        if now >= min(self._in_time_until, self._new_in_time_until):
            self._new_in_time_until = math.inf  # before looking: what is claimed meanwhile may not be seen
            self._in_time_until = self._stop_overdue(now)
        return max(0.0, min(GUARD, self._in_time_until - now, self._new_in_time_until - now))

    def _stop_overdue(self, now: float) -> float:
        """Stop what ran out of time; returns until when nothing else does."""
        soonest = math.inf
        for attempt in list(self._held.values()):
            if attempt.finished or attempt.abort.is_set():
                continue
            if attempt.commit is not Commit.NONE:
                if attempt.commit is Commit.UNDER_WAY:  # it may yet fail, and then go on
                    soonest = min(soonest, now + GUARD)
            elif now >= attempt.held_until - attempt.margin:
                self._abort(attempt, AbortReason.EXPIRED)
            elif attempt.deadline is not None and now >= attempt.deadline:
                self._abort(attempt, AbortReason.TIMEOUT)
            else:
                soonest = min(soonest, _in_time_until(attempt, now))
        return soonest


def _bound(at_stake: float) -> float:
    """Return how many seconds a call may take when leases must be given up in so many."""
    return min(SLOWEST, max(0.5, at_stake / 4))


def _in_time_until(attempt: Attempt, now: float = 0.0) -> float:
    """Return when it runs out of time; of one that has not begun, the earliest moment at which it might."""
    end = attempt.held_until - attempt.margin
    if attempt.deadline is not None:
        return min(end, attempt.deadline)
    timeout = attempt.claimed.policy.timeout
    return end if timeout is None else min(end, max(now, attempt.claimed_at) + timeout)


def _touched(attempt: Attempt, view: JobView | None) -> bool:
    return (
        view is None
        or view.state is not State.RUNNING
        or view.attempt != attempt.claimed.attempt
        or (view.cancel_requested and not attempt.finished)
    )
