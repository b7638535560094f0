"""A real server on a free port of this machine, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.server.asgi import create_server
from holdfast.server.keys import digest, new_key
from holdfast.server.running import Running, listening, url_of
from holdfast.server.settings import ServerSettings
from holdfast.store.port import Key, Role

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine, Iterator, Mapping, Sequence

    from holdfast import Holdfast
    from holdfast.server.alerts.target import Target
    from holdfast.server.asgi import Server
    from holdfast.store.port import Store

SECRET = "a-secret-of-the-tests"


class Served:
    """A running server: where it is, and its own event loop."""

    def __init__(self, server: Server, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.url = url
        self.api = f"{url}/api/v1"
        self.loop = loop

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something on the server's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)


class Told(Running):
    """Tells when it is up."""

    def __init__(self, server: Server, up: threading.Event) -> None:
        super().__init__(server, signals=False)
        self._up = up
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._up.set()


@contextmanager
def serving(
    url_or_app: str | Holdfast,
    *,
    port: int = 0,
    housekeeping: bool = True,
    alerts: Sequence[Target] = (),
    worker: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """Serve a store until the block ends."""
    own = ServerSettings(**{"admin_secret": SECRET, **settings})
    server = create_server(url_or_app, own, housekeeping=housekeeping, alerts=alerts, worker=worker)
    up = threading.Event()
    running = Told(server, up)
    failed: list[BaseException] = []

    def in_thread() -> None:
        try:
            asyncio.run(running.serve(sockets=[sock]))
        except BaseException as error:  # noqa: BLE001  told to the test
            failed.append(error)
        finally:
            up.set()

    with closing(listening(own.host, port)) as sock:
        thread = threading.Thread(target=in_thread, name="server-of-the-tests")
        thread.start()
        try:
            assert up.wait(10)
            if not failed:
                assert running.loop is not None
                yield Served(server, url_of(sock), running.loop)
        finally:
            if running.loop is not None and not failed:
                running.loop.call_soon_threadsafe(running.stop)
            thread.join(15)
    if failed:
        raise failed[0]


def bearer(key: str) -> dict[str, str]:
    """Return the header that shows a key."""
    return {"Authorization": f"Bearer {key}"}


async def made_key(store: Store, role: Role, name: str = "", **fields: Any) -> str:
    """Keep a fresh key in a store, and return it."""
    text, key_id = new_key()
    await store.add_key(Key(id=key_id, name=name or role.value, role=role, digest=digest(text), **fields))
    return text
