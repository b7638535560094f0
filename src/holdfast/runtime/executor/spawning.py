"""Processes that end when they should: in a group that is killed as a whole, and with the worker that started them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLL: Final = 0.02
"""Seconds between looks at a process where the system offers no descriptor to wait on."""

BOOT: Final = str(Path(__file__).with_name("boot.py"))


class Spawned:
    """A running process, the leader of a group of its own. Started and used on the event loop."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """Its exit code, negative for a signal. By then nothing of its group runs any more."""
        self._descriptor: int | None = None
        self._look: asyncio.TimerHandle | None = None
        try:
            self._descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._poll()
        else:
            self._loop.add_reader(self._descriptor, self._reap)

    @property
    def stdout(self) -> IO[bytes]:
        """What it writes to standard output."""
        assert self._process.stdout is not None  # noqa: S101  `spawn` always makes a pipe
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        """What it writes to standard error."""
        assert self._process.stderr is not None  # noqa: S101  as above
        return self._process.stderr

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; nothing happens when it has ended."""
        if not self.ended.done():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the whole group."""
        self.signal(signal.SIGKILL)

    def _poll(self) -> None:
        if self._process.poll() is None:
            self._look = self._loop.call_later(POLL, self._poll)
        else:
            self._reap()

    def _reap(self) -> None:
        # Not waited for yet, so the number of the group cannot have been given to others: what it left behind is killed.
        self.kill()
        code = self._process.wait()
        self.let_go()
        if not self.ended.done():
            self.ended.set_result(code)

    def let_go(self) -> None:
        """Stop watching it."""
        if self._look is not None:
            self._look.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None


def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[Any] = subprocess.DEVNULL,
    keep: Sequence[int] = (),
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Spawned:
    """Start a program in a group and session of its own, its output in pipes. `keep` are descriptors it inherits.

    Raises `OSError` and `ValueError` as `subprocess` does.
    """
    process = subprocess.Popen(  # noqa: S603  no shell; what to run is what the user's code says
        list(argv),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=tuple(keep),
        cwd=cwd,
        env=None if env is None else dict(env),
        start_new_session=True,
    )
    return Spawned(process)


def boot(role: str, descriptor: int, *argv: str) -> list[str]:
    """Return the command of a process that begins with `boot.py`, and so ends with this one."""
    # A child must not find modules in the current folder before it knows the path; what becomes a program needs none at all.
    flags = ["-P"] if role == "child" else ["-I", "-S"]
    return [sys.executable, *flags, BOOT, role, str(descriptor), str(os.getpid()), *argv]


def describe(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"exited with code {code}"
    hint = " (perhaps the machine or its container ran out of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by signal {signal_name(-code)}{hint}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
