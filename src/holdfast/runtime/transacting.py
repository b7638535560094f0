"""The transactions of a handler: settle last, commit, and ask when the answer is lost.

The races, and what closes each:

* *Two ways to settle one attempt.* A transaction and the worker's settler carry the same token, so the store would take the
  second for a repetition of the first: it would let the handler's writes stand beside another end of the attempt. While
  `attempt.commit` is under way nobody else settles the attempt (`Slots._detach` waits), and once somebody has, no
  transaction is committed any more (`_commence`). Only a fresh answer is taken, never REPEATED.
* *The handler is asked to stop while it commits* (cancel, time-out, shutdown, or a time-out of its own): the commit runs in a
  task of its own to its end, for some seconds more, and then the handler is stopped. What the commit gave is the truth.
* *The heartbeat learns that the lease is gone* because the transaction has just ended it: it passes over what is being
  committed. A lease that is really lost shows in the last statement.
* *The answer to COMMIT is lost.* Settling again would complete the job without the handler's writes. `Store.settled` waits for
  whoever has the lease row in hand, and its answer is final. When it cannot be had while the lease lasts, the attempt is left
  alone: it is settled, or it will be reaped.
* *The worker's process dies* at any point: the database decides, and the reaper finds what it left.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.core.abort import AbortReason
from holdfast.core.classify import error_of
from holdfast.core.outcome import BAD_CONTINUATION, KEY_TAKEN, Continued, Error, Failed, Succeeded
from holdfast.core.redact import redact
from holdfast.core.states import Event
from holdfast.errors import (
    Aborted,
    BadJob,
    BadSetting,
    Fatal,
    HoldfastError,
    Retryable,
    SchemaError,
    StaleLease,
    StoreUnavailable,
)
from holdfast.runtime import counters as count
from holdfast.runtime.attempt import Commit
from holdfast.runtime.settling import account, refused_continuation, settlement_of
from holdfast.runtime.telling import tell, user_traceback
from holdfast.store.port import Settled
from holdfast.tasks.continuing import Continue, key_taken, next_step
from holdfast.tasks.transaction import CommitUnknown, conflict_of, not_committed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.base import Base
    from holdfast.runtime.reporter import Reporter
    from holdfast.store.port import Caller, Settlement

T = TypeVar("T")
logger = logging.getLogger("holdfast.worker")

GRACE: Final = 4.0
"""Seconds that a commit may take on when its handler was asked to stop: less than the worker waits for handlers to stop."""
LEAST: Final = 5.0
"""Seconds that a commit may take at least, however little is left of the lease."""
ASK: Final = 5.0
"""Seconds that one question about a lost answer may take."""
UNDO: Final = 5.0
FAILED: Final = "FAILED"
"""The code of a failure that has none of its own."""
FLUSH: Final = 1.0
"""Seconds to wait for reports before the last statement: they are worth little beside the job."""
_FRESH: Final = frozenset({Settled.APPLIED, Settled.LATE, Settled.FREED})


class BrokenTransaction(HoldfastError):
    """The database refused the last statement of a job's transaction. Nothing was committed."""

    code = "TRANSACTION_BROKEN"


class AttemptTransactor:
    """Carries out the transactions of one attempt. On the worker's event loop, or in one of its threads."""

    def __init__(self, attempt: Attempt, base: Base, reporter: Reporter) -> None:
        self._attempt = attempt
        self._base = base
        self._reporter = reporter

    async def begin(self, conn: Any, *, blocking: bool) -> Caller:
        """Begin a transaction: on a connection of the store, or on what the handler brought."""
        await self._on_loop(self._reports())
        if conn is None:
            return await self._base.store.begin()
        caller = self._base.make_caller(conn)
        if blocking and not caller.blocking:
            raise BadSetting(
                f"{type(conn).__name__} needs an event loop: in blocking code bring a blocking connection, or none at all"
            )
        await caller.begin()
        return caller

    def outcome(self, value: Any) -> Succeeded | Continued:
        """Return what completing the job with this value means."""
        task = self._attempt.entry.task
        if isinstance(value, Continue):
            return Continued(next_step(task, value))
        return Succeeded(task.results.encode(value))

    def failure(self, why: str | BaseException, code: str | None) -> Failed:
        """Return what failing the job for good for this reason means; what must not be seen is taken out, as of any error.

        An error that could have been tried again, and spends the last of the budget, is told as it would be without us.
        """
        given = Error(FAILED, why) if isinstance(why, str) else error_of(why, traceback=redact(user_traceback(why)))
        claimed = self._attempt.claimed
        spent = claimed.policy.retry.exhausted(claimed.failures + 1) and not isinstance(why, (str, Fatal)) and code is None
        return Failed(Error(code or given.code, redact(given.message), given.traceback), fatal=not spent)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the worker's event loop from one of its threads, and wait for it."""
        return self._reporter.run_coroutine(coroutine)

    async def rollback(self, caller: Caller, error: BaseException) -> StoreUnavailable | None:
        """Undo everything; returns the outage that an error of the handler is a sign of."""
        if self._reporter.on_loop():
            return await to_the_end(self._rollback(caller, error), GRACE)
        return await self._rollback(caller, error)

    async def _rollback(self, caller: Caller, error: BaseException) -> StoreUnavailable | None:
        outage = None
        if isinstance(error, Exception) and not isinstance(error, HoldfastError):
            # it may be the driver's, on a connection that was lost: that shows in one more statement, whoever the driver is
            try:
                await self._in_time(caller.prove(self._attempt.lease), ASK)
            except StoreUnavailable as lost:
                outage = lost
            except Exception as refusal:  # noqa: BLE001  it answers, so it was not lost
                logger.debug("%s: its transaction is undone; the last statement said: %s", self._attempt, refusal)
        await self._end(caller)
        return outage

    async def commit(self, caller: Caller, outcome: Succeeded | Continued | Failed | None) -> None:
        """Settle as the last statement, or prove the lease, and commit; or undo everything and say why."""
        if self._reporter.on_loop():
            await to_the_end(self._commit(caller, outcome), GRACE)
        else:
            await self._commit(caller, outcome)

    async def _commit(self, caller: Caller, outcome: Succeeded | Continued | Failed | None) -> None:
        try:
            settlement = None if outcome is None else self._settlement(outcome)
            await self._on_loop(self._commence(caller))
            answer = await self._last_statement(caller, settlement)
        except BaseException as error:
            await self._undo(caller)
            if isinstance(error, StoreUnavailable):
                raise not_committed(error) from error
            raise
        try:
            await self._in_time(caller.commit(), self._left() / 2)  # the other half is for asking
        except StoreUnavailable as error:
            await self._end(caller)  # whatever it was, it is over: nobody who asks shall wait for us
            await self._on_loop(self._learn(settlement, error))
        except asyncio.CancelledError:
            self._attempt.commit = Commit.NONE if settlement is None else Commit.UNKNOWN
            await self._end(caller)
            raise
        except BaseException as error:  # refused as a whole: a deferred constraint, a conflict with another transaction
            await self._undo(caller)
            if (conflict := conflict_of(error)) is not None:
                raise conflict from error
            raise
        await self._on_loop(self._conclude(settlement, answer))

    def _settlement(self, outcome: Succeeded | Continued | Failed) -> Settlement:
        try:
            return settlement_of(self._attempt, outcome, self._base.environment)
        except BadJob as error:
            raise Fatal(f"it cannot continue so: {error}", code=BAD_CONTINUATION) from error

    async def _last_statement(self, caller: Caller, settlement: Settlement | None) -> Settled:
        lease = self._attempt.lease
        try:
            last = caller.prove(lease) if settlement is None else caller.settle(settlement)
            answer = await self._in_time(last, self._left())
        except BadJob as error:
            if settlement is None or settlement.then is None:
                raise
            raise Fatal(refused_continuation(settlement, error).error.message, code=BAD_CONTINUATION) from error
        except BadSetting as error:
            # ended inside the block, or at the wrong isolation level: another attempt would do the same, and write again
            raise Fatal(str(error), code=BrokenTransaction.code) from error
        except HoldfastError:
            raise
        except Exception as error:
            if (conflict := conflict_of(error)) is not None:
                raise conflict from error
            raise BrokenTransaction(
                f"the database refused to complete the transaction ({type(error).__name__}: {error}). Where a statement failed "
                "before and its error was caught, PostgreSQL refuses all that follow: let the error pass, or use a savepoint. "
                "Nothing was committed"
            ) from error
        if answer is Settled.KEY_TAKEN and settlement is not None and settlement.then is not None:
            raise Retryable(key_taken(settlement.then), code=KEY_TAKEN)
        if answer is Settled.CANCELED:
            # what it wrote belongs to a continuation that will not be: neither stands, and the job ends as was asked
            self._attempt.abort.set(AbortReason.CANCELED)
            raise Aborted(AbortReason.CANCELED)
        if answer not in _FRESH:
            self._base.counters.add(count.STALE, label="transaction")
            raise StaleLease(f"the transaction of job {lease.job_id} was undone: the lease is lost")
        return answer

    # on the worker's event loop, where everything about an attempt is decided

    async def _on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine if self._reporter.on_loop() else self.run(coroutine)

    async def _reports(self) -> None:
        """Have the reports so far written: once the transaction is open, an embedded store writes nothing else."""
        self._check_current()
        if self._attempt.reported:
            await self._reporter.flush()

    async def _commence(self, caller: Caller) -> None:
        """Take the attempt's end in hand: from here on nobody else settles it."""
        if self._attempt.reported and not caller.exclusive:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH):
                    await self._reporter.flush()  # when it is settled, the store takes no more of them
        self._check_current()
        self._attempt.commit = Commit.UNDER_WAY

    def _check_current(self) -> None:
        attempt = self._attempt
        if attempt.submitted or attempt.detached or attempt.commit is not Commit.NONE:
            raise StaleLease(f"{attempt} was settled without its handler, so nothing can be committed for it")

    async def _conclude(self, settlement: Settlement | None, answer: Settled) -> None:
        """Note that the transaction stands."""
        attempt = self._attempt
        if settlement is None:
            attempt.commit = Commit.NONE
            return
        attempt.commit = Commit.DONE
        attempt.finished = True
        attempt.failed = settlement.write.event is Event.FAIL
        if attempt.job is not None:
            attempt.job.settled = True
        self._base.figures.ended(attempt, settlement.write, answer, self._base.environment.monotonic())
        if (hint := account(attempt, settlement, answer, self._base.counters)) is not None:
            self._base.notifier.hint(hint)
        tell(attempt, settlement.write, None)

    async def _learn(self, settlement: Settlement | None, error: StoreUnavailable) -> None:
        """Find out whether a transaction was committed, as long as the lease lasts; raises unless it was."""
        if settlement is None:  # nothing is left behind that would tell
            self._attempt.commit = Commit.NONE
            raise CommitUnknown(error.target, error.waited, f"whether what it wrote was committed is unknown: {error.cause}")
        backoff = self._base.outage.backoff()
        while (left := self._attempt.held_until - self._base.environment.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(ASK, left)):
                    committed = await self._base.store.settled(self._attempt.lease)
            except (StoreUnavailable, SchemaError, TimeoutError) as trouble:
                await asyncio.sleep(min(left, backoff.failed(trouble)))
                continue
            backoff.succeeded()
            if committed:
                logger.warning("%s: the answer to its COMMIT was lost, but it was committed", self._attempt)
                return
            self._attempt.commit = Commit.NONE
            raise not_committed(error) from error
        self._attempt.commit = Commit.UNKNOWN
        logger.error("%s: whether its transaction was committed cannot be learnt; its lease may lapse", self._attempt)
        raise CommitUnknown(error.target, error.waited, f"whether the job was completed is unknown: {error.cause}")

    async def _undo(self, caller: Caller) -> None:
        """Undo everything, and let the attempt go on."""
        await self._end(caller)
        await self._on_loop(self._let_go())

    async def _end(self, caller: Caller) -> None:
        await (_undone(caller) if self._reporter.on_loop() else caller.rollback())

    async def _let_go(self) -> None:
        if self._attempt.commit is Commit.UNDER_WAY:
            self._attempt.commit = Commit.NONE

    def _left(self) -> float:
        return max(LEAST, self._attempt.held_until - self._base.environment.monotonic())

    async def _in_time(self, call: Awaitable[T], seconds: float) -> T:
        """Bound a call by what is left of the lease: a line that is silently dead never answers."""
        if not self._reporter.on_loop():
            return await call  # blocking: the driver's own time-outs hold
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError:
            raise StoreUnavailable("the store", seconds, "a transaction was not answered in time") from None


async def to_the_end(work: Coroutine[Any, Any, T], grace: float) -> T:
    """Await something although the caller is cancelled meanwhile, for so many seconds more; then raise the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=grace if cancelled else None)
            if cancelled and not task.done():
                task.cancel()
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise asyncio.CancelledError from error
        raise asyncio.CancelledError
    return task.result()


async def _undone(caller: Caller) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(UNDO):
            await caller.rollback()
