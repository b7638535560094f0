"""`media.encode`: one chunk of one quality; `media.audio`: the sound. Both may run where there is no database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_media.ffmpeg import time_limit
from holdfast_media.tasks.artifacts import intact, intact_package, publish_package
from holdfast_media.tasks.context import ROOMY, Context, told
from holdfast_media.tasks.work import AudioResult, EncodeResult
from holdfast_media.transcode import encode_audio, encode_chunk, package_audio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.tasks.work import AudioWork, EncodeWork

MEGABYTE = 10**6
ENCODED = "encoded"
"""The part that is written down once a chunk is in the storage."""


def encode(context: Context, work: EncodeWork) -> EncodeResult:
    """Encode one chunk and publish it, or find it published and intact. Repeatable: nothing is ever replaced."""
    job = context.job
    with told(context):
        if (found := intact(context, work.key)) is not None:
            own = job.data(ENCODED)  # an attempt before this one has done it, and died before it could say so
            mine = isinstance(own, dict) and own.get("sha256") == found.sha256
            return EncodeResult(
                key=work.key,
                frames=work.chunk.frames,
                bytes=found.size,
                sha256=found.sha256 or "",
                encoder=str(own.get("encoder", "")) if mine else "",
                reused=True,
                attempt=job.attempt,
            )
        context.check_room(work.rendition.video_kbps * 125 * work.chunk.seconds * ROOMY + MEGABYTE)
        with context.scratch() as folder, context.source(work.origin) as source:
            with job.stage("encode"):
                target = folder / "chunk.mp4"
                facts = encode_chunk(
                    source,
                    work.plan,
                    work.rendition,
                    work.chunk,
                    target,
                    encoder=context.settings.encoder,
                    on_progress=_reporting(context, 98.0),
                    stop=context.stop,
                    ffmpeg=context.ffmpeg,
                    threads=context.settings.threads,
                    stall_after=context.settings.stall_after,
                    timeout=time_limit(work.chunk.seconds, work.rendition.time_factor),
                )
            job.abort.check()
            with job.stage("publish"):
                stored = context.storage.put(work.key, target, sha256=facts.sha256, consume=True)
            job.checkpoint(ENCODED, data={"sha256": stored.sha256, "encoder": facts.encoder, "seconds": facts.seconds})
            job.log.info(
                "encoded by %s in %.1f s, %d frames, %d bytes", facts.encoder, facts.seconds, facts.frames, stored.size
            )
            return EncodeResult(
                key=work.key,
                frames=facts.frames,
                bytes=stored.size,
                sha256=stored.sha256 or facts.sha256,
                encoder=facts.encoder,
                seconds=facts.seconds,
                attempt=job.attempt,
            )


def audio(context: Context, work: AudioWork) -> AudioResult:
    """Encode the sound once for all qualities, and make a playlist of it."""
    job = context.job
    with told(context):
        if (marker := intact_package(context, work.folder)) is not None:
            return AudioResult(facts=marker.facts, reused=True, attempt=job.attempt)
        context.check_room(work.plan.audio_kbps * 250 * work.plan.seconds * ROOMY + MEGABYTE)
        with context.scratch() as folder:
            if intact(context, work.key) is None:
                _encode_sound(context, work, folder / "sound.mp4")
            job.abort.check()
            with job.stage("package"), context.storage.lend(work.key) as sound:
                facts = package_audio(work.plan, sound, folder / "package", on_progress=None, stop=context.stop)
                publish_package(context, work.folder, folder / "package", facts)
        return AudioResult(facts=facts, attempt=job.attempt)


def _encode_sound(context: Context, work: AudioWork, target: Path) -> None:
    with context.source(work.origin) as source, context.job.stage("encode"):
        facts = encode_audio(
            source,
            work.plan,
            target,
            on_progress=_reporting(context, 50.0),
            stop=context.stop,
            ffmpeg=context.ffmpeg,
            stall_after=context.settings.stall_after,
            timeout=time_limit(work.plan.seconds),
        )
    context.storage.put(work.key, target, sha256=facts.sha256, consume=True)
    context.job.checkpoint(ENCODED, data={"sha256": facts.sha256, "encoder": facts.encoder})


def _reporting(context: Context, most: float) -> Callable[[float], None]:
    def report(share: float) -> None:
        context.job.progress(min(share, 1.0) * most)

    return report
