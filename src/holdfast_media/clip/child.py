"""Another program, line by line: a few words around `supervise`, which ends it when it is due and with its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast_media.ffmpeg.supervise import Ended, supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LONGEST: Final = 1024 * 1024
"""Bytes of a line; of a longer one the end is kept."""


def run(
    command: Sequence[str],
    *,
    timeout: float,
    stop: Callable[[], str | None],
    on_line: Callable[[str], None] = lambda _: None,
    on_tick: Callable[[float], None] | None = None,
    memory: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program until it ends; `on_line` gets the lines of its standard output, `on_tick` the time, again and again.

    Raises `Late`, `Stopped`, and what these two raise.

    However this returns or raises, the program and all it started are gone; so they are when this process is killed, on Linux.
    """
    rest = b""

    def take(data: bytes) -> None:
        nonlocal rest
        # a carriage return ends a line too: progress is written that way
        *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
        rest = rest[-LONGEST:]
        for line in filter(None, map(bytes.strip, lines)):
            on_line(line.decode(errors="replace"))

    ended = supervise(
        command, on_output=take, on_tick=on_tick, stop=stop, timeout=timeout, memory=memory, environment=environment
    )
    if rest.strip():
        on_line(rest.decode(errors="replace"))
    return ended
