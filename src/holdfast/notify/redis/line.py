"""One connection to Redis: commands in, answers out, each within a time; a connection that failed is never used again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

Command: TypeAlias = tuple[str | bytes | int, ...]

FAILURES: Final = (RedisError, OSError, TimeoutError)
"""What a server that is away, slow or full makes of a call."""


class Line:
    """A connection. Opened by `Line.open`; `async with` closes it."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.lost = False

    @classmethod
    async def open(cls, url: str, timeout: float) -> Self:
        """Connect; raises one of `FAILURES`."""
        pool = ConnectionPool.from_url(
            url,
            protocol=2,  # understood by every server, and messages of a subscription come as plain answers
            socket_timeout=None,  # every call here has its own; the driver's swallows a cancellation that comes with an answer
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),  # the breaker decides about trying again
        )
        connection = pool.make_connection()  # type: ignore[no-untyped-call]  # not yet typed there
        # The driver tells its name by CLIENT SETINFO, which Redis 6.2 refuses; before 7 it has it under other names.
        for about in ("driver_info", "lib_name", "lib_version"):
            setattr(connection, about, None)
        line = cls(connection)
        try:
            async with asyncio.timeout(2 * timeout):
                await line._connection.connect()  # type: ignore[no-untyped-call]  # as above
        except BaseException:
            await line.close()
            raise
        return line

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, *commands: Command, timeout: float) -> list[Any]:
        """Send commands at once, and return their answers; raises the first error among these, after reading all."""
        try:
            async with asyncio.timeout(timeout):
                await self.send(*commands)
                answers = [await self._answer() for _ in commands]
        except BaseException:  # also one that is cancelled: the next call would read its answers
            self.lost = True
            raise
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise answer
        return answers

    async def send(self, *commands: Command) -> None:
        """Send commands; their answers are read by somebody else."""
        packed = self._connection.pack_commands(commands)
        await self._connection.send_packed_command(packed, check_health=False)

    async def _answer(self) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    async def next(self, timeout: float) -> Any:
        """Return what comes next by itself, on a line that is subscribed; `None` when nothing does within the time."""
        return await self._connection.read_response(disable_decoding=True, timeout=timeout)

    async def close(self) -> None:
        """Hang up. Does not wait for the server."""
        self.lost = True
        await self._connection.disconnect(nowait=True)
