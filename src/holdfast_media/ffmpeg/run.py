"""Run ffmpeg: watched through its progress pipe, ended when told, stalled or late, and never outliving its worker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.errors import (
    DISK_FULL,
    ENCODE_FAILED,
    ENCODE_KILLED,
    ENCODE_STALLED,
    ENCODE_TIMEOUT,
    FFMPEG_UNSUITABLE,
    INPUT_TOO_LARGE,
    MediaError,
)
from holdfast_media.ffmpeg.find import find_ffmpeg
from holdfast_media.ffmpeg.progress import ProgressReader
from holdfast_media.ffmpeg.redact import redact
from holdfast_media.ffmpeg.supervise import Hungry, Killed, supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from holdfast_media.ffmpeg.progress import Progress

_NO_SPACE: Final = ("No space left on device", "Disk quota exceeded", "File too large")
_LACKING: Final = ("Unknown encoder", "No such filter", "Unrecognized option", "Unknown decoder")
_LINES_SHOWN: Final = 40


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """An ffmpeg that ended well."""

    seconds: float
    """Of wall time."""
    frames: int
    """As ffmpeg counted what it wrote."""
    tail: str
    """The end of what it said on standard error, redacted."""


def run(
    arguments: Sequence[str],
    *,
    ffmpeg: Path | None = None,
    duration: float | None = None,
    offset: float = 0.0,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    timeout: float | None = None,
    stall_after: float | None = 60.0,
    lead: float = 0.0,
    memory: int = 0,
    scratch: Path | None = None,
    hidden: Iterable[str | Path] = (),
) -> RunResult:
    """Run ffmpeg with these arguments (the program and what watching needs are added) and return when it has ended.

    `duration` is the length of what it writes and `offset` the time that starts at: progress is counted from them. Raises
    `Stopped` when `stop()` gives a reason (asked every 0.25 s), `MediaError` with ENCODE_TIMEOUT after `timeout` seconds,
    ENCODE_STALLED when nothing moved for `stall_after` seconds, DISK_FULL, FFMPEG_UNSUITABLE, ENCODE_KILLED or ENCODE_FAILED,
    the end of standard error in `detail`, redacted (see `redact` for `scratch` and `hidden`). `lead` is how many seconds more
    may pass before the first frame is written, for one that has to read a long way before it writes. `memory` is how many
    bytes of it ffmpeg may use (0: any number): beyond that it is killed, INPUT_TOO_LARGE. However it ends, the process and its
    children are gone: on Linux also when this process is killed.
    """
    program = ffmpeg or find_ffmpeg()
    begun = time.monotonic()
    reader = ProgressReader(duration, offset=offset, begun=begun)
    moved = (begun, reader.mark)

    def take(data: bytes) -> None:
        for progress in reader.feed(data, time.monotonic()):
            if on_progress is not None:
                on_progress(progress)

    def tick(now: float) -> None:
        nonlocal moved
        if reader.mark != moved[1]:
            moved = (now, reader.mark)
        elif stall_after is not None and now - moved[0] > (quiet := stall_after + (lead if moved[0] == begun else 0.0)):
            raise _Stalled(quiet)

    command = [str(program), "-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+warning"]
    command += ["-progress", "pipe:1", "-stats_period", "0.25", *arguments]
    try:
        ended = supervise(command, on_output=take, on_tick=tick, stop=stop, timeout=timeout, resident=memory)
    except Killed as killed:
        tail = _shown(killed.tail, scratch=scratch, hidden=(*hidden, program))
        raise _why(killed, tail, timeout=timeout, memory=memory) from None
    tail = _shown(ended.tail, scratch=scratch, hidden=(*hidden, program))
    # ffmpeg 5.1 ends with 0 when the disk is full, and only says so
    if ended.returncode != 0 or any(words in tail for words in _NO_SPACE):
        raise _failure(ended.returncode, tail)
    return RunResult(seconds=time.monotonic() - begun, frames=reader.frames, tail=tail)


class _Stalled(Killed):
    """It has moved nothing for so many seconds."""

    def __init__(self, quiet: float) -> None:
        super().__init__()
        self.quiet = quiet


def _why(killed: Killed, tail: str, *, timeout: float | None, memory: int) -> MediaError:
    """Return the error for an ffmpeg that was killed from here."""
    if isinstance(killed, _Stalled):
        return MediaError(ENCODE_STALLED, f"ffmpeg wrote nothing for {killed.quiet:g} seconds and was killed.", detail=tail)
    if isinstance(killed, Hungry):
        used = f"ffmpeg used more than {memory / (1 << 30):.1f} GiB of memory, far more than such a picture needs"
        advice = "The source may be made to do that; if you trust it, make fewer qualities at once (--no-together)."
        return MediaError(INPUT_TOO_LARGE, f"{used}, and was killed. {advice}", detail=tail)
    return MediaError(ENCODE_TIMEOUT, f"ffmpeg was not done within {timeout:g} seconds and was killed.", detail=tail)


def _shown(tail: str, *, scratch: Path | None, hidden: Iterable[str | Path]) -> str:
    return redact("\n".join(tail.splitlines()[-_LINES_SHOWN:]), scratch=scratch, hidden=hidden)


def _failure(returncode: int, tail: str) -> MediaError:
    """Return the error for an ffmpeg that ended badly."""
    if any(words in tail for words in _NO_SPACE):
        return MediaError(
            DISK_FULL, "no space left where ffmpeg writes. Make room, or give another scratch folder.", detail=tail
        )
    if returncode < 0:
        return MediaError(ENCODE_KILLED, f"ffmpeg was ended by signal {-returncode}.", detail=tail)
    if any(words in tail for words in _LACKING):
        return MediaError(
            FFMPEG_UNSUITABLE, "this ffmpeg lacks something that is needed. Use a complete build, 5.1 or newer.", detail=tail
        )
    said = next(
        (line for line in reversed(tail.splitlines()) if line.startswith(("[error]", "[fatal]")) or "[error]" in line), ""
    )
    return MediaError(ENCODE_FAILED, f"ffmpeg ended with code {returncode}. {said}".strip(), detail=tail)
