"""Decoding a source once, strictly, where encoding it in chunks could not be strict."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from holdfast_media.errors import INPUT_DAMAGED, MediaError
from holdfast_media.ffmpeg.limits import reading_limit
from holdfast_media.source.probe import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.source.facts import Facts


def check(
    path: Path,
    facts: Facts,
    *,
    on_progress: Callable[[float], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    timeout: float | None = None,
    always: bool = False,
) -> bool:
    """Decode the whole picture and raise INPUT_DAMAGED at the first error; returns False at once when that is not needed.

    Encoding a chunk is strict by itself, unless the source cannot be sought cleanly, where a seek gives errors that are none,
    or has no steady clock. So this pass is made for those alone, or `always` when asked. Call it after `probe`, before the
    chunks. Raises as `probe` does.
    """
    video = facts.video
    if video is None or not (always or not video.seeks_cleanly or not video.steady):
        return False

    def tell(line: bytes) -> None:
        with contextlib.suppress(ValueError):
            if on_progress is not None and facts.seconds:
                on_progress(min(max(float(line) / facts.seconds, 0.0), 1.0))

    limit = reading_limit(facts.size, facts.seconds) if timeout is None else timeout
    how = "kindly" if video.ragged_start else "strictly"
    end = str(video.end) if video.ragged_end else "-"
    decoded = ask("check", path.absolute(), str(video.index), how, end, timeout=limit, stop=stop, on_line=tell).frames
    if abs(decoded - video.frames) > 1:
        raise MediaError(INPUT_DAMAGED, f"the source holds {video.frames} frames, and {decoded} of them decode.")
    return True
