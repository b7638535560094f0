"""How an app lives: what it is made of, and its connections, one set for each event loop that uses it."""

from __future__ import annotations

import asyncio
import os
import weakref
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from holdfast.connect import Adapters
from holdfast.errors import BadSetting
from holdfast.runtime.client import Client, bury
from holdfast.runtime.portal import Portal
from holdfast.store.port import Retention
from holdfast.system import SystemEnvironment
from holdfast.tasks.blocking import by_hand
from holdfast.tasks.codec import DEFAULT_MAX_BYTES
from holdfast.tasks.options import Using
from holdfast.tasks.sealing import Sealer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from uuid import UUID

    from holdfast.core.environment import WorkerEnvironment
    from holdfast.runtime.entry import Middleware
    from holdfast.store.port import Caller
    from holdfast.tasks.options import QueueOptions
    from holdfast.tasks.sealing import Cipher
    from holdfast.tasks.task import Task
    from holdfast.tasks.tracing import Tracing

T = TypeVar("T")

DAY: Final = 86_400.0
DEFAULT_RETENTION: Final = Retention(
    succeeded=7 * DAY, failed=30 * DAY, canceled=7 * DAY, signals=30 * DAY, enqueues=30 * DAY, workers=7 * DAY
)


class Life:
    """What every part of an app shares."""

    def __init__(
        self,
        url: str | None = None,
        *,
        create: bool = True,
        retention: Retention = DEFAULT_RETENTION,
        max_args_bytes: int = DEFAULT_MAX_BYTES,
        encryption: Cipher | None = None,
        notify_in_transactions: bool = True,
        redis_url: str | None = None,
        dispatch: str | None = None,
        environment: WorkerEnvironment | None = None,
    ) -> None:
        """Declare an app; `create=False` leaves a missing schema alone, `retention` says how long ended jobs are kept.

        Without a URL it works on the store that the settings name when it is first used: `HOLDFAST_URL`, else `url` in
        `holdfast.toml` or in `[tool.holdfast]` of `pyproject.toml`. Raises `BadUrl` for one that names no store.

        With `encryption` (`holdfast.encryption.Encryption(…)`) args, results and what jobs store on the way are sealed
        before they reach the store, and unique keys are hashed.

        Where jobs are enqueued in a caller's own transaction on a bare PostgreSQL connection, workers are told by a
        notification inside it, which all commits of the server take turns at: `notify_in_transactions=False` leaves
        it out, and such jobs wait until a worker looks by itself.

        With a `redis_url` workers on PostgreSQL are told of jobs through Redis: `dispatch="hybrid"` (the default then) falls
        back to PostgreSQL while Redis is away, `"redis"` to polling. Without either the settings say it: `HOLDFAST_REDIS_URL`
        and `HOLDFAST_DISPATCH`. All who enqueue and all who work must agree.
        """
        self._by_settings = url is None
        self._default_lease: float | None = None
        self._environment: WorkerEnvironment = environment or SystemEnvironment()
        self._adapters = Adapters(url, create=create, environment=self._environment, redis_url=redis_url, dispatch=dispatch)
        self._retention = retention
        self._max_bytes = max_args_bytes
        if encryption is not None and not all(hasattr(encryption, name) for name in ("seal", "open", "hash")):
            raise BadSetting(f"encryption= takes holdfast.encryption.Encryption(…), not {encryption!r}")
        self.sealer = None if encryption is None else Sealer(encryption)
        """What seals texts before they reach the store; `None`: nothing does. For tools and tests."""
        self._notify_in_transactions = notify_in_transactions
        self._tasks: dict[str, Task[..., Any]] = {}
        self._queues: dict[str, QueueOptions] = {}
        self._middlewares: list[Middleware] = []
        self._lifespans: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self._capabilities: list[Callable[[], Awaitable[Collection[str]]]] = []
        self._listeners: list[Callable[[str, UUID], None]] = []
        self.tracing: Tracing | None = None
        """Who follows jobs from their enqueue on; set by `holdfast.telemetry.instrument`."""
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()
        self._portal = Portal()
        self._process = os.getpid()

    @property
    def url(self) -> str:
        """The store's URL; raises `BadSetting` when none was given and no setting says it."""
        return self._adapters.url

    @property
    def by_settings(self) -> bool:
        """Whether it was given no URL, so that the settings say where it works and how long its leases are. For tools."""
        return self._by_settings

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The declared tasks, by name."""
        return self._tasks

    @property
    def environment(self) -> WorkerEnvironment:
        """The world that it lives in: the real one, or that of a test. For tools and tests."""
        return self._environment

    def beside(self) -> Self:
        """Return an app without tasks, queues and hooks on the very same store. For tools that have jobs of their own."""
        other = type(self)(self.url, environment=self._environment)
        other._adapters = self._adapters  # noqa: SLF001  one of its own kind: a store in memory is that of its adapters
        return other

    @contextmanager
    def override(self, url: str, environment: WorkerEnvironment | None = None, *, key: str | None = None) -> Iterator[Self]:
        """Have the app use another store inside this `with` block, with the tasks it has. For tests: `memory://`.

        `key` is for the URL of a server.

        Connections opened inside must be closed inside: `await app.close()`, or `app.close_sync()`.
        """
        kept = self._environment, self._adapters, self._clients, self._portal
        self._environment = environment or SystemEnvironment()
        self._adapters = Adapters(url, environment=self._environment, key=key)
        self._clients, self._portal = weakref.WeakKeyDictionary(), Portal()
        try:
            yield self
        finally:
            self._environment, self._adapters, self._clients, self._portal = kept

    async def __aenter__(self) -> Self:
        await self.client().open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections of this event loop and of the portal. Safe to call again; use opens them anew."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        if self._portal.running:
            runner = self._environment.runner("holdfast-close")
            try:
                await runner.run(self._close_portal)
            finally:
                runner.close()

    def close_sync(self) -> None:
        """Do as `close`, from blocking code."""
        self._portal.refuse_on_loop("close")
        if self._portal.running:
            self._close_portal()

    def _close_portal(self) -> None:
        self._portal.close(self._close_client)

    async def _close_client(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def client(self) -> Client:
        """Return what asks the store on the running event loop, and is asked by handles. For tools and tests."""
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            # a forked child must not speak through its parent's connections: they are left alone, not closed
            self._process, self._clients, self._portal = os.getpid(), weakref.WeakKeyDictionary(), Portal()
        client = self._clients.get(loop)
        if client is None:
            self._bury_the_dead()
            client = self._clients[loop] = Client(self._adapters.store(), self._adapters.notifier(), self._environment)
        return client

    def _bury_the_dead(self) -> None:
        """Let go of what event loops have left behind that ended without closing the app, such as one `asyncio.run` each."""
        for loop, client in list(self._clients.items()):
            if loop.is_closed():
                del self._clients[loop]
                bury(client)

    def caller(self, conn: Any) -> Caller:
        """Return what works in the transaction of somebody's own connection, session or job; raises `BadSetting`."""
        own: Caller | None = getattr(conn, "caller", None)  # a job's transaction has one, and no driver's connection does
        if own is not None:
            return own
        return self._adapters.caller_using(conn.alias) if isinstance(conn, Using) else self._adapters.caller(conn)

    def blocking(self, coroutine: Coroutine[Any, Any, T], conn: Any = None) -> T:
        """Run a coroutine from blocking code; refused inside a running event loop.

        With a blocking connection that it works on, it is run in this very thread: the connection is this thread's, and its
        transaction may hold locks that another one would wait for.
        """
        if conn is None:
            return self._portal.run(coroutine)
        with closing(coroutine):
            if self.caller(conn).blocking:
                return by_hand(coroutine)
            name = getattr(coroutine, "__qualname__", "it").rpartition(".")[2]
            raise BadSetting(
                f"{name}_sync was given a connection that has to be awaited. Use: await ….{name}(…), or bring a blocking one"
            )
