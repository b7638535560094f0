"""Becomes the program it is given, after taking on limits: `python launch.py PARENT MEMORY CPU_SECONDS PROGRAM ARGS…`.

A program of its own because the parent has threads: code between fork and exec of a process with threads may dead-lock, and
this asks only the standard library. It is run by path, never imported.
"""

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)
_NOT_FOUND = 127
_FIRST = 500  # of -1000 to 1000, in parts of all memory


def main(parent: int, memory: int, cpu: int, command: list[str]) -> None:
    """End with the parent from here on, keep to the limits (0: none), and become the command."""
    if sys.platform == "linux":
        # The kernel sends it when the *thread* that started this process ends: the one that waits in `supervise`.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that wanted this has ended")
    _go_first()
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if cpu:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        os.execv(command[0], command)  # noqa: S606  no shell is the point
    except OSError as error:
        sys.stderr.write(f"{error.strerror}\n")
        sys.exit(_NOT_FOUND)


def _go_first() -> None:
    """Have a kernel that is short of memory take this process, which can be started anew, and not the worker."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123  pathlib would take longer to import than all of this
            value = max(int(file.read()), _FIRST)
            file.seek(0)
            file.write(str(value))
    except (OSError, ValueError):
        pass  # another system, or one that does not let us


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
