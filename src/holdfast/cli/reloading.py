"""`holdfast worker --reload`: a parent that starts the worker anew whenever a Python file below the current folder changes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.output import OK, note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

PATIENCE = 5.0
"""Seconds that a worker gets beyond its own time for running jobs before it is killed."""


def run_reloading(command: Sequence[str], *, shutdown_timeout: float) -> int:
    """Run `command` again after every change, until a signal ends it. Each run is asked to stop, and finishes what it does."""
    import watchfiles  # noqa: PLC0415  only here

    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = signal.signal(signal.SIGTERM, end)
    child = _start(command)
    try:
        changes = watchfiles.watch(
            Path.cwd(), watch_filter=watchfiles.PythonFilter(), stop_event=stop, yield_on_timeout=True, rust_timeout=1000
        )
        ended = False
        for change in changes:
            if not change:
                if not ended and child.poll() is not None:
                    note(f"the worker ended with code {child.returncode}; it is started again when a file changes")
                    ended = True
                continue
            note(f"changed: {', '.join(sorted(Path(file).name for _, file in change))}: starting the worker anew")
            _stop(child, shutdown_timeout)
            child, ended = _start(command), False
    except KeyboardInterrupt:
        pass  # a terminal sends it to the worker too
    finally:
        _stop(child, shutdown_timeout)
        signal.signal(signal.SIGTERM, before)
    return OK


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)  # noqa: S603  our own program with the arguments of this one


def _stop(child: subprocess.Popen[bytes], shutdown_timeout: float) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(shutdown_timeout + PATIENCE)
    except subprocess.TimeoutExpired:
        note("the worker did not stop in time and is killed; its jobs are taken over when their leases lapse")
        child.kill()
        child.wait()


def own_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs the same worker without watching."""
    return [sys.executable, "-m", "holdfast", *(word for word in arguments if word != "--reload")]
