"""The commands of the files, started as they are written: they come up, answer their probes, do jobs, and stop in time.

What differs from one machine to another comes from the environment, and is put in here: the store, addresses, secrets.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from holdfast import Holdfast
from holdfast.connect import connect
from holdfast.store.port import Role
from tests.deploy.files import DOCKER, Command, compose, kind, of_compose, of_kubernetes, of_systemd, pods
from tests.server.served import made_key
from tests.support.daemon import free_port
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServers

PATIENCE = 60.0
SECRET = "a-secret-of-the-tests"
WORKER_UNIT, SERVER_UNIT, MANAGER_UNIT = "holdfast-worker@.service", "holdfast-server.service", "holdfast-manager.service"


@pytest.fixture
def url(postgres_servers: PostgresServers) -> Iterator[str]:
    server = postgres_servers[MAJORS[-1]]
    url = server.create_database()
    yield url
    server.drop_database(url)


class World:
    """Starts commands on one store and on ports of their own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.port, self.health = free_port(), free_port()
        self._folder = folder
        self._given = {
            "HOLDFAST_URL": url,
            "HOLDFAST_HOST": "127.0.0.1",
            "HOLDFAST_PORT": str(self.port),
            "HOLDFAST_HEALTH": f"127.0.0.1:{self.health}",
            "HOLDFAST_ADMIN_SECRET": SECRET,
        }

    def environment(self, command: Command) -> dict[str, str]:
        """Return what the file sets, with the values of this world, and nothing that it does not set."""
        own = {name: self._given.get(name, value) for name, value in command.environment.items()}
        assert all(own.values()), f"a value is filled in from elsewhere, and not here: {own}"
        rest = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return rest | own

    def run(self, command: Command) -> None:
        """Run a command that ends."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *command.arguments],
            cwd=DOCKER,
            env=self.environment(command),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    @contextmanager
    def running(self, command: Command) -> Iterator[None]:
        """Have a command run; it must end well when it is asked to."""
        log = self._folder / f"{command.arguments[0]}.log"
        line = [sys.executable, "-m", "holdfast", *command.arguments]
        with (
            log.open("wb") as output,
            subprocess.Popen(line, cwd=DOCKER, env=self.environment(command), stdout=output, stderr=output) as process,
        ):
            try:
                yield
                assert process.poll() is None, f"it ended by itself:\n{log.read_text()}"
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) in (0, -signal.SIGTERM), log.read_text()
            except BaseException:
                print(log.read_text())  # noqa: T201  pytest shows it
                raise
            finally:
                process.kill()


def answer(url: str, key: str = "") -> tuple[int, Any]:
    request = Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urlopen(request, timeout=PATIENCE) as told:
            return told.status, json.loads(told.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())
    except URLError:
        return 0, None


def until_good(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while (told := answer(url))[0] != 200:
        assert time.monotonic() < deadline, f"{url} answers {told}"
        time.sleep(0.05)


async def greeted(url: str) -> str:
    """Return what a worker makes of a job."""
    app = Holdfast(url)

    @app.task(name="jobs.greet")
    async def greet(name: str, seconds: float = 0.0) -> str:
        raise NotImplementedError

    async with app:
        return await (await greet.enqueue("Ada")).result(timeout=PATIENCE)


async def viewer(url: str) -> str:
    """Return a key that may look."""
    async with Holdfast(url) as app:
        return await made_key(app.client().store, Role.VIEWER, "keda")


def test_the_commands_of_the_compose_file_come_up_and_their_checks_are_content(url: str, tmp_path: Path) -> None:
    world = World(url, tmp_path)
    world.run(of_compose("migrate"))
    with ExitStack() as stack:
        for service in ("server", "worker"):
            stack.enter_context(world.running(of_compose(service)))
        assert asyncio.run(greeted(url)) == "Hello, Ada"
        until_good(f"http://127.0.0.1:{world.port}/health/ready")
        for service in ("server", "worker"):
            (_, _, *rest) = compose()["services"][service]["healthcheck"]["test"]
            for written, here in ((7878, world.port), (8080, world.health)):
                rest = [word.replace(f"127.0.0.1:{written}/", f"127.0.0.1:{here}/") for word in rest]
            checked = subprocess.run([sys.executable, *rest], capture_output=True, text=True, check=False)
            assert checked.returncode == 0, checked.stderr


def test_the_commands_of_the_manifests_come_up_answer_their_probes_and_tell_keda_what_it_asks(url: str, tmp_path: Path) -> None:
    world = World(url, tmp_path)
    world.run(of_kubernetes("holdfast-migrate"))
    ports = {"http": world.port, "health": world.health}
    with ExitStack() as stack:
        for pod in ("holdfast-server", "holdfast-worker"):
            stack.enter_context(world.running(of_kubernetes(pod)))
        for pod in ("holdfast-server", "holdfast-worker"):
            (container,) = pods()[pod]["containers"]
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container[name]["httpGet"]
                until_good(f"http://127.0.0.1:{ports[probe['port']]}{probe['path']}")
        assert asyncio.run(greeted(url)) == "Hello, Ada"

        (trigger,) = kind("ScaledObject")["spec"]["triggers"]
        asked = urlsplit(trigger["metadata"]["url"])
        status, told = answer(f"http://127.0.0.1:{world.port}{asked.path}?{asked.query}", asyncio.run(viewer(url)))
        assert status == 200
        assert (told[trigger["metadata"]["valueLocation"]], told["workers"], told["slots"]) == (0, 1, 20)


def test_the_commands_of_the_units_come_up(url: str, tmp_path: Path) -> None:
    world = World(url, tmp_path)
    with ExitStack() as stack:
        for unit in (SERVER_UNIT, WORKER_UNIT):
            stack.enter_context(world.running(of_systemd(unit)))
        until_good(f"http://127.0.0.1:{world.port}/health/ready")
        assert asyncio.run(greeted(url)) == "Hello, Ada"
        key = asyncio.run(viewer(url))
        assert answer(f"http://127.0.0.1:{world.port}/api/v1/scale", key)[1]["workers"] == 1


def test_the_command_of_the_managers_unit_comes_up_and_ends_with_its_workers(url: str, tmp_path: Path) -> None:
    with World(url, tmp_path).running(of_systemd(MANAGER_UNIT)):
        assert asyncio.run(greeted(url)) == "Hello, Ada"

    async def left() -> list[str]:
        store = connect(url)
        await store.open()
        try:
            return [view.worker.name for view in await store.workers() if view.offline_at is None]
        finally:
            await store.close()

    assert asyncio.run(left()) == []
