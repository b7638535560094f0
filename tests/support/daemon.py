"""A server program with a directory of its own, started by this process and gone with it: what every server we start shares."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import signal

_STOP_SECONDS = 30
_LOG_LINES = 20

# Outlives this process on purpose: when the pipe to it closes, however this process ended, the server whose id came last
# through the pipe is ended and its directory removed. PR_SET_PDEATHSIG would not do: it fires when the starting *thread* ends.
_WATCHDOG = """
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ] && kill -s "$2" "$pid" 2>/dev/null; then
    tries=0
    while kill -0 "$pid" 2>/dev/null && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
fi
rm -rf "$1"
"""


class StartError(Exception):
    """A server did not start; the message ends with the tail of its log."""


class Daemon(ABC):
    """A server that listens on a free port of 127.0.0.1, keeps its data in a temporary directory, and is gone afterwards.

    Gone also when this process is killed. `end_with` is the signal that ends it at once: the data is thrown away. `identity`
    says as whom it runs, in the words of `subprocess.Popen`.
    """

    def __init__(self, label: str, *, end_with: signal.Signals, identity: dict[str, Any]) -> None:
        self._label = label
        self._end_with = end_with
        self._identity = identity
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make the directory and start the server; returns when it accepts connections."""
        if self._home is not None:
            raise RuntimeError("this server was started already")
        self._home = Path(tempfile.mkdtemp(prefix=f"holdfast-{self._label}-"))
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            if self._identity:
                os.chown(self._home, self._identity["user"], self._identity["group"])
            watchdog = ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(self._home), self._end_with.name.removeprefix("SIG")]
            self._watchdog = self._spawn(watchdog, stdin=subprocess.PIPE)
            self._begin()
        except BaseException:
            self.stop()
            raise

    @abstractmethod
    def _begin(self) -> None:
        """Fill the directory and start the program by `_start_process`; return when it accepts connections."""

    def stop(self) -> None:
        """End the server and remove its data. May be repeated."""
        if self._home is None or os.getpid() != self._owner:  # a forked child must not stop its parent's server
            return
        atexit.unregister(self.stop)
        self._end_process(self._end_with)
        if self._watchdog is not None:
            self._watchdog.communicate()  # closes the pipe; the watchdog removes the directory
            self._watchdog = None
        shutil.rmtree(self._home, ignore_errors=True)
        self._home = None

    @property
    def pid(self) -> int:
        """The process id of the server."""
        if self._process is None:
            raise RuntimeError("this server is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has written to its log so far."""
        return self._log_path.read_text(errors="replace") if self._home and self._log_path.exists() else ""

    def _start_process(self, command: list[str]) -> subprocess.Popen[bytes]:
        self._process = self._spawn(command)
        self._tell_watchdog(str(self._process.pid))
        return self._process

    def _end_process(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._tell_watchdog("")  # the number may be somebody else's by the time this process ends

    def _spawn(self, command: list[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a program away from this terminal's Ctrl-C, writing to the log."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=environment | {"LC_ALL": "C"},
                start_new_session=True,
                **self._identity,
            )

    def _tell_watchdog(self, line: str) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # somebody ended the watchdog: the server is still ours to end
                self._watchdog.stdin.write(f"{line}\n".encode())
                self._watchdog.stdin.flush()

    def _end_of_log(self) -> str:
        return "\n".join(self.log.splitlines()[-_LOG_LINES:])

    @property
    def _log_path(self) -> Path:
        assert self._home is not None
        return self._home / "server.log"


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
