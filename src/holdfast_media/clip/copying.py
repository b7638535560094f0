"""Copying a stretch without encoding it: from the key frame before the start. Done in a process of its own, as reading is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from holdfast_media.clip import child
from holdfast_media.clip.reading import MEMORY, Refusal
from holdfast_media.errors import INPUT_UNREADABLE, INTERNAL_TRANSIENT, MediaError
from holdfast_media.ffmpeg.supervise import Late

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.clip.deadline import Deadline


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
    on_progress: Callable[[float], None],
) -> Copied:
    """Copy from a key frame (its time in ticks of the picture) to where no frame before the end is missing.

    Raises `MediaError`: `CLIP_TIMEOUT`, and then nothing runs any more; `INPUT_UNREADABLE`, `FAST_IMPOSSIBLE`; and `Stopped`.
    """
    answers: list[Copied | Refusal] = []

    def hear(line: str) -> None:
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
        ended = child.run([sys.executable, *arguments], timeout=deadline.left(), stop=stop, on_line=hear, memory=MEMORY)
    except Late as late:
        raise deadline.missed(detail=late.tail, said_by="the process that copies") from None
    if not answers:
        code = INPUT_UNREADABLE if ended.returncode < 0 and ended.returncode not in {-9, -15} else INTERNAL_TRANSIENT
        raise MediaError(
            code,
            f"the process that copies ended with {ended.returncode} and gave no answer",
            detail=ended.tail,
            said_by="the process that copies",
        )
    if isinstance(answers[-1], Refusal):
        raise MediaError(answers[-1].code, answers[-1].message, detail=ended.tail, said_by="the process that copies")
    return answers[-1]
