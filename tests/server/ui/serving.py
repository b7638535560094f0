"""The server with its dashboard, in a thread of its own, as tests watch it."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.server import keys
from holdfast.server.asgi import create_server
from holdfast.server.running import Running
from holdfast.server.settings import ServerSettings
from holdfast.store.port import Key
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from holdfast.server.asgi import Server
    from holdfast.store.port import Role, Store

SECRET = "the secret of the admin, long enough"


def make(url: str, settings: ServerSettings | None = None) -> Server:
    """Return the server of a store; workers beside it keep the house."""
    return create_server(url, settings or ServerSettings(admin_secret=SECRET), housekeeping=False)


async def new_key(store: Store, name: str, role: Role, **options: Any) -> str:
    """Make a key; returns it whole."""
    text, key_id = keys.new_key()
    await store.add_key(Key(id=key_id, name=name, role=role, digest=keys.digest(text), **options), by="test")
    return text


@dataclass
class Served:
    """A server that runs, in a thread of its own."""

    server: Server
    url: str
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @property
    def store(self) -> Store:
        return self.server.context.store

    def run(self, coroutine: Any, timeout: float = 30.0) -> Any:
        """Run something on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)


def served(url: str, settings: ServerSettings | None = None) -> AbstractContextManager[Served]:
    """Serve a store on a free port."""
    return serving(make(url, settings))


@contextmanager
def serving(server: Server) -> Iterator[Served]:
    """Serve on a free port."""
    listener = socket.create_server(("127.0.0.1", 0))
    running = Running(server, signals=False)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}{server.context.settings.prefix}"
    one = Served(server, address)
    started = threading.Event()

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(running.serve([listener]))
            await until(lambda: asyncio.sleep(0, running.started))
            started.set()

    async def end() -> None:
        """Have connections close, and sse-starlette's watch for the end of the server end."""
        for connection in list(running.server_state.connections):
            connection.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)

    def work() -> None:
        asyncio.set_event_loop(one.loop)
        one.loop.run_until_complete(serve())
        one.loop.run_until_complete(end())
        one.loop.run_until_complete(one.loop.shutdown_asyncgens())
        one.loop.run_until_complete(one.loop.shutdown_default_executor())
        one.loop.close()

    thread = threading.Thread(target=work, name="dashboard")
    thread.start()
    try:
        assert started.wait(20), "the server did not start"
        yield one
    finally:
        one.loop.call_soon_threadsafe(running.stop)
        thread.join(20)
        listener.close()
