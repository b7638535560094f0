"""Reading a source in a process of its own, with limits: a hostile file may crash the reader, never the worker."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.errors import CODES, INPUT_EMPTY, INPUT_MISSING, INPUT_UNREADABLE, PROBE_FAILED, MediaError
from holdfast_media.ffmpeg.redact import redact
from holdfast_media.ffmpeg.supervise import Late, supervise
from holdfast_media.source.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT: Final = 300.0
MEMORY: Final = 3 << 30
"""Of address space; an 8K picture takes 400 MB, and mapped libraries count."""
_MOST_OUTPUT: Final = 8 << 20
_READER: Final = Path(__file__).with_name("reader.py")


class Answer(msgspec.Struct, frozen=True):
    """The last line of the reader."""

    facts: Facts | None = None
    frames: int = 0
    code: str = ""
    message: str = ""


def probe(path: Path, *, timeout: float = TIMEOUT, memory: int = MEMORY, stop: Callable[[], str | None] | None = None) -> Facts:
    """Read every packet of the file (only its first frames are decoded) and return its facts.

    Raises `MediaError` with an `INPUT_…` code for what cannot be used, whatever the file does to the reader: a crash, too much
    memory or time end as INPUT_UNREADABLE. PROBE_FAILED when the reader could not work; `Stopped` when `stop()` gives a reason.
    """
    path = path.absolute()
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise MediaError(INPUT_MISSING, f"the source cannot be read: {error.strerror}.") from error
    if empty:
        raise MediaError(INPUT_EMPTY, "the source is empty: it has no bytes. Upload it again.")
    answer = ask("facts", path, timeout=timeout, memory=memory, stop=stop)
    if answer.facts is None:
        raise MediaError(INPUT_UNREADABLE, "the source broke the reader, which gave no facts.")
    return answer.facts


def ask(
    what: str,
    path: Path,
    *more: str,
    timeout: float,
    memory: int = MEMORY,
    stop: Callable[[], str | None] | None = None,
    on_line: Callable[[bytes], None] | None = None,
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
    command = [sys.executable, "-P", str(_READER), what, str(path), *more]
    try:
        ended = supervise(command, on_output=take, stop=stop, timeout=timeout, memory=memory)
    except Late:
        raise MediaError(INPUT_UNREADABLE, f"the source was not read within {timeout:g} seconds.") from None
    return _understood(answers[0] if answers else b"", ended.returncode, redact(ended.tail, hidden=(path,)))


def _understood(line: bytes, returncode: int, tail: str) -> Answer:
    """Return what the reader said, or raise what it found; a reader that broke says nothing."""
    try:
        answer = msgspec.json.decode(line, type=Answer)
    except msgspec.DecodeError:
        answer = Answer()
    if returncode == 0 and answer.code in CODES:
        raise MediaError(answer.code, answer.message, detail=tail)
    if returncode == 0 and (answer.facts is not None or answer.frames):
        return answer
    if "ModuleNotFoundError" in tail or "ImportError" in tail:
        message = "the reader needs PyAV, which is missing. Install it: pip install 'holdfast[media]'."
        raise MediaError(PROBE_FAILED, message, detail=tail)
    how = f"ended by signal {-returncode}" if returncode < 0 else f"failed with code {returncode}"
    raise MediaError(INPUT_UNREADABLE, f"the source broke the reader, which {how}.", detail=tail)
