"""From a file to its subtitles."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast_media.speech import webvtt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.speech.transcript import Transcriber, Transcript


def transcribe(
    transcriber: Transcriber,
    source: Path,
    target: Path,
    *,
    language: str | None = None,
    on_progress: Callable[[float], None] = lambda _: None,
    stop: Callable[[], str | None] = lambda: None,
) -> Transcript:
    """Write what is said in a file as WebVTT, whole or not at all, and return it.

    `language` is what is spoken, where that is known; else the transcriber finds out. Raises what the transcriber raises.
    """
    said = transcriber.transcribe(source, language=language, on_progress=on_progress, stop=stop)
    work = target.with_name(f".{target.name}.work")
    with work.open("w", encoding="utf-8", newline="\n") as file:
        file.write(webvtt.write(said.segments, language=said.language))
        file.flush()
        os.fsync(file.fileno())
    work.replace(target)
    return said
