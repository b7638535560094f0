"""Jobs on somebody's own connection: what a driver must offer (`Line`), and the port's `Caller` on top of it.

Whoever has a connection in a transaction creates jobs in it, and ends attempts, by the same scripts as the store. Each
operation stands inside a savepoint: an error undoes what it has done, and leaves the transaction usable.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from holdfast.errors import BadJob, BadSetting, HoldfastError, SchemaError, SchemaMissing, StoreUnavailable
from holdfast.store.port import Settled
from holdfast.store.postgres import scripts
from holdfast.store.postgres.connection import LONGEST_IDLE
from holdfast.store.postgres.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Enqueued, Settlement

T = TypeVar("T")

SAVEPOINT: Final = "SAVEPOINT holdfast"
RELEASE: Final = "RELEASE SAVEPOINT holdfast"
UNDO: Final = "ROLLBACK TO SAVEPOINT holdfast"
"""One name for all: the server takes the innermost savepoint of that name, and ours are always closed again."""

MARK: Final = "SET LOCAL holdfast.job = 'begun'"
MARKED: Final = (
    "SELECT current_setting('holdfast.job', true) = 'begun', "
    f"set_config('idle_in_transaction_session_timeout', '{1000 * LONGEST_IDLE:.0f}', true)"
)
"""What dies with the transaction in which it was set. A savepoint would, too, but within one a transaction refuses to be given
another isolation level; so it would after a SELECT of set_config.

From there on the transaction has a lease in its hand, and nothing is to come but its commit: the server ends one that stands
still. Before, its handler may take its time."""

TELL: Final = "SELECT pg_notify($1::text, $2::text) WHERE pg_notification_queue_usage() < 0.5"
"""The server has room for 8 GB of notifications, so that half of it is not filled between this and the commit."""

NOT_THERE: Final = ("3F000", "42P01", "42883")
"""No such schema, table, function."""
UNAVAILABLE: Final = ("08", "25006", "53", "55P03", "57", "58")
"""How the codes begin of what is not the statement's fault: the server is away, full, a replica, or took too long."""


class Trouble(NamedTuple):
    """What a driver's exception says."""

    state: str | None
    """SQLSTATE; `None`: the connection itself has failed."""
    message: str
    """The server's primary message, and nothing else."""


class Line(Protocol):
    """A connection to PostgreSQL as its driver speaks. Exceptions are the driver's own; `trouble` knows what they say."""

    blocking: bool
    """The connection is a blocking one: then no coroutine here ever suspends."""
    hint: str
    """The line of code that opens a transaction on such a connection."""

    @property
    def connection(self) -> Any:
        """What the caller brought."""
        ...

    def in_transaction(self) -> bool:
        """Tell whether a transaction is open, or the driver opens one with the next statement."""
        ...

    async def begin(self) -> None:
        """Begin a transaction where none is open; `BadSetting` inside a block of the driver's that ends it by itself."""
        ...

    async def run(self, sql: str) -> None:
        """Run a command without parameters or rows, also in a transaction that the server has marked as failed."""
        ...

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement with `$1::type`, each once and in order, and return its rows."""
        ...

    async def commit(self) -> None:
        """Commit."""
        ...

    async def rollback(self) -> None:
        """Roll back."""
        ...

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called once after the commit; False where the driver does not tell."""
        ...

    def two_phase(self) -> bool:
        """Tell whether the transaction may be prepared first, which the server refuses to one that has notified."""
        ...

    def trouble(self, error: BaseException) -> Trouble | None:
        """Return what an exception of the driver says; `None`: it is none of the driver's."""
        ...


class PostgresCaller:
    """The port's `Caller` over a line. `channel` is where hints are told, `target` names the connection in errors."""

    exclusive = False

    def __init__(self, line: Line, schema: str, channel: str, *, target: str = "the caller's connection") -> None:
        self.blocking = line.blocking
        self._line = line
        self._schema = schema
        self._name = quoted(schema)
        self._channel = channel
        self._target = target
        self._marked = False
        self._holding = SAVEPOINT
        """What comes before a statement that takes a lease in hand."""

    @property
    def connection(self) -> Any:
        """What the caller brought."""
        return self._line.connection

    async def begin(self) -> None:
        """Begin a transaction where none is open, and mark it: `prove` and `settle` are refused in any other.

        Drivers begin the next one by themselves after a commit that other code has made, and would take the attempt's end
        into that, apart from what it was to stand or fall with.
        """
        await self._open()
        await self._plainly(self._line.run(MARK))
        self._marked = True

    async def _open(self) -> None:
        await self._plainly(self._line.begin())

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs, which exist once the transaction has committed."""
        if not jobs:
            return []
        return await self._run(scripts.enqueue(jobs, caps=caps, callers=True), jobs, caps)

    async def prove(self, lease: Lease) -> Settled:
        """Hold a lease in place until the end."""
        await self._check_same()
        return await self._run(scripts.prove(lease), before=self._holding)

    async def settle(self, settlement: Settlement) -> Settled:
        """End an attempt."""
        await self._check_same()
        then = [settlement.then] if settlement.then is not None else []
        try:
            [answer] = await self._run(scripts.settle([settlement]), then, before=self._holding)
        except scripts.NextKeyTaken:
            return Settled.KEY_TAKEN
        return answer

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called once after the commit; False where the driver does not tell."""
        return self._line.after_commit(call)

    async def tell(self, text: str) -> None:
        """Send the text of a hint with the transaction; the server drops repetitions within one.

        Not in one of two phases, nor where the server's room for notifications runs out, as it does behind somebody who listens
        and stays in a transaction: the commit would fail for the hint's sake, and workers find the jobs at their next look.
        """
        self._check_open()
        if self._line.two_phase():
            return
        await self._plainly(self._line.fetch(TELL, [self._channel, text]))

    async def commit(self) -> None:
        """Commit. `StoreUnavailable`: the outcome is unknown."""
        await self._plainly(self._line.commit())

    async def rollback(self) -> None:
        """Undo everything. Never raises: a connection that cannot be told has lost its transaction."""
        with suppress(Exception):
            await self._line.rollback()

    async def _run(
        self,
        script: scripts.Script[T],
        jobs: Sequence[NewJob] = (),
        caps: Mapping[str, int] | None = None,
        *,
        before: str = SAVEPOINT,
    ) -> T:
        """Run a script inside a savepoint."""
        self._check_open()
        await self._plainly(self._line.run(before))
        try:
            answer = await scripts.drive(script, self._fetch)
            await self._line.run(RELEASE)
        except BaseException as error:
            with suppress(Exception):  # a connection that is gone has undone everything already
                await self._line.run(UNDO)
                await self._line.run(RELEASE)
            if (translated := self._translated(error, jobs, caps)) is error:
                raise
            raise translated from error
        return answer

    async def _fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return await self._line.fetch(sql.replace("{schema}", self._name), parameters)

    async def _plainly(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except Exception as error:
            if (translated := self._translated(error)) is error:
                raise
            raise translated from error

    def _check_open(self) -> None:
        if not self._line.in_transaction():
            raise BadSetting(
                "this connection has no transaction open, so what is enqueued on it would be committed at once. "
                f"Open one first: {self._line.hint} … or leave out conn="
            )

    def _check_not_ended(self) -> None:
        """Refuse to end an attempt where the transaction that it belongs to is gone."""
        if not self._line.in_transaction():
            raise ended_inside()

    async def _check_same(self) -> None:
        """Refuse to end an attempt in another transaction than the one that was begun here."""
        self._check_not_ended()
        if self._marked:
            [[same, _]] = await self._plainly(self._line.fetch(MARKED, []))
            if not same:
                raise ended_inside()

    def _translated(
        self, error: BaseException, jobs: Sequence[NewJob] = (), caps: Mapping[str, int] | None = None
    ) -> BaseException:
        """Return what an error means; what is between the caller and the server, as a conflict, stays as it is."""
        if isinstance(error, HoldfastError) or (trouble := self._line.trouble(error)) is None:
            return error
        state, message = trouble
        if state is None:
            return StoreUnavailable(self._target, 0.0, message)
        if (refused := scripts.refusal(state, message, jobs, caps)) is not None:
            return refused
        if state.startswith(UNAVAILABLE):
            return StoreUnavailable(self._target, 0.0, message)
        if state.startswith("22"):
            return BadJob(f"the database does not take this value: {message}")
        if state in NOT_THERE:
            return SchemaMissing(
                f"there is no Holdfast schema {self._schema!r}, or none of this version, in the database of {self._target} "
                f"({message}). Create or upgrade it with: holdfast migrate URL"
            )
        if state.startswith("42"):
            return SchemaError(f"the schema {self._schema!r} cannot be used over {self._target}: {message}")
        return error


def ended_inside() -> BadSetting:
    """Return the refusal of what comes after something inside the block that has ended the transaction."""
    return BadSetting(
        "this transaction was committed or rolled back inside the block: what was written before that stands, or is undone, "
        "and nothing was completed. It is begun and ended by its block alone: leave out COMMIT, ROLLBACK and commit() there, "
        "also in the functions that it calls, and use savepoints"
    )


def inside_block(block: str) -> BadSetting:
    """Return the refusal to begin inside a block of the driver's own, which has to end the transaction itself."""
    return BadSetting(
        f"the connection is inside {block} already, which ends the transaction itself: "
        "open job.transaction(conn=…) outside of it, where it begins and commits by itself"
    )
