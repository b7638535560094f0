"""A real server with transfer routes on a free port of this machine, and encoders that hold jobs of it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from holdfast import Holdfast
from holdfast.server.asgi import create_server
from holdfast.server.running import listening, url_of
from holdfast.server.settings import ServerSettings
from holdfast.store.port import Role
from holdfast_media.storage import Attempt
from holdfast_media.storage.cache import Cache
from holdfast_media.storage.http import HttpStorage
from holdfast_media.storage.retrying import Patience
from holdfast_media.transfer import with_transfer
from tests.server.conftest import Asking
from tests.server.served import SECRET, Served

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from holdfast_media.storage import Storage

THREADS = 8
SHORT = Patience(seconds=10.0, first=0.02, longest=0.2)


class _Told(uvicorn.Server):
    """Tells when it is up."""

    def __init__(self, app: Any, up: threading.Event) -> None:
        super().__init__(uvicorn.Config(app, log_config=None, log_level="warning", lifespan="on", ws="none"))
        self._up = up
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_default_executor(_warm())  # threads that begin during a test would pass for leaked ones
        await super().startup(sockets)
        self._up.set()


@contextmanager
def serving(
    storage: Storage, scratch: Path, *, port: int = 0, url: str = "memory://", housekeeping: bool = False, **options: Any
) -> Iterator[Encoders]:
    """Serve a store and a storage until the block ends."""
    settings = ServerSettings(admin_secret=SECRET, key_rate=1e6, failure_rate=1e6)
    server = create_server(Holdfast(url), settings, housekeeping=housekeeping)
    up = threading.Event()
    running = _Told(with_transfer(server, storage, scratch, **options), up)

    def in_thread() -> None:
        try:
            asyncio.run(running.serve(sockets=[sock]))
        finally:
            up.set()

    with closing(listening("127.0.0.1", port)) as sock:
        thread = threading.Thread(target=in_thread, name="server-of-the-tests")
        thread.start()
        try:
            assert up.wait(10)
            assert running.loop is not None
            encoders = Encoders(Asking(Served(server, url_of(sock), running.loop)), storage)
            yield encoders
            encoders.close()
        finally:
            running.should_exit = True
            thread.join(15)


def _warm() -> ThreadPoolExecutor:
    """Return threads that have all begun."""
    pool = ThreadPoolExecutor(THREADS)
    together = threading.Barrier(THREADS)
    for one in [pool.submit(together.wait, 10) for _ in range(THREADS)]:
        one.result()
    return pool


class Encoders:
    """Remote encoders of one server: each holds a job."""

    def __init__(self, ask: Asking, behind: Storage) -> None:
        self.ask = ask
        self.behind = behind
        """The storage that the server has."""
        self.uploads = Path()
        """Where its uploads grow, where a test asks."""
        self.url = ask.served.url
        self._open: list[HttpStorage] = []
        self.key = ask.key(Role.WORKER, actions=("work", "get"))

    def close(self) -> None:
        self.ask.client.close()
        for storage in self._open:
            storage.close()

    def job(self, *, source: Any = "in", output: Any = "out", **fields: Any) -> dict[str, Any]:
        """Enqueue a job and claim it."""
        return self.ask.claimed(args={"source": source, "output": output}, **fields)

    def storage(self, job: dict[str, Any] | None = None, cache: Path | None = None, **options: Any) -> HttpStorage:
        """Return the storage as the holder of a job has it; of a new job, where none is given."""
        url, key = options.pop("url", self.url), options.pop("key", self.key)
        made = HttpStorage(url, key, cache=Cache(cache), **{"patience": SHORT, **options})
        self._open.append(made)
        return made.bind(attempt_of(job or self.job()))


def attempt_of(job: dict[str, Any]) -> Attempt:
    return Attempt(job["job_id"], job["attempt"], job["token"])


def shown(job: dict[str, Any], key: str, **headers: str) -> dict[str, str]:
    """Return the headers of a request that shows a lease."""
    lease = {"Holdfast-Job": job["job_id"], "Holdfast-Attempt": str(job["attempt"]), "Holdfast-Token": job["token"]}
    return {"Authorization": f"Bearer {key}", **lease, **headers}
