"""Copying a stretch without encoding it: from the key frame before the start. Done in a process of its own, as reading is."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.clip import child
from holdfast_media.clip.reading import MEMORY, Refusal
from holdfast_media.errors import ENCODE_STALLED, INPUT_UNREADABLE, INTERNAL_TRANSIENT, MediaError
from holdfast_media.ffmpeg.supervise import Killed, Late

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.clip.deadline import Deadline


COPIER: Final = "the process that copies"
"""Who wrote what is told of a failure."""


class Copied(msgspec.Struct, frozen=True, kw_only=True, tag="copied"):
    """What was copied."""

    frames: int
    after: int
    """Where its last frame ends, in ticks of the source's picture."""


class Share(msgspec.Struct, frozen=True, kw_only=True, tag="share"):
    """How far it is."""

    share: float


def copy_stretch(
    source: Path,
    target: Path,
    key: int,
    end: float | None,
    *,
    deadline: Deadline,
    stop: Callable[[], str | None],
    stall_after: float,
    on_progress: Callable[[float], None],
) -> Copied:
    """Copy from a key frame (its time in ticks of the picture) to where no frame before the end is missing.

    Raises `MediaError`: `CLIP_TIMEOUT`, and `ENCODE_STALLED` when it told and wrote nothing for `stall_after` seconds, and then
    nothing runs any more; `INPUT_UNREADABLE`, `FAST_IMPOSSIBLE`; and `Stopped`.
    """
    answers: list[Copied | Refusal] = []
    watch = _Watch(target, stall_after)

    def hear(line: str) -> None:
        watch.heard += 1
        try:
            answer = msgspec.json.decode(line, type=Copied | Share | Refusal)
        except msgspec.MsgspecError:
            return
        if isinstance(answer, Share):
            on_progress(answer.share)
        else:
            answers.append(answer)

    arguments = ["-m", "holdfast_media.clip.copier", str(source), str(target), str(key), "end" if end is None else repr(end)]
    try:
        ended = child.run(
            [sys.executable, *arguments],
            timeout=deadline.left(),
            stop=stop,
            on_line=hear,
            on_tick=watch.look,
            memory=MEMORY,
        )
    except _Still as still:
        message = f"the copy moved nothing for {stall_after:g} seconds, and was ended"
        raise MediaError(ENCODE_STALLED, message, detail=still.tail, said_by=COPIER) from None
    except Late as late:
        raise deadline.missed(detail=late.tail, said_by=COPIER) from None
    if not answers:
        code = INPUT_UNREADABLE if ended.returncode < 0 and ended.returncode not in {-9, -15} else INTERNAL_TRANSIENT
        raise MediaError(
            code,
            f"the process that copies ended with {ended.returncode} and gave no answer",
            detail=ended.tail,
            said_by=COPIER,
        )
    if isinstance(answers[-1], Refusal):
        raise MediaError(answers[-1].code, answers[-1].message, detail=ended.tail, said_by=COPIER)
    return answers[-1]


class _Still(Killed):
    """It has moved nothing for too long."""


class _Watch:
    """Looks whether a copy goes on: it tells how far it is, or writes, as it does for long when it puts the index first."""

    def __init__(self, target: Path, stall_after: float) -> None:
        self._target = target
        self._stall_after = stall_after
        self._moved = time.monotonic()
        self._mark: tuple[int, ...] = ()
        self.heard = 0

    def look(self, now: float) -> None:
        """Raise when nothing has moved for too long."""
        mark = self.heard, *self._written()
        if mark != self._mark:
            self._moved, self._mark = now, mark
        elif now - self._moved > self._stall_after:
            raise _Still

    def _written(self) -> tuple[int, ...]:
        try:
            found = self._target.stat()
        except OSError:
            return ()
        return found.st_size, found.st_mtime_ns
