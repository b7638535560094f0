"""Run a program, drain what it writes, and end it with its children: when told, when late, and however the caller leaves."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast_media.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POLL_SECONDS: Final = 0.2
TAIL_BYTES: Final = 8192
_READ_BYTES: Final = 1 << 16
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_LAUNCH: Final = Path(__file__).with_name("launch.py")


class Killed(Exception):
    """The program was killed from here, and why; `tail` is the end of its standard error until then."""

    tail = ""


class Late(Killed):
    """The program did not end within its time and was killed."""


class Hungry(Killed):
    """The program took more memory than it may and was killed."""


class Ended(NamedTuple):
    """A program that ended by itself; `tail` is the end of its standard error."""

    returncode: int
    tail: str


def supervise(
    command: Sequence[str],
    *,
    on_output: Callable[[bytes], None],
    on_tick: Callable[[float], None] | None = None,
    on_errors: Callable[[bytes], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    timeout: float | None = None,
    memory: int = 0,
    resident: int = 0,
    cpu: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run the command until it ends; raises `Stopped`, `Late`, `Hungry`, and whatever the callbacks raise.

    A callback that finds that the program must not go on raises a `Killed` of its own, to have the tail with it.

    One thread does it all, so none can be left behind. Both pipes are always drained: a program that cannot write stands
    still. `on_tick` is called with the monotonic time at least every 0.25 s. `environment` is all that the program has of it;
    `None`: what this process has. When this returns or raises, the program and every process it started in its group are gone.

    Of the two limits on memory, in bytes and 0 for none, `memory` is on what the program may reserve: the system keeps it, and
    the program fails. `resident` is on what it really uses, looked at as often as `on_tick` is called, on Linux: for a program
    with many threads, which reserve many times what they use.
    """
    launch = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), str(memory), str(cpu), *command]
    deadline = None if timeout is None else time.monotonic() + timeout
    tail = bytearray()

    def keep_tail(data: bytes) -> None:
        tail.extend(data)
        del tail[:-TAIL_BYTES]
        if on_errors is not None:
            on_errors(data)

    process = subprocess.Popen(  # noqa: S603  a list, never a shell
        launch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0, env=environment
    )
    try:
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for pipe, take in ((process.stdout, on_output), (process.stderr, keep_tail)):
                assert pipe is not None  # noqa: S101  both were asked for
                stack.enter_context(pipe)
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, take)
            _drain(selector, stop=stop, deadline=deadline, on_tick=on_tick, measure=lambda: _measure(process.pid, resident))
            _await(process, stop=stop, deadline=deadline)
    except Killed as killed:
        killed.tail = tail.decode(errors="replace")
        raise
    finally:
        _end(process)
    return Ended(process.returncode, tail.decode(errors="replace"))


def _drain(
    selector: selectors.BaseSelector,
    *,
    stop: Callable[[], str | None] | None,
    deadline: float | None,
    on_tick: Callable[[float], None] | None,
    measure: Callable[[], None],
) -> None:
    """Read both pipes until the program has closed them."""
    while selector.get_map():
        for key, _ in selector.select(POLL_SECONDS):
            if data := os.read(key.fd, _READ_BYTES):
                key.data(data)
            else:
                selector.unregister(key.fileobj)
        _look(stop, deadline)
        measure()
        if on_tick is not None:
            on_tick(time.monotonic())


def _await(process: subprocess.Popen[bytes], *, stop: Callable[[], str | None] | None, deadline: float | None) -> None:
    """Wait for a program that has closed its pipes: nearly always gone already."""
    while True:
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            _look(stop, deadline)
        else:
            return


def _look(stop: Callable[[], str | None] | None, deadline: float | None) -> None:
    if stop is not None and (reason := stop()) is not None:
        raise Stopped(reason)
    if deadline is not None and time.monotonic() > deadline:
        raise Late


def _measure(pid: int, most: int) -> None:
    """Raise `Hungry` when the process uses more memory than this; where there is no /proc, nobody can say."""
    if not most:
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        if pages * _PAGE > most:
            raise Hungry


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the group, whose number cannot have been given away before its leader was waited for."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
