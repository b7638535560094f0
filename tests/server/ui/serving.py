"""The dashboard over a real store, served for tests: the routes, a simple door, and a server in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.server import keys
from holdfast.server.context import Context
from holdfast.server.principal import Principal
from holdfast.server.settings import ServerSettings
from holdfast.server.ui import Sessions, ui_routes
from holdfast.server.ui.live import Live
from holdfast.store.port import Key, Role
from holdfast.system import SystemEnvironment
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import HTTPConnection

    from holdfast.connect import Adapters
    from holdfast.store.port import Store

SECRET = "the secret of the admin, long enough"


@dataclass
class SimpleDoor:
    """Lets everybody in where the settings say so, else those who have a session."""

    settings: ServerSettings
    sessions: Sessions

    async def principal(self, request: HTTPConnection) -> Principal | None:
        return Principal("anyone", Role.ADMIN) if self.settings.open else await self.sessions.principal(request)


@dataclass
class Dashboard:
    """An application, and the parts that tests reach for."""

    app: Starlette
    context: Context
    sessions: Sessions
    live: Live

    @property
    def store(self) -> Store:
        return self.context.store

    async def key(self, name: str, role: Role, **options: Any) -> str:
        """Make a key; returns it whole."""
        text, key_id = keys.new_key()
        await self.store.add_key(Key(id=key_id, name=name, role=role, digest=keys.digest(text), **options), by="test")
        return text


def make(adapters: Adapters, settings: ServerSettings | None = None) -> Dashboard:
    """Return the dashboard of a store; it opens the store when it starts, and closes it when it ends."""
    settings = settings or ServerSettings(admin_secret=SECRET)
    environment, store, notifier = SystemEnvironment(), adapters.store(), adapters.notifier()
    sessions = Sessions(store, environment, settings)
    door = SimpleDoor(settings, sessions)
    context = Context(store=store, notifier=notifier, environment=environment, settings=settings, door=door, version="0.1.0")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await store.open()
        try:
            yield
        finally:
            await notifier.close()
            await store.close()

    live = Live(store, notifier, environment)
    routes = ui_routes(context, sessions, live)
    if settings.prefix:
        routes = [Mount(settings.prefix, routes=routes)]
    return Dashboard(Starlette(routes=routes, lifespan=lifespan), context, sessions, live)


@dataclass
class Served:
    """A dashboard that is served, in a thread of its own."""

    dashboard: Dashboard
    url: str
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def run(self, coroutine: Any, timeout: float = 30.0) -> Any:
        """Run something on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)


@contextmanager
def served(adapters: Adapters, settings: ServerSettings | None = None) -> Iterator[Served]:
    """Serve the dashboard of a store on a free port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    dashboard = make(adapters, settings)
    config = uvicorn.Config(dashboard.app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1, loop="asyncio")
    server = uvicorn.Server(config)
    serving = Served(dashboard, f"http://127.0.0.1:{port}{dashboard.context.settings.prefix}")
    started = threading.Event()

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([listener]))
            await until(lambda: asyncio.sleep(0, server.started))
            started.set()

    async def end() -> None:
        """Have connections close, and sse-starlette's watch for the end of the server end."""
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)

    def work() -> None:
        asyncio.set_event_loop(serving.loop)
        serving.loop.run_until_complete(serve())
        serving.loop.run_until_complete(end())
        serving.loop.run_until_complete(serving.loop.shutdown_asyncgens())
        serving.loop.close()

    thread = threading.Thread(target=work, name="dashboard")
    thread.start()
    try:
        assert started.wait(20), "the server did not start"
        yield serving
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
