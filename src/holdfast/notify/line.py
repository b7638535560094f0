"""One connection of a `PostgresNotifier`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Heard = Callable[[str], None]
    """Called with what a notification says."""

GOODBYE_SECONDS: Final = 0.3


class Line:
    """A connection that runs one statement at a time, and none that never ends. Build it with `open`."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._lost = asyncio.Event()
        connection.add_termination_listener(lambda _: self._lost.set())

    @classmethod
    async def open(cls, url: str, *, timeout: float, prepare: bool) -> Self:
        """Connect within `timeout` seconds; no statement will take longer than that either."""
        connection = await asyncpg.connect(
            url,
            timeout=timeout,
            statement_cache_size=100 if prepare else 0,
            server_settings={"application_name": "holdfast-notify"},
        )
        return cls(connection, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(self, channel: str, heard: Heard) -> None:
        """Hear what is sent to a channel from now on."""
        await self._in_time(self._connection.add_listener(channel, lambda _connection, _pid, _channel, payload: heard(payload)))

    async def execute(self, statement: str, *args: object) -> None:
        """Run one statement, a transaction of its own."""
        async with self._turn:
            await self._in_time(self._connection.execute(statement, *args))

    async def _in_time(self, work: Awaitable[object]) -> None:
        # Not the driver's time-out: that asks the server to cancel, over a connection that may hang like this one.
        loop = asyncio.get_running_loop()
        watchdog = loop.call_later(self._timeout, self._connection.terminate)
        try:
            await work
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            if loop.time() >= watchdog.when():
                raise TimeoutError(f"no answer within {self._timeout:g} s") from error
            raise
        finally:
            watchdog.cancel()

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._connection.is_closed()

    async def wait_lost(self, seconds: float) -> bool:
        """Wait until the connection is gone, no longer than `seconds`; tells whether it is."""
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return self.lost
        return True

    async def close(self) -> None:
        """Say goodbye, or hang up when that takes long. Never raises."""
        try:
            await self._connection.close(timeout=GOODBYE_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._connection.terminate()
