"""`media.encode`: one chunk of one quality; `media.audio`: the sound. Both may run where there is no database."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast_media.errors import INPUT_DAMAGED, MediaError
from holdfast_media.ffmpeg import share_of_cores, time_limit
from holdfast_media.tasks.artifacts import intact, intact_package, lent, publish_package, read_note, write_note
from holdfast_media.tasks.context import ROOMY, Context, told
from holdfast_media.tasks.work import AudioResult, EncodeResult, Note, Twin
from holdfast_media.transcode import encode_audio, encode_chunks, package_audio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from holdfast_media.ffmpeg import Progress
    from holdfast_media.storage import Stored
    from holdfast_media.tasks.work import AudioWork, EncodeWork
    from holdfast_media.transcode import ChunkFacts

MEGABYTE = 10**6
TELL_EVERY = 0.5
"""Seconds between two reports of progress."""
ENCODED = "encoded"
"""The part that is written down once a chunk is in the storage."""
BEGUN = "begun"
"""The part that says how often ffmpeg was begun: an attempt that only waited for room, or never got that far, cost nothing."""


def encode(context: Context, work: EncodeWork, before: EncodeResult | None = None) -> EncodeResult:
    """Encode one chunk and publish it, or find it published and intact. Repeatable: nothing is ever replaced.

    `before` is what the job came to that was to encode it along with its own.
    """
    with told(context):
        found = intact(context, work.key)
        own = Twin(rendition=work.rendition, key=work.key, note=work.note)
        wanted = [*([own] if found is None else []), *(one for one in work.twins if intact(context, one.key) is None)]
        was_made = before is not None and work.key in before.along
        times = before.begun if before is not None and was_made else work.begun
        made = _made(context, work, wanted, times) if wanted else {}
        along = tuple(key for key in made if key != work.key)
        if found is None:
            return msgspec.structs.replace(made[work.key], along=along)
        return EncodeResult(
            key=work.key,
            frames=work.chunk.frames,
            bytes=found.size,
            sha256=found.sha256 or "",
            encoder=read_note(context, work.note, found),
            reused=not was_made,
            begun=_times(context, times),
            along=along,
        )


def _made(context: Context, work: EncodeWork, wanted: Sequence[Twin], times: int) -> dict[str, EncodeResult]:
    """Encode the chunk in these qualities and publish each; returns those that came about.

    Its own, the first if it is among them, is published last: where that is there, the others are, unless they failed. `times`
    is how often other jobs have begun it before.
    """
    job = context.job
    context.check_room(sum(one.rendition.video_kbps * 125 * work.chunk.seconds * ROOMY + MEGABYTE for one in wanted))
    with context.scratch() as folder:
        targets = {one: folder / f"{number}.mp4" for number, one in enumerate(wanted)}
        with context.source(work.origin) as source, job.stage("encode"), share_of_cores() as share:
            times = _begin(context, times)
            made = _encoded(context, work, targets, source, threads=context.settings.threads or share)
        job.abort.check()
        with job.stage("publish"):
            results = {one.key: _published(context, one, made[one], targets[one], times) for one in reversed(made)}
        for one, facts in made.items():
            job.log.info(
                "%s: encoded by %s in %.1f s, %d frames, %d bytes",
                *(one.rendition.name, facts.encoder, facts.seconds, facts.frames, facts.bytes),
            )
        if work.key in results:
            own = results[work.key]
            job.checkpoint(ENCODED, data={"sha256": own.sha256, "encoder": own.encoder, "seconds": own.seconds})
        return results


def _encoded(
    context: Context, work: EncodeWork, targets: Mapping[Twin, Path], source: Path, *, threads: int
) -> dict[Twin, ChunkFacts]:
    """Encode all at once; should that fail, what is its own by itself, and the others are left to their own jobs."""

    def at_once(wanted: Sequence[Twin]) -> dict[Twin, ChunkFacts]:
        facts = encode_chunks(
            source,
            work.plan,
            [one.rendition for one in wanted],
            work.chunk,
            [targets[one] for one in wanted],
            encoder=context.settings.encoder,
            on_progress=_reporting(context, 98.0),
            stop=context.stop,
            ffmpeg=context.ffmpeg,
            threads=threads,
            stall_after=context.settings.stall_after,
        )
        return dict(zip(wanted, facts, strict=True))

    wanted = list(targets)
    own = [one for one in wanted if one.key == work.key]
    try:
        return at_once(wanted)
    except MediaError as error:
        if wanted == own or (own and error.code == INPUT_DAMAGED):  # then it is the source, which all of them have
            raise
        context.job.log.warning("%d qualities at once: %s. Each is encoded by itself", len(wanted), error)
    return at_once(own) if own else {}


def _times(context: Context, before: int) -> int:
    """Return how often ffmpeg was begun by the attempts of this job, and by the jobs before it."""
    return int(context.job.data(BEGUN, before))


def _begin(context: Context, before: int = 0) -> int:
    """Write down that ffmpeg begins, so that whoever comes after a killed worker knows; returns how often it has."""
    times = _times(context, before) + 1
    context.job.checkpoint(BEGUN, data=times)
    return times


def _published(context: Context, one: Twin, facts: ChunkFacts, path: Path, times: int) -> EncodeResult:
    """Put a chunk into the storage; somebody else may have been first."""
    write_note(context, one.note, Note(sha256=facts.sha256, encoder=facts.encoder), path.parent)
    stored = context.storage.put(one.key, path, sha256=facts.sha256, consume=True)
    return EncodeResult(
        key=one.key,
        frames=facts.frames,
        bytes=stored.size,
        sha256=stored.sha256 or facts.sha256,
        encoder=facts.encoder if stored.sha256 in {None, facts.sha256} else read_note(context, one.note, stored),
        seconds=facts.seconds,
        begun=times,
    )


def audio(context: Context, work: AudioWork) -> AudioResult:
    """Encode the sound once for all qualities, and make a playlist of it."""
    job = context.job
    with told(context):
        if (marker := intact_package(context, work.folder)) is not None:
            return AudioResult(facts=marker.facts, reused=True, begun=_times(context, 0))
        context.check_room(work.plan.audio_kbps * 250 * work.plan.sound_seconds * ROOMY + MEGABYTE)
        with context.scratch() as folder:
            stored = intact(context, work.key) or _encode_sound(context, work, folder / "sound.mp4")
            job.abort.check()
            with job.stage("package"), lent(context, work.key, stored.sha256) as sound:
                facts = package_audio(work.plan, sound, folder / "package", on_progress=None, stop=context.stop)
                publish_package(context, work.folder, folder / "package", facts)
        return AudioResult(facts=facts, begun=_times(context, 0))


def _encode_sound(context: Context, work: AudioWork, target: Path) -> Stored:
    with context.source(work.origin) as source, context.job.stage("encode"):
        _begin(context)
        facts = encode_audio(
            source,
            work.plan,
            target,
            on_progress=_reporting(context, 50.0),
            stop=context.stop,
            ffmpeg=context.ffmpeg,
            stall_after=context.settings.stall_after,
            timeout=time_limit(work.plan.sound_seconds),
        )
    stored = context.storage.put(work.key, target, sha256=facts.sha256, consume=True)
    context.job.checkpoint(ENCODED, data={"sha256": facts.sha256, "encoder": facts.encoder})
    return stored


def _reporting(context: Context, most: float) -> Callable[[Progress], None]:
    """Return who passes on how far ffmpeg is: twice a second at most, for each report is a write to the store."""
    told_at = -math.inf

    def report(progress: Progress) -> None:
        nonlocal told_at
        if (now := time.monotonic()) - told_at >= TELL_EVERY:
            told_at = now
            context.job.progress(progress.fraction * most, str(progress))

    return report
