"""`media.transcribe`: what is said, as subtitles. Optional: a video without them is still a video."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Fatal
from holdfast_media.speech import webvtt
from holdfast_media.tasks.artifacts import intact
from holdfast_media.tasks.context import Context, told

if TYPE_CHECKING:
    from holdfast_media.speech.transcript import Transcriber
    from holdfast_media.tasks.work import Origin


def transcribe(context: Context, origin: Origin, key: str, transcriber: Transcriber | None) -> str:
    """Write down what is said and publish it, or find it published; returns its key."""
    if transcriber is None:
        raise Fatal(
            "the worker has nobody who writes down what is said. Give it a model (--model, HOLDFAST_MEDIA_SPEECH_MODEL) or "
            "Media(transcriber=…), and have it transcoded anew with transcription",
            code="NO_TRANSCRIBER",
        )
    with told(context):
        if intact(context, key) is not None:
            return key
        transcriber.check()
        with context.scratch() as folder:
            with context.source(origin) as source, context.job.stage("transcribe"):
                found = transcriber.transcribe(
                    source, language=None, on_progress=lambda share: context.job.progress(95 * share), stop=context.stop
                )
            path = folder / "captions.vtt"
            path.write_text(webvtt.write(found.segments, language=found.language), encoding="utf-8")
            context.storage.put(key, path)
        return key
