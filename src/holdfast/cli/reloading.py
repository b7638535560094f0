"""`holdfast worker --reload`: a parent that starts the worker anew whenever a Python file below the current folder changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.embedded import embedding
from holdfast.cli.output import OK, note
from holdfast.runtime.executor import boot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

PATIENCE = 5.0
"""Seconds that a worker gets beyond its own time for running jobs before it is killed."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_reloading(command: Sequence[str], *, shutdown_timeout: float) -> int:
    """Run `command` again after every change, until a signal ends it. Each run is asked to stop, and finishes what it does."""
    import watchfiles  # noqa: PLC0415  only here

    stop = threading.Event()
    child = _Child(command)

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        child.ask()  # each time: the second aborts what runs

    before = {number: signal.signal(number, end) for number in ENDING}
    child.start()
    try:
        changes = watchfiles.watch(
            Path.cwd(), watch_filter=watchfiles.PythonFilter(), stop_event=stop, yield_on_timeout=True, rust_timeout=1000
        )
        ended = False
        for change in changes:
            if not change:
                if not ended and child.code is not None:
                    note(f"the worker ended with code {child.code}; it is started again when a file changes")
                    ended = True
                continue
            note(f"changed: {', '.join(sorted(Path(file).name for _, file in change))}: starting the worker anew")
            child.stop(shutdown_timeout + PATIENCE)
            if stop.is_set():
                break
            child.start()
            ended = False
    finally:
        child.stop(shutdown_timeout + PATIENCE)
        for number, handler in before.items():
            signal.signal(number, handler)
    return OK


class _Child:
    """The worker that runs now."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False

    @property
    def code(self) -> int | None:
        """What it ended with."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it in a group of its own: a terminal's Ctrl-C would reach it beside what is passed on, and two abort.

        When this process is killed, the kernel asks it to stop: nobody else would.
        """
        self._asked = False
        command = [sys.executable, boot.__file__, "worker", str(os.getpid()), *self._command]
        self._process = subprocess.Popen(command, process_group=0)  # noqa: S603  our own program

    def ask(self) -> None:
        """Ask it to stop."""
        self._asked = True
        if self._process is not None:
            self._process.terminate()

    def stop(self, patience: float) -> None:
        """Ask it to stop, unless that was done, and wait; kill it when that takes too long."""
        if self._process is None:
            return
        if not self._asked:
            self.ask()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            note("the worker did not stop in time and is killed; its jobs are taken over when their leases lapse")
            self._process.kill()
            self._process.wait()


def own_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs the same worker without watching."""
    around = embedding.get()
    program = (sys.executable, "-m", "holdfast") if around is None else around.command
    return [*program, *(word for word in arguments if word != "--reload")]
