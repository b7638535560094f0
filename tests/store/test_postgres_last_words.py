"""A server that has said its last words on a connection, and has not hung up yet: nobody may use that connection any more."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.connection import RESET
from holdfast.system import SystemEnvironment
from tests.notify.proxy import Proxy
from tests.support.postgres import GivenServer, PostgresServer, database_of
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TERMINATED = b"57P01"
TIMEOUT = 30.0
"""Seconds for a statement: what is told at once is not told by this."""


class LingeringProxy(Proxy):
    """Passes on that the server has ended a session, and does not hang up then."""

    told = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers |= {writer, back}
        self._pumps |= {asyncio.create_task(self._carry(reader, back)), asyncio.create_task(self._carry(there, writer))}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            if TERMINATED in data:
                self.told = True
                return
        writer.close()


class HoldingProxy(Proxy):
    """Keeps the request that resets a connection, and hangs up when told to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers |= {writer, back}
        self._pumps |= {asyncio.create_task(self._carry(reader, back)), asyncio.create_task(self._carry(there, writer))}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if RESET.encode() in data:
                self.asked.set()
                return
            writer.write(data)
        writer.close()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[LingeringProxy]:
    async with LingeringProxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: LingeringProxy) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(proxy.url, SystemEnvironment(), timeout=TIMEOUT)
    await store.open()
    yield store
    await store.close()


@pytest.mark.row(11)
async def test_a_connection_whose_session_was_ended_is_unavailable_and_replaced(
    postgres_server: PostgresServer | GivenServer, proxy: LingeringProxy, store: PostgresStore
) -> None:
    await store.stats()
    await end_every_session(postgres_server, proxy)

    async with asyncio.timeout(TIMEOUT / 2):
        with pytest.raises(StoreUnavailable):
            await store.stats()
        await until(partial(answers, store))


@pytest.mark.row(13)
async def test_who_is_stopped_while_a_transaction_gives_its_connection_back_leaves_no_error_behind(postgres_url: str) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about["message"]))
    async with HoldingProxy(postgres_url) as proxy:
        store = PostgresStore(proxy.url, SystemEnvironment(), timeout=TIMEOUT)
        await store.open()
        transaction = await store.begin()
        ending = asyncio.create_task(transaction.commit())
        await asyncio.wait_for(proxy.asked.wait(), TIMEOUT)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending

        proxy.hang_up()
        await store.close()  # which waits for what was left to itself
        gc.collect()  # an error that nobody asked for is told of when its task is freed

    assert complaints == []


async def end_every_session(server: PostgresServer | GivenServer, proxy: LingeringProxy) -> None:
    """Have the server end the sessions of the store, and wait until that was said."""
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'holdfast'",
        database_of(proxy.url),
    )

    async def was_told() -> bool:
        return proxy.told

    await until(was_told)
    await asyncio.sleep(0.1)  # on the way from the proxy to the driver nobody can look


async def answers(store: PostgresStore) -> bool:
    try:
        await store.stats()
    except StoreUnavailable:  # there may be another such connection in the pool
        return False
    return True
