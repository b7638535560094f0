"""The first steps of every process that a worker starts. Run as a file, before anything of Holdfast can be imported.

    boot.py child   SOCKET PARENT            become the child of a `process` slot
    boot.py program REPORT PARENT ARGV …     become a program; a failure to do so is told to the descriptor REPORT
    boot.py worker  PARENT ARGV …            become a worker; asked to finish, not killed, when who watches over it ends

The first two are killed by the kernel when the worker ends. A new process sees to that itself: in a `preexec_fn` it would mean
to fork a worker full of threads and to copy its page tables.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # nothing is imported here that is not needed: `typing` alone would double the time
NOT_RUN = 127
STARTED_BY = "HOLDFAST_STARTED_BY"
"""In the environment of a worker whose system does not tell it that who watches over it has ended: the id of that process."""


def main() -> None:
    """Become what the arguments say."""
    if sys.argv[1] == "worker":
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who watches may have been told to ignore it, and it would be inherited
        if not _end_with(int(sys.argv[2]), signal.SIGHUP):
            os.environ[STARTED_BY] = sys.argv[2]  # it looks for itself
        os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606  our own program
    role, descriptor, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _end_with(parent, signal.SIGKILL)
    if role == "child":
        del sys.argv[1:]
        _child(descriptor)
    else:
        _program(descriptor, sys.argv[4:])


def _end_with(parent: int, number: signal.Signals) -> bool:
    """Have this process sent a signal when the thread that started it ends; `False`: this system has no such thing.

    Kept when it executes a program.
    It comes once for every thread of the parent, as each in turn inherits the child: a worker is asked by SIGHUP, which means
    the same however often it comes. A second SIGTERM would abort what it runs.
    """
    try:
        import ctypes  # noqa: PLC0415  not every Python has it

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    except (ImportError, OSError, AttributeError):
        return False  # no Linux: a child still notices that its socket is closed
    if os.getppid() != parent:
        os._exit(1)  # it ended meanwhile
    return True


def _child(descriptor: int) -> None:
    import json  # noqa: PLC0415  programs need none of this

    with open(descriptor, "rb", buffering=0, closefd=False) as line:
        sys.path[:] = json.loads(line.readline())
    from holdfast.runtime.executor.child import main as serve  # noqa: PLC0415  now that it can be found

    serve(descriptor)


def _program(report: int, argv: list[str]) -> None:
    os.set_inheritable(report, False)  # noqa: FBT003  its only form
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and the program would inherit that
    try:
        os.execvp(argv[0], argv)  # noqa: S606  no shell; what to run is what the user's code says
    except OSError as error:
        os.write(report, str(error.errno).encode())
        os._exit(NOT_RUN)


if __name__ == "__main__":
    main()
