"""Reading a source in a process of its own, with limits: a hostile file may crash the reader, never the worker."""

from __future__ import annotations

import os
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.errors import (
    CODES,
    INPUT_DAMAGED,
    INPUT_EMPTY,
    INPUT_MISSING,
    INPUT_TOO_LARGE,
    INPUT_TRUNCATED,
    INPUT_UNREADABLE,
    PROBE_FAILED,
    MediaError,
)
from holdfast_media.ffmpeg.limits import reading_limit
from holdfast_media.ffmpeg.redact import redact
from holdfast_media.ffmpeg.supervise import Late, supervise
from holdfast_media.source.complaints import Complaints
from holdfast_media.source.facts import Facts
from holdfast_media.source.promise import promise_of

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY: Final = 3 << 30
"""Of address space: mapped libraries count, and a frame of 8K has 50 MB, or 100 with 10 bits."""
READER: Final = "the reader of the source"
"""Who wrote what is told of a failure."""
_MOST_OUTPUT: Final = 8 << 20
_READER: Final = Path(__file__).with_name("reader.py")


class Answer(msgspec.Struct, frozen=True):
    """The last line of the reader."""

    facts: Facts | None = None
    frames: int = 0
    code: str = ""
    message: str = ""


def probe(
    path: Path, *, timeout: float | None = None, memory: int = MEMORY, stop: Callable[[], str | None] | None = None
) -> Facts:
    """Read every packet of the file (only its first frames are decoded) and return its facts.

    Raises `MediaError` with an `INPUT_…` code for what cannot be used, whatever the file does to the reader: a crash ends as
    INPUT_UNREADABLE, too much memory as INPUT_TOO_LARGE. PROBE_FAILED when the reader could not work, or took longer than a
    file of this size may take: the machine may be busy, or the disk slow. `Stopped` when `stop()` gives a reason.
    """
    path = path.absolute()
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
            limit = reading_limit(os.fstat(file.fileno()).st_size) if timeout is None else timeout
        promise = promise_of(path)
    except OSError as error:
        raise MediaError(INPUT_MISSING, f"the source cannot be read: {error.strerror}.") from error
    if empty:
        raise MediaError(INPUT_EMPTY, "the source is empty: it has no bytes. Upload it again.")
    if not promise.kept:
        message = f"the file ends early: its header promises {promise.end} bytes, {promise.size} are there. Upload it again."
        raise MediaError(INPUT_TRUNCATED, message)
    complaints = Complaints()
    how = "open" if promise.open_ended else "closed"
    answer = ask("facts", path, how, timeout=limit, memory=memory, stop=stop, complaints=complaints)
    if answer.facts is None:
        raise MediaError(INPUT_UNREADABLE, "the source broke the reader, which gave no facts.")
    if complaints.first:
        message = f"part of the file is not what it must be, and was passed over: {complaints.first}. Upload it again."
        raise MediaError(INPUT_DAMAGED, message)
    return answer.facts


def ask(
    what: str,
    path: Path,
    *more: str,
    timeout: float,
    memory: int = MEMORY,
    stop: Callable[[], str | None] | None = None,
    on_line: Callable[[bytes], None] | None = None,
    complaints: Complaints | None = None,
) -> Answer:
    """Run the reader on the file and return its answer; raises as `probe` does."""
    rest = b""

    def take(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                answers.append(line)
            elif on_line is not None:
                on_line(line)
        if len(rest) > _MOST_OUTPUT:
            raise MediaError(INPUT_UNREADABLE, "the source gives more facts than any film has.")

    answers: deque[bytes] = deque(maxlen=1)
    complaints = complaints or Complaints()
    command = [sys.executable, "-P", str(_READER), what, str(path), *more]
    try:
        ended = supervise(command, on_output=take, on_errors=complaints.take, stop=stop, timeout=timeout, memory=memory)
    except Late:
        message = f"the source was not read within {timeout:.0f} seconds: a slow disk or a busy machine, or the source itself."
        raise MediaError(PROBE_FAILED, message) from None
    tail = redact(ended.tail, hidden=(path,))
    if complaints.no_memory:
        message = f"reading the source takes more than {memory / (1 << 30):.1f} GiB of memory. Make its picture smaller."
        raise MediaError(INPUT_TOO_LARGE, message, detail=tail, said_by=READER)
    return _understood(answers[0] if answers else b"", ended.returncode, tail)


def _understood(line: bytes, returncode: int, tail: str) -> Answer:
    """Return what the reader said, or raise what it found; a reader that broke says nothing."""
    try:
        answer = msgspec.json.decode(line, type=Answer)
    except msgspec.DecodeError:
        answer = Answer()
    if returncode == 0 and answer.code in CODES:
        raise MediaError(answer.code, answer.message, detail=tail, said_by=READER)
    if returncode == 0 and (answer.facts is not None or answer.frames):
        return answer
    if "ModuleNotFoundError" in tail or "ImportError" in tail:
        message = "the reader needs PyAV, which is missing. Install it: pip install 'holdfast[media]'."
        raise MediaError(PROBE_FAILED, message, detail=tail, said_by=READER)
    how = f"ended by signal {-returncode}" if returncode < 0 else f"failed with code {returncode}"
    raise MediaError(INPUT_UNREADABLE, f"the source broke the reader, which {how}.", detail=tail, said_by=READER)
