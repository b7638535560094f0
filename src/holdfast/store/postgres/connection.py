"""Connections: a pool, every driver error turned into Holdfast's, transient conflicts repeated, outages noticed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import asyncpg

from holdfast.errors import BadJob, BadUrl, HoldfastError, SchemaError, StoreUnavailable
from holdfast.store.port import patience_here, too_slow
from holdfast.store.postgres.scripts import wrong_level

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.core.environment import Environment

    Connection = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]

T = TypeVar("T")

MIXED_UP: Final = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
"""A prepared statement is not where it was left, or somebody else's is there: a pooler lends a server's process to many."""

UNAVAILABLE: Final = (
    *MIXED_UP,
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
"""Not the statement's fault: the server is away, full, restarting, a replica, behind a pooler, or the socket is dead."""

NOT_AWAY: Final = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
)
"""The server answered: looking whether it runs would not help."""

STILL_GOOD: Final = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)
"""What was given up in time: the connection is as good as before."""

REFUSED: Final = (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError)
"""The server is there and does not let us in: trying again would not help."""

CONFLICTS: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""Rolled back whole by the server: the operation is simply made again."""

MOST_CONFLICTS: Final = 20

LONGEST_IDLE: Final = 10.0
"""Seconds that a transaction with leases in its hand may stand still between two statements; then the server ends it. A process
that was frozen there would keep them from everybody, for as long as it is frozen: who reaps skips what is locked."""

MOST_KEPT: Final = 2
"""Connections that are kept at hand between operations: to have one from the driver's pool and to give it back costs the client
about as much as a short statement."""

KEPT_SECONDS: Final = 300.0
"""After which a connection that was not used is closed, as the driver's pool does with those that it holds."""

LEVEL: Final = {"default_transaction_isolation": "read committed"}
"""What every protocol here relies on, whatever the database or the role says: a statement sees what was committed before it."""

NOTICING: Final = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Has the server hang up within 30 s on a client that is gone without a word, as after a power cut or with a broken network.
By itself it waits for two hours, and as long stays locked what the client's last transaction has written."""

RESET: Final = (
    "RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); "
    "DISCARD TEMP; DISCARD SEQUENCES"
)
"""Leaves nothing of one handler's session to the next: no setting, role, lock or temporary table.

What DISCARD ALL does, but for the prepared statements: the driver would go on to use those.
"""

WRONG_LEVEL: Final = "HF007"
OWN_STATES: Final = "HF"
"""How the codes begin that Holdfast's own server functions raise."""


class Raised(HoldfastError):
    """What a server function refused, for the caller to put into words."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Connections:
    """The pool of one store."""

    def __init__(
        self,
        url: str,
        environment: Environment,
        *,
        size: int,
        connect_for: float,
        timeout: float,
        prepare: bool,
        lent: bool = False,
    ) -> None:
        self.url = url
        self.target = _target(url)
        self._environment = environment
        self._size = size
        self._connect_for = connect_for
        self._timeout = timeout
        self._prepare = prepare
        self._begin = f"BEGIN ISOLATION LEVEL READ COMMITTED; {may_idle(min(timeout, LONGEST_IDLE))}"
        self._lent = lent
        """Whether others run statements of their own: for as long as they like, and leaving session state behind."""
        self._asks = prepare
        """Whether settings are asked for with the connection; poolers refuse those that they do not know."""
        self._begins = False
        """Whether the level has to be said with each transaction, also around a statement that is one of its own."""
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._kept: list[Connection] = []
        """Connections of the pool that nobody uses; the last one was used last."""
        self._kept_used = 0.0
        self._kept_check: asyncio.TimerHandle | None = None
        self._wanted = 0
        """How many wait for a connection of the pool: then none is kept."""
        self._opening = asyncio.Lock()
        self._down = False
        self.back_since: float | None = None
        """Monotonic time since when the connection is back after an outage; `None` when there was none."""
        self.on_loss: Callable[[], None] = lambda: None
        """Called when a connection was lost: what was remembered about the server may no longer hold."""

    async def open(self) -> None:
        """Connect, trying again for `connect_for` seconds."""
        async with self._opening:
            if self._pool is None:
                self._pool = await self._connect()

    async def _connect(self) -> asyncpg.Pool[asyncpg.Record]:
        started = self._environment.monotonic()
        rest = 0.05
        while True:
            try:
                return await self._made()
            except (*REFUSED, *MIXED_UP) as error:
                raise self._unavailable(error, started) from error
            except UNAVAILABLE as error:
                if self._asks and isinstance(error, asyncpg.ProtocolViolationError):
                    self._asks = False
                    continue
                if self._environment.monotonic() - started + rest > self._connect_for:
                    raise self._unavailable(error, started) from error
            except (ValueError, asyncpg.PostgresError) as error:
                raise BadUrl(f"cannot connect to {self.target} with this URL: {error}") from error
            await asyncio.sleep(rest)
            rest = min(rest * 2, 1.0)

    async def _made(self) -> asyncpg.Pool[asyncpg.Record]:
        """Make the pool, with one connection to see that there is a server.

        The pool has no floor: it would try to restore one in the background, and log every failure of an outage.
        """
        pool = asyncpg.create_pool(
            self.url,
            min_size=0,
            max_size=self._size,
            timeout=max(1.0, self._connect_for),
            command_timeout=None if self._lent else self._timeout,
            reset=_keep,
            statement_cache_size=100 if self._prepare else 0,
            server_settings={"application_name": "holdfast"} | (LEVEL | NOTICING if self._asks else {}),
        )
        try:
            await pool
            async with pool.acquire() as connection:
                # a pooler may have been told to leave out the settings that it does not know
                self._begins = await connection.fetchval("SHOW default_transaction_isolation") != "read committed"
        except BaseException:
            pool.terminate()
            raise
        return pool

    async def close(self) -> None:
        """Close every connection; those in use are ended after a moment."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if self._kept_check is not None:
            self._kept_check.cancel()
            self._kept_check = None
        while self._kept:
            await pool.release(self._kept.pop())
        try:
            await asyncio.wait_for(pool.close(), timeout=2.0)
        except TimeoutError:
            pool.terminate()

    async def run(self, operation: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `operation` with a connection; outside a transaction each statement is one of its own. All else as `_run`."""
        return await (self.in_transaction if self._begins or patience_here() is not None else self._run)(operation)

    async def _run(self, operation: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `operation` with a connection.

        Repeats it whole when the server rolled it back because of a conflict. Raises `StoreUnavailable` for whatever
        is not the statement's fault; then its outcome is unknown.
        """
        if self._pool is None:
            raise StoreUnavailable(self.target, 0.0, "the store is not open: call open() first, or it was closed")
        started = self._environment.monotonic()
        for attempt in range(MOST_CONFLICTS):
            try:
                result = await self._with_connection(self._pool, started, operation)
            except CONFLICTS as error:
                if attempt == MOST_CONFLICTS - 1:
                    raise self._unavailable(error, started) from error
                await asyncio.sleep(self._environment.random() * 0.01 * 2 ** min(attempt, 5))
            except asyncpg.DataError as error:
                raise BadJob(f"the database does not take this value: {error}") from error
            except asyncpg.PostgresError as error:
                if not isinstance(error, UNAVAILABLE):
                    raise self._translated(error) from error
                if not isinstance(error, STILL_GOOD):
                    self._lost()
                raise self._unavailable(error, started) from error
            except UNAVAILABLE as error:
                self._lost()
                raise self._unavailable(error, started) from error
            else:
                if self._down:
                    self._down = False
                    self.back_since = self._environment.monotonic()
                return result
        raise AssertionError("unreachable")

    async def _with_connection(
        self, pool: asyncpg.Pool[asyncpg.Record], started: float, operation: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Run `operation` with a connection that is at hand, or one of the pool."""
        connection = self._at_hand() or await self._acquired(pool, started)
        try:
            result = await operation(connection)
        except BaseException as error:
            if isinstance(error, (TimeoutError, asyncio.CancelledError, asyncpg.InternalClientError)):
                # whether the statement still runs cannot be asked over a line that may be dead: it is not used again. Nor is
                # one on which the server has ended the session, but whose end the driver has not seen yet
                connection.terminate()
            await pool.release(connection)
            raise
        if not self._keep_at_hand(pool, connection):
            await pool.release(connection)
        return result

    async def _acquired(self, pool: asyncpg.Pool[asyncpg.Record], started: float) -> Connection:
        """Take a connection from the pool. What the server says while connecting is about that, not about the schema."""
        self._wanted += 1
        try:
            return await pool.acquire(timeout=self._timeout)
        except asyncpg.PostgresError as error:
            self._lost()
            raise self._unavailable(error, started) from error
        finally:
            self._wanted -= 1

    def _at_hand(self) -> Connection | None:
        """Return a connection that was kept, the one that was used last; those that were lost meanwhile are let go."""
        while self._kept:
            connection = self._kept.pop()
            if _usable(connection):
                return connection
        return None

    def _keep_at_hand(self, pool: asyncpg.Pool[asyncpg.Record], connection: Connection) -> bool:
        """Keep a connection for the next operation; False: it belongs back into the pool, where others wait for one."""
        if self._wanted or len(self._kept) >= MOST_KEPT or self._pool is not pool:
            return False
        self._kept.append(connection)
        self._kept_used = self._environment.monotonic()
        if self._kept_check is None:
            self._kept_check = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._let_go_of_unused)
        return True

    def _let_go_of_unused(self) -> None:
        """Close what is kept where it has not been used for long."""
        self._kept_check = None
        rest = self._kept_used + KEPT_SECONDS - self._environment.monotonic()
        if rest > 0:
            self._kept_check = asyncio.get_running_loop().call_later(rest, self._let_go_of_unused)
            return
        while (connection := self._at_hand()) is not None:
            connection.terminate()  # the pool learns of it by itself

    async def borrow(self) -> Connection:
        """Take a connection out of the pool, which is made when it is first asked for; it must be given back."""
        await self.open()
        started = self._environment.monotonic()
        if self._pool is None:
            raise StoreUnavailable(self.target, 0.0, "the store was closed")
        try:
            return await self._pool.acquire(timeout=self._timeout)
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            if isinstance(error, TimeoutError) and self._pool.get_idle_size() == 0 and self._pool.get_size() >= self._size:
                cause = f"all {self._size} connections for transactions are in use"
                raise StoreUnavailable(self.target, self._environment.monotonic() - started, cause, fix="") from error
            raise self._unavailable(error, started) from error

    async def give_back(self, connection: Connection, *, broken: bool) -> None:
        """Return a connection to the pool; close it where what it last did is not known, or not ended."""
        with contextlib.suppress(asyncpg.InterfaceError):  # the pool takes a connection back by itself when it is lost
            if broken or connection.is_in_transaction():
                connection.terminate()
        if self._pool is not None:
            # to the end, also when whoever waits for it is stopped: the connection is another's next
            await asyncio.shield(asyncio.create_task(self._returned(self._pool, connection)))

    async def _returned(self, pool: asyncpg.Pool[asyncpg.Record], connection: Connection) -> None:
        """Reset a connection and return it; one that fails in that is closed: its transaction has ended anyway."""
        try:
            if not connection.is_closed():
                await connection.execute(RESET, timeout=self._timeout)
        except Exception:  # noqa: BLE001  as said
            with contextlib.suppress(asyncpg.InterfaceError):  # the pool has taken it back
                connection.terminate()
        with contextlib.suppress(Exception):
            await pool.release(connection)

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """Run one statement and return its rows."""
        return await self.run(lambda connection: connection.fetch(sql, *args))

    async def fetch_value(self, sql: str, *args: object) -> Any:
        """Run one statement and return its only value."""
        return await self.run(lambda connection: connection.fetchval(sql, *args))

    async def execute(self, sql: str, *args: object) -> None:
        """Run one statement."""
        await self.run(lambda connection: connection.execute(sql, *args))

    async def in_transaction(self, operation: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `operation` inside one transaction. The server ends it when this process stands still in its midst."""

        async def work(connection: Connection) -> T:
            seconds = patience_here()
            limit = "" if seconds is None else f"; SET LOCAL statement_timeout = {max(1, round(1000 * seconds))}"
            await connection.execute(f"{self._begin}{limit}")
            try:
                result = await operation(connection)
            except BaseException as error:
                await _undo(connection, error)
                raise
            await connection.execute("COMMIT")
            return result

        return await self._run(work)

    def _lost(self) -> None:
        self._down = True
        with contextlib.suppress(Exception):
            self.on_loss()

    def _translated(self, error: asyncpg.PostgresError) -> HoldfastError:
        if error.sqlstate == WRONG_LEVEL:
            return wrong_level(str(error))
        if (error.sqlstate or "").startswith(OWN_STATES):
            return Raised(error.sqlstate or "", str(error))
        return SchemaError(
            f"the database at {self.target} does not hold what Holdfast expects there ({type(error).__name__}: {error}). "
            "Was the schema changed, dropped or created by something else, or may this role not use it?"
        )

    def _unavailable(self, error: BaseException, started: float) -> StoreUnavailable:
        fix = "Check that the server runs there and accepts connections"
        if isinstance(error, asyncpg.DiskFullError):
            fix = "Its disk is full: make room there. Workers then go on by themselves"
        elif isinstance(error, NOT_AWAY):
            fix = ""
        elif isinstance(error, REFUSED):
            fix = "Check the names of database and role in the URL, and the password"
        elif isinstance(error, MIXED_UP):
            fix = "A pooler in transaction mode (PgBouncer) seems to stand between: add ?prepare=off to the URL"
        waited, seconds = self._environment.monotonic() - started, patience_here()
        given_up = isinstance(error, asyncpg.QueryCanceledError) and seconds is not None and waited >= seconds
        return StoreUnavailable(self.target, waited, too_slow(seconds) if given_up and seconds else _cause(error), fix=fix)


def _usable(connection: Connection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken it back, as it does by itself when it is lost
        return False


def may_idle(seconds: float) -> str:
    """Return what has the server end a transaction that is open and stands still for so long."""
    return f"SET LOCAL idle_in_transaction_session_timeout = {round(1000 * seconds)}"


async def _undo(connection: Connection, error: BaseException) -> None:
    """Undo a transaction after an error. A connection that cannot be asked to is closed, which undoes it too."""
    if isinstance(error, (TimeoutError, asyncio.CancelledError)):
        return  # what it does now is not known: whoever lent it closes it
    try:
        await connection.execute("ROLLBACK")
    except Exception:  # noqa: BLE001  the first error tells more
        connection.terminate()


async def _keep(_connection: object) -> None:
    """Keep a returned connection as it is: nothing here leaves session state, and a reset costs a round trip.

    What handlers leave is reset before a connection is returned (`Connections.give_back`).
    """


def _cause(error: BaseException) -> str:
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return "it is a read-only replica: connect to the primary"
    if isinstance(error, (*MIXED_UP, asyncpg.DiskFullError)):  # server and driver add what is said better here
        return str(error).partition("\n")[0]
    return str(error).rstrip(".") or type(error).__name__


def _target(url: str) -> str:
    """Return host, port and database of a URL, without its password."""
    parts = urlsplit(url)
    host = parts.hostname or "the local socket"
    port = f":{parts.port}" if parts.port else ""
    return f"{host}{port}{parts.path if len(parts.path) > 1 else ''}"
