"""A job's transaction: what the handler writes, the end of the attempt and what follows from it commit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from holdfast.errors import BadSetting, NotAllowed, StoreUnavailable
from holdfast.tasks.blocking import by_hand
from holdfast.tasks.continuing import continuation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.core.outcome import Continued, Failed, Succeeded
    from holdfast.store.port import Caller, Enqueued, Settled, Settlement
    from holdfast.tasks.channel import Transactor
    from holdfast.tasks.task import Task
    from holdfast.tasks.typed import Next

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class NotCommitted(StoreUnavailable):
    """The store failed before a job's transaction was committed, so nothing of it happened; the job will run again, free.

    Let it pass: an outage is nobody's fault, and spends no budget.
    """


class CommitUnknown(NotCommitted):
    """Whether a job's transaction was committed could not be learnt. The job is left alone: it has ended, or is reaped."""


class _Transaction:
    """What both kinds have in common: what the end of the block will write."""

    def __init__(self, transactor: Transactor, conn: Any, opened: Callable[[_Transaction | None], None]) -> None:
        self._transactor = transactor
        self._conn = conn
        self._opened = opened
        """Tells the job which transaction is open."""
        self._begun: Caller | None = None
        self._outcome: Succeeded | Continued | Failed | None = None
        self._calls: list[Callable[[], None]] = []

    def complete(self, result: R) -> R:
        """Have the job completed with this result when the block ends; returns it, for `return tx.complete(result)`.

        Nothing is written before: an error after this undoes it. Raises `BadResult` at once for what cannot be stored.
        """
        self._decide(result)
        return result

    def continue_with(self, task: Next[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Have the step ended and the next one created when the block ends; to be returned, as `job.continue_with` is.

        Raises `BadArgs` at once for what the next task would not accept, `Fatal` for a task it may not continue with.
        """
        value = continuation(cast("Task[..., Any]", task), args, kwargs)
        self._decide(value)
        return cast("R", value)

    def fail(self, why: str | BaseException, *, code: str | None = None) -> None:
        """Have the job failed for good when the block ends, however many attempts are left, with what the block has written.

        `why` is a message, or the error that is the reason: its code and traceback are kept then, and it may be raised on after
        the block. `code` is for programs: `FAILED` for a message without one. Nothing is written before: an error in the
        block undoes it, and counts as any other. What the function returns is of no interest any more.
        """
        self._open_caller()
        self._check_undecided()
        self._outcome = self._transactor.failure(why, code)

    def give(self, value: Any) -> None:
        """Complete with what the function of an atomic task returned, unless it has done so itself. For the runtime."""
        if self._outcome is None:
            self._decide(value)

    def _decide(self, value: Any) -> None:
        self._open_caller()
        self._check_undecided()
        self._outcome = self._transactor.outcome(value)

    def _check_undecided(self) -> None:
        if self._outcome is not None:
            raise NotAllowed("this transaction ends its job already: complete, continue or fail it once")

    def _open_caller(self) -> Caller:
        if self._begun is None:
            raise NotAllowed("this transaction is not open: use it inside its with block")
        return self._begun

    def note(self, call: Callable[[], None]) -> None:
        """Have `call` called once it has committed."""
        self._calls.append(call)

    # the life of the block; none of it may be entered twice

    async def _begin(self, *, blocking: bool) -> None:
        try:
            self._begun = await self._transactor.begin(self._conn, blocking=blocking)
        except StoreUnavailable as error:
            raise not_committed(error) from error

    async def _end(self, error: BaseException | None) -> Sequence[Callable[[], None]]:
        """Commit or undo; returns whom to tell of the commit."""
        caller, self._begun = self._open_caller(), None
        if error is not None:
            if (outage := await self._transactor.rollback(caller, error)) is not None:
                raise not_committed(outage) from error
            return ()
        await self._transactor.commit(caller, self._outcome)
        return self._calls


class JobTransaction(_Transaction):
    """What `async with job.transaction() as tx` gives."""

    @property
    def connection(self) -> Any:
        """The driver's connection, or what was given as `conn=`: what is written through it commits with the job's end."""
        return self._open_caller().connection

    @property
    def caller(self) -> Caller:
        """The transaction as those who enqueue in it see it: what `options(conn=tx)` uses."""
        return TransactionCaller(self, self._open_caller())

    async def execute(self, sql: str, *args: Any) -> list[Any]:
        """Run one statement in the database's own dialect, and return its rows."""
        return await executed(self._open_caller(), sql, args)

    async def __aenter__(self) -> Self:
        self._opened(self)
        try:
            await self._begin(blocking=False)
        except BaseException:
            self._opened(None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            calls = await self._end(error)
        finally:
            self._opened(None)
        for call in calls:
            call()


class BlockingTransaction(_Transaction):
    """What `with job.transaction_sync() as tx` gives, in a thread of the worker.

    Without `conn=` its statements run on the worker's event loop, and the thread waits for them; with a blocking connection
    they run in the thread itself.
    """

    @property
    def connection(self) -> Any:
        """What was given as `conn=`. Without it the connection belongs to the worker's event loop: use `execute`."""
        caller = self._open_caller()
        if self._conn is None:
            raise BadSetting(
                "the connection of this transaction belongs to the worker's event loop, and blocking code cannot use it: "
                "use tx.execute(…), or bring a blocking connection with job.transaction_sync(conn=…)"
            )
        return caller.connection

    @property
    def caller(self) -> Caller:
        """The transaction as those who enqueue in it see it: what `options(conn=tx)` uses. A blocking one."""
        return BlockingCaller(self, self._open_caller(), self._drive)

    def execute(self, sql: str, *args: Any) -> list[Any]:
        """Run one statement in the database's own dialect, and return its rows."""
        return self._drive(executed(self._open_caller(), sql, args))

    def __enter__(self) -> Self:
        self._opened(self)
        try:
            self._drive(self._begin(blocking=True))
        except BaseException:
            self._opened(None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            calls = self._drive(self._end(error))
        finally:
            self._opened(None)
        for call in calls:
            call()

    def _drive(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return by_hand(coroutine) if self._conn is not None else self._transactor.run(coroutine)


class TransactionCaller:
    """A job's transaction for those who enqueue in it: they do not end it, and hear of its commit from the job."""

    blocking = False

    def __init__(self, transaction: _Transaction, caller: Caller) -> None:
        self._transaction = transaction
        self._caller = caller
        self.blocking = caller.blocking
        self.exclusive = caller.exclusive

    @property
    def connection(self) -> Any:
        """What the transaction runs on."""
        return self._caller.connection

    async def begin(self) -> None:
        """Do nothing: it has begun."""

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs in it."""
        try:
            return await self._caller.enqueue(jobs, caps=caps)
        except StoreUnavailable as error:
            raise not_committed(error) from error

    async def prove(self, lease: Lease) -> Settled:
        """Refuse: that is the last thing before the commit, and the job's own."""
        raise _not_yours(lease)

    async def settle(self, settlement: Settlement) -> Settled:
        """Refuse: that is the last thing before the commit, and the job's own."""
        raise _not_yours(settlement.lease)

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called once it has committed, also where only a later question told so."""
        self._transaction.note(call)
        return True

    async def tell(self, text: str) -> None:
        """Send the text of a hint with the transaction."""
        await self._caller.tell(text)

    async def commit(self) -> None:
        """Refuse: the job's block commits."""
        raise _not_yours(None)

    async def rollback(self) -> None:
        """Do nothing: the job's block undoes it where it must."""


class BlockingCaller(TransactionCaller):
    """The same for blocking code: nothing here suspends."""

    def __init__(self, transaction: _Transaction, caller: Caller, drive: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        super().__init__(transaction, caller)
        self.blocking = True
        self._drive = drive

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs in it."""
        answers: list[Enqueued] = self._drive(super().enqueue(jobs, caps=caps))
        return answers

    async def tell(self, text: str) -> None:
        """Send the text of a hint with the transaction."""
        self._drive(super().tell(text))


async def executed(caller: Caller, sql: str, args: Sequence[Any]) -> list[Any]:
    """Run a handler's statement where the store began the transaction; a handler's own connection is used by itself."""
    execute = getattr(caller, "execute", None)
    if execute is None:
        raise BadSetting("this transaction runs on a connection of your own (conn=): run statements through that")
    try:
        rows: list[Any] = await execute(sql, *args)
    except StoreUnavailable as error:
        raise not_committed(error) from error
    except Exception as error:
        if (conflict := conflict_of(error)) is not None:
            raise conflict from error
        raise
    return rows


def not_committed(error: StoreUnavailable) -> NotCommitted:
    """Return what an outage inside a transaction means for its job."""
    if isinstance(error, NotCommitted):
        return error
    return NotCommitted(error.target, error.waited, error.cause, fix=error.fix or "Nothing was committed; the job runs again")


def conflict_of(error: BaseException) -> NotCommitted | None:
    """Return what a conflict between transactions means for the job; `None`: it is none.

    The server has undone the whole transaction because of another one. Nobody's fault: made again, it will pass.
    """
    state = getattr(error, "sqlstate", None) or getattr(getattr(error, "orig", None), "sqlstate", None)
    if not isinstance(state, str) or not state.startswith("40"):
        return None
    return NotCommitted("the store", 0.0, f"{type(error).__name__}: {error}", fix="Nothing was committed; the job runs again")


def _not_yours(lease: Lease | None) -> NotAllowed:
    what = "this transaction" if lease is None else f"job {lease.job_id}"
    return NotAllowed(f"{what} is ended by the with block of job.transaction(), and by nobody else")
