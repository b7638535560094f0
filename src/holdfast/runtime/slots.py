"""The slots of a worker: every attempt it holds, from the claim until its settlement is confirmed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.abort import LOST, AbortReason
from holdfast.core.outcome import Error, Failed, Released
from holdfast.core.states import Event
from holdfast.errors import SchemaError, StoreUnavailable
from holdfast.notify.port import Hint
from holdfast.runtime import counters as count
from holdfast.runtime.attempt import STOP_GRACE, Attempt, Commit
from holdfast.runtime.attempting import Ended, attempted
from holdfast.runtime.channel import AttemptChannel
from holdfast.runtime.recalling import NOTHING, recalled
from holdfast.runtime.reporter import Reporter
from holdfast.runtime.service import wait_for_event
from holdfast.runtime.settler import Settler
from holdfast.runtime.telling import tell, tell_too_late

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.lease import Claimed, Lease
    from holdfast.core.outcome import Outcome
    from holdfast.runtime.base import Base
    from holdfast.runtime.entry import Entry
    from holdfast.runtime.recalling import Recalled

logger = logging.getLogger("holdfast.worker")

SHORT: Final = 0.1
"""Seconds: jobs that usually take longer are not claimed before there is a slot for them."""
LONGEST_WAIT: Final = 0.5
"""Seconds a claimed job may wait for a slot: then it is given back, for another worker may have one."""
FLAG_WITHIN: Final = 2.0
AGAIN: Final = 0.25
"""Seconds between looks whether a handler that does not stop has committed its transaction."""
WORTH_A_CLAIM: Final = 0.25
"""The part of all that a worker may hold for which it claims while it still has jobs that wait for a slot."""
LONGEST_TURN: Final = 0.002
"""Seconds one slot may run handlers that never suspend before it lets the others have a turn."""

# read for every job: a name of this module is found in a tenth of the time that an enum takes to find its member
_NONE: Final = Commit.NONE
_SUCCEED: Final = Event.SUCCEED


class Slots:
    """Runs what is claimed, as many at once as there are slots. All on the worker's event loop, but for `abort_from_thread`.

    The hooks are set by the worker before the first claim: `taken` hears of new leases, `freed` of room for more, `let_in` of
    room under a limit, `doubted` that a lease seems to be lost.
    """

    def __init__(self, base: Base, entries: Mapping[str, Entry], *, concurrency: int, prefetch: int) -> None:
        self._base = base
        self._environment = base.environment
        self._entries = entries
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._loop = asyncio.get_running_loop()
        self.reporter = Reporter(base, self._report_refused)
        self.settler = Settler(base, self._confirmed)
        self.held: dict[Lease, Attempt] = {}
        """Extended by the heartbeat, which reads this from its thread."""
        self.taken: Callable[[Sequence[Attempt]], None] = _nothing
        self.freed: Callable[[], None] = _nothing
        self.let_in: Callable[[], None] = _nothing
        self.doubted: Callable[[], None] = _nothing
        self.running = 0
        """How many handlers run."""
        self._told_running = 0
        self.abandoned: set[asyncio.Task[None]] = set()
        """Slots whose handler did not stop when they were closed."""
        self._buffer: deque[Attempt] = deque()
        """Claimed, and waiting for a slot."""
        self._idle: deque[asyncio.Future[Attempt]] = deque()
        """Slots that wait for an attempt."""
        self._wave = 1
        """How many of them are woken next."""
        self._handing_out = False
        """Whether some will be woken when the event loop turns."""
        self._held_off = False
        """Whether the claimer was told that there is no room because some jobs were buffered."""
        self._yielding = 0
        """Slots that let the event loop turn and will go on with what is buffered."""
        self._usual_seconds = 0.0
        """How long handlers took of late."""
        self._stuck = 0
        """Handlers that still run although their job was settled or lost."""
        self._let_one_go = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    def open(self) -> None:
        """Start the slots. Not in the worker's task group: a handler that will not stop must not keep it from stopping."""
        self._tasks = [asyncio.create_task(self._slot(), name=f"holdfast-slot-{number}") for number in range(self._concurrency)]

    async def close(self) -> None:
        """End the slots; those whose handler does not stop are abandoned."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, self.abandoned = await asyncio.wait(self._tasks, timeout=STOP_GRACE)

    # claiming

    def room(self) -> int:
        """Return how many jobs more are to be claimed: for free slots, and beyond them while jobs are short.

        None while a few would fit and some are still buffered: every claim is a transaction, and costs little more for many.
        """
        ahead = self._prefetch if self._usual_seconds < SHORT else 0
        most = self._concurrency + ahead
        room = most - len(self.held) - self._stuck
        if self._buffer and room < WORTH_A_CLAIM * most:
            self._held_off = room > 0
            return 0
        return room

    def take(self, claims: Sequence[Claimed], asked_at: float) -> None:
        """Take what was claimed by a request sent at this time (monotonic)."""
        attempts = []
        for claimed in claims:
            attempt = Attempt.of(claimed, self._entries[claimed.task], asked_at)
            self.held[attempt.lease] = attempt
            attempts.append(attempt)
        self.taken(attempts)
        self._buffer.extend(attempts)
        if not self._handing_out:
            self._hand_out()

    def _hand_out(self) -> None:
        """Wake slots for what is buffered: one at first, and twice as many whenever the event loop turned and some is left.

        Waking a slot costs more than running a job that never suspends, and one slot runs all of those that are buffered.
        """
        self._handing_out = False
        left = 0 if self._yielding else self._wave
        while left and self._buffer and self._idle:
            slot = self._idle.popleft()
            if not slot.done():
                slot.set_result(self._from_buffer())
                left -= 1
        if not self._buffer or not self._idle:
            self._wave = 1
            return
        if not self._yielding:
            self._wave *= 2
        self._handing_out = True
        self._loop.call_soon(self._hand_out)

    def _from_buffer(self) -> Attempt:
        attempt = self._buffer.popleft()
        if self._held_off and not self._buffer:
            self._held_off = False
            self.freed()
        return attempt

    interval = LONGEST_WAIT

    async def tick(self) -> float | None:
        """Give back what has waited too long for a slot. As a keeper, where there is a prefetch."""
        now = self._environment.monotonic()
        late = [attempt for attempt in self._buffer if now - attempt.claimed_at > LONGEST_WAIT]
        for attempt in late:
            self._buffer.remove(attempt)
            self.settler.submit(attempt, Released("no slot of the worker that had claimed it became free"))
        if late:
            self._usual_seconds = max(self._usual_seconds, LONGEST_WAIT)
        return None

    # running

    async def _slot(self) -> None:
        """Run one attempt after another; one that was abandoned ends with its handler."""
        try:
            await self._run_attempts(_this_task())
        finally:
            self._tell_running()

    async def _run_attempts(self, task: asyncio.Task[Any]) -> None:
        monotonic = self._environment.monotonic
        yielded_at = now = monotonic()
        while not self._closing:
            if self._buffer:
                attempt = self._from_buffer()
            else:
                self._tell_running()
                try:
                    attempt = await self._next_attempt()
                except asyncio.CancelledError:
                    if self._closing:
                        raise
                    _uncancel(task)
                    continue
                yielded_at = now = monotonic()
            try:
                if attempt.lease in self.held and not attempt.finished:
                    now = await self._run(attempt, task, now)
            except asyncio.CancelledError:
                if self._closing:
                    raise
                _uncancel(task)  # left behind by a handler that cancelled the task it ran in: no reason to lose a slot
            except Exception:
                logger.exception("%s: an error of the worker's own; the job is given back", attempt, extra=attempt.context)
                if not attempt.submitted and attempt.lease in self.held and attempt.commit is Commit.NONE:
                    self.settler.submit(attempt, Released("its worker failed"))
            if now - yielded_at > LONGEST_TURN:
                # handlers that never suspend would keep the event loop from everybody else
                self._yielding += 1
                try:
                    await asyncio.sleep(0)
                finally:
                    self._yielding -= 1
                yielded_at = now = monotonic()

    def _tell_running(self) -> None:
        """Count how many handlers run; not between two that a slot runs one after the other."""
        self._told_running = self.running
        self._base.counters.level(count.CONCURRENT, self.running)

    async def _next_attempt(self) -> Attempt:
        future: asyncio.Future[Attempt] = self._loop.create_future()
        self._idle.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # handed over in the very moment this slot was closed
                self._buffer.appendleft(future.result())
            raise

    async def _run(self, attempt: Attempt, task: asyncio.Task[Any], begun: float) -> float:
        """Run an attempt that begins now, and return when that was over."""
        attempt.runner = task
        self.running += 1
        if self.running != self._told_running:
            self._tell_running()
        try:
            channel = AttemptChannel(attempt, self.reporter, self._base)
            try:
                ended = await attempted(attempt, channel, self._environment, self._recall)
            except asyncio.CancelledError as error:
                if self._closing:
                    raise
                _uncancel(task)
                ended = _cancelled(attempt, error)
            # from here on it is no longer to be stopped; its lease is still kept
            attempt.finished = not attempt.detached
            if attempt.reported and not attempt.detached and attempt.commit is Commit.NONE:
                await self.reporter.flush()
        finally:
            self.running -= 1
            attempt.runner = None
            now = self._environment.monotonic()
            self._usual_seconds += 0.1 * (now - begun - self._usual_seconds)
        if ended.error is not None and attempt.commit is Commit.DONE and not attempt.failed:
            tell_too_late(attempt, ended.error)
        if attempt.detached:
            self._stuck -= 1
            self.freed()
        elif ended.outcome is not None and attempt.commit is _NONE:
            write = self.settler.submit(attempt, ended.outcome)
            if write.event is not _SUCCEED or logger.isEnabledFor(logging.DEBUG):
                tell(attempt, write, ended.error)
        else:
            self._drop(attempt)
        return now

    async def _recall(self, attempt: Attempt) -> Recalled:
        """Read what earlier attempts left and what it waited for; nothing when it is to stop, for then it will not begin."""
        backoff = self._base.outage.backoff()
        while not attempt.abort.is_set():
            try:
                return await recalled(self._base.store, attempt.claimed)
            except (StoreUnavailable, SchemaError) as error:
                await asyncio.sleep(min(0.5, backoff.failed(error)))
        return NOTHING

    # stopping handlers

    def abort(self, attempt: Attempt, reason: AbortReason) -> None:
        """Ask a handler to stop; the first reason stands."""
        if attempt.abort.set(reason):
            self._stop_handler(attempt)

    def abort_from_thread(self, attempt: Attempt, reason: AbortReason) -> None:
        """Ask a handler to stop, from another thread: handlers in threads see it at once, others when the loop turns."""
        if attempt.abort.set(reason):
            try:
                self._loop.call_soon_threadsafe(self._stop_handler, attempt)
            except RuntimeError:  # the event loop is closed: there is nothing left to stop
                return

    def _stop_handler(self, attempt: Attempt) -> None:
        """Stop a handler that was asked to: cancel what can be cancelled, and settle without what will not stop."""
        reason = attempt.abort.reason
        if reason is None or attempt.lease not in self.held:
            return
        if attempt.commit is Commit.DONE:
            # a transaction has settled it; what its handler does now keeps nobody but a worker that shuts down
            if attempt.runner is not None and attempt.entry.cancellable:
                attempt.runner.cancel()
            return
        if attempt.finished:
            return
        logger.warning("%s: asked to stop: %s", attempt, reason, extra=attempt.context)
        if attempt.runner is None:  # it waits for a slot
            self._buffer = deque(one for one in self._buffer if one is not attempt)
            outcome = attempt.outcome_after(reason)
            if outcome is None:
                self._drop(attempt)
            else:
                self.settler.submit(attempt, outcome)
            return
        if attempt.job is not None:
            attempt.entry.stop(attempt.job)
        if attempt.entry.cancellable:
            attempt.runner.cancel()
        if reason in LOST:
            self._detach(attempt, None)
        elif reason is AbortReason.TIMEOUT:
            self._loop.call_later(STOP_GRACE, self._detach, attempt, attempt.outcome_after(reason))
        elif reason is AbortReason.CANCELED and attempt.deadline is not None:
            # its time-out still ends the hold: no second reason will be heard of
            left = max(0.0, attempt.deadline - self._environment.monotonic())
            self._loop.call_later(left + STOP_GRACE, self._detach, attempt, attempt.outcome_after(reason))

    def _detach(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Go on without a handler that does not stop: its job is settled or lost, its slot stays taken until it ends."""
        over = attempt.finished and attempt.commit is not Commit.DONE
        if over or attempt.detached or attempt.runner is None or attempt.lease not in self.held:
            return
        if outcome is not None and attempt.commit is not Commit.NONE:
            # it is committing: two ends under one token would pass for one. Nothing is written until it is known what it gave
            if attempt.commit is Commit.UNDER_WAY:
                self._loop.call_later(AGAIN, self._detach, attempt, outcome)
            return
        attempt.detached = True
        self._stuck += 1
        if outcome is None:
            self._drop(attempt)
            return
        logger.error(
            "%s: its handler does not stop; the job is settled without it, and its slot stays taken until it ends",
            attempt,
            extra=attempt.context,
        )
        tell(attempt, self.settler.submit(attempt, outcome), None)

    def _report_refused(self, lease: Lease) -> None:
        if lease in self.held:
            self.doubted()

    # stopping the worker

    @property
    def empty(self) -> bool:
        """Whether nothing runs, or waits for a slot."""
        return not self._live()

    def give_back(self) -> None:
        """Leave to others what has not begun."""
        while self._buffer:
            self.settler.submit(self._buffer.popleft(), Released("its worker shut down before it began"))

    async def drain(self, timeout: float, *, until: asyncio.Event) -> None:
        """Give back what has not begun, and let the rest finish: for so long, or until told otherwise. Then abort it."""
        self.give_back()
        if not await self._nothing_runs(timeout, until):
            await self._abort_all()

    async def _abort_all(self) -> None:
        """Ask what still runs to stop; what will not is let go, flagged so that its expiry costs nothing."""
        live = self._live()
        try:
            # before they are asked: whatever happens from here on is not their fault
            async with asyncio.timeout(FLAG_WITHIN):
                await self._base.store.flag_free([one.lease for one in live if one.commit is not Commit.DONE])
        except (StoreUnavailable, TimeoutError) as error:
            logger.warning("running jobs could not be flagged as not at fault: %s", str(error) or "the store does not answer")
        for attempt in live:
            self.abort(attempt, AbortReason.SHUTDOWN)
        if await self._nothing_runs(STOP_GRACE):
            return
        stubborn = self._live()
        logger.warning("%d job(s) do not stop; their leases will lapse at no cost to them", len(stubborn))
        for attempt in stubborn:
            self._detach(attempt, None)

    async def _nothing_runs(self, timeout: float, until: asyncio.Event | None = None) -> bool:
        """Wait until nothing runs, for so long, or until told otherwise; returns whether nothing runs."""
        deadline = self._environment.monotonic() + timeout
        while self._live():
            left = deadline - self._environment.monotonic()
            if left <= 0 or (until is not None and until.is_set()):
                return False
            self._let_one_go.clear()
            await wait_for_event(self._let_one_go, min(left, 0.1))
        return True

    def _live(self) -> list[Attempt]:
        return [attempt for attempt in self.held.values() if not attempt.submitted]

    # letting go

    def _confirmed(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self.held.pop(attempt.lease, None)
        self._let_go(attempts)

    def _drop(self, attempt: Attempt) -> None:
        """Let go of an attempt whose lease is lost."""
        attempt.finished = attempt.submitted = True
        self.held.pop(attempt.lease, None)
        self._let_go((attempt,))

    def _let_go(self, attempts: Sequence[Attempt]) -> None:
        self._let_one_go.set()
        if queues := {attempt.claimed.queue for attempt in attempts if attempt.claimed.limited}:
            self._base.notifier.hint(Hint(frozenset(queues)))  # a limit has room again, for whoever waits for it
            self.let_in()
        self.freed()


def _nothing(*_: Any) -> None:
    """Do nothing: a hook that nobody has set."""


def _cancelled(attempt: Attempt, error: BaseException) -> Ended:
    """Return how an attempt ended whose asyncio task was cancelled, by its worker or by its own handler."""
    if (reason := attempt.abort.reason) is not None:
        return Ended(attempt.outcome_after(reason), error)
    return Ended(Failed(Error("CancelledError", "the handler cancelled the asyncio task it runs in")), error)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  slots are asyncio tasks
    return task


def _uncancel(task: asyncio.Task[Any]) -> None:
    """Forget every cancellation of a slot."""
    while task.cancelling():
        task.uncancel()
