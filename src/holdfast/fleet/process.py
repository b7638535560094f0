"""A worker as a process of the operating system, with a line to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.runtime.executor import boot
from holdfast.runtime.orders import ENDS, MOST, REST, THROUGH, WAKE

if TYPE_CHECKING:
    from collections.abc import Sequence


class WorkerProcess:
    """Started when it is made, in a group of its own: a Ctrl-C would reach it beside what is passed on, and two abort.

    When this process is killed, the kernel asks the worker to stop. It asks when the thread ends that started it: so this must
    be made in the main thread.
    """

    def __init__(self, program: Sequence[str]) -> None:
        command = [sys.executable, boot.__file__, "worker", str(os.getpid()), *program]
        self._line, theirs = socket.socketpair()
        self._line.settimeout(0)
        self.ends = False
        """Whether it has said that it ends, whoever wants it to. As of the last look whether it has ended."""
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                command,
                process_group=0,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {THROUGH: str(theirs.fileno())},
            )
        except BaseException:
            self._line.close()
            raise
        finally:
            theirs.close()

    @property
    def id(self) -> int:
        """Which process it is."""
        return self._process.pid

    def ended(self) -> int | None:
        """Return the code that it ended with, once it has; then nothing is left of it."""
        code = self._process.poll()
        with suppress(OSError):  # it has said nothing
            self.ends = ENDS in self._line.recv(MOST) or self.ends
        if code is not None:  # looked at before: all that it said has been heard
            self._line.close()
        return code

    def rest(self) -> None:
        """Have it claim nothing more, and end once nothing runs, unless it is woken before."""
        self._say(REST)

    def wake(self) -> None:
        """Have it claim again; in vain where it ends already."""
        self._say(WAKE)

    def ask_to_stop(self) -> None:
        """Have it finish what it runs, and end; asked again, it gives back what it runs."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now, and wait until it has."""
        self._process.kill()
        self._process.wait()
        self._line.close()

    def _say(self, order: bytes) -> None:
        with suppress(OSError):  # it has ended, which is noticed elsewhere
            self._line.send(order)
