"""External programs as tasks: what a function with `executor="command"` returns, and what its job gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence  # noqa: TC003  dataclass fields, kept readable for introspection
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run instead of the function that returned it.

    `argv` is run without a shell. Its output becomes the job's log, line by line. An exit code outside `accept` fails the
    attempt with the code `EXIT_<n>`, or fatally when it is in `fatal`. `progress` turns a line of output into a percentage.
    """

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the worker's environment."""
    stdin: str | None = None
    accept: frozenset[int] = frozenset({0})
    fatal: frozenset[int] = frozenset()
    progress: Callable[[str], float | None] | None = None
    stop_grace: float = 10.0
    """Seconds between asking it to stop (SIGTERM) and killing it."""


class CommandResult(msgspec.Struct, frozen=True):
    """How a program ended: its exit code and the end of what it wrote (at most 64 KB each)."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float
