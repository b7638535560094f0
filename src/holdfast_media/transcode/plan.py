"""The plan of a transcode: which chunk holds which frames. Pure, and the same on every machine."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.errors import PLAN_INVALID, MediaError
from holdfast_media.ladder.rungs import Rendition
from holdfast_media.source.facts import AudioFacts, VideoFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast_media.source.facts import Facts

SEGMENT_SECONDS: Final = 6
CHUNK_SECONDS: Final = 60
"""Of a film that is long enough."""
SHORTEST_CHUNK: Final = 6
CHUNKS: Final = 10
"""How many a film of less than ten minutes has, about: enough for several workers, and for little to be lost with one."""
AUDIO_KBPS: Final = 128
"""Of a source with sound alone."""
CLOCK: Final = 90_000
"""Ticks per second in everything that is written: MPEG's clock, which divides the usual frame rates."""
STUB_SECONDS: Final = 0.5
"""A last segment shorter than this is joined to the one before it."""
FEWEST: Final = 4
"""Chunks of a film whose key frames are so far apart that it would be fewer."""
_LONGEST: Final = 3600


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the picture that is encoded by one job: the frames with `first_tick <= pts < end_tick`.

    The last chunk of a plan has no `end_tick`, and a plan of one piece no bounds at all.
    """

    index: int
    start: int
    """In whole seconds from the first frame; always a multiple of the plan's `segment_seconds`."""
    seconds: float
    frames: int
    """As many frames as the source has here."""
    first_tick: int | None = None
    end_tick: int | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that encoding needs to know of a source, and what is made of it. Travels as args of jobs."""

    container: str
    seconds: float
    """Of the picture, or of the sound where there is no picture."""
    sound_seconds: float
    """Of the sound: as long as the picture, or longer where the source has sound after the last frame."""
    segment_seconds: int
    video: VideoFacts | None
    audio: AudioFacts | None
    """The track that is encoded."""
    audio_kbps: int
    renditions: tuple[Rendition, ...]
    """Empty for a source with sound alone."""
    chunks: tuple[Chunk, ...]
    """The same for every rendition, so that key frames stand at the same times in all of them."""


def usual_chunk(seconds: float, segment_seconds: int, *, key_frame_gap: float = 0.0) -> int:
    """Return how long the chunks of a film are, in whole segments, where nobody has said it.

    A chunk decodes from the key frame before it, and throws away what comes before its start. So none is shorter than the
    longest gap between key frames, but for films that would then be hardly cut at all: what a killed worker has done is lost.
    """
    least, most = -(-SHORTEST_CHUNK // segment_seconds), CHUNK_SECONDS // segment_seconds
    sparse = min(ceil(key_frame_gap / segment_seconds), round(seconds / FEWEST / segment_seconds), _LONGEST // segment_seconds)
    return max(1, least, min(round(seconds / CHUNKS / segment_seconds), most), sparse) * segment_seconds


def plan(
    facts: Facts,
    renditions: Sequence[Rendition],
    *,
    chunk_seconds: int = CHUNK_SECONDS,
    segment_seconds: int = SEGMENT_SECONDS,
) -> Plan:
    """Lay out the chunks: bounds at multiples of `segment_seconds`, a short tail joined to the chunk before it."""
    if not 1 <= segment_seconds <= chunk_seconds <= _LONGEST:
        raise MediaError(
            PLAN_INVALID,
            f"segments of {segment_seconds} s in chunks of {chunk_seconds} s: both are whole seconds, from 1 to {_LONGEST}, "
            "and a chunk holds at least one segment.",
        )
    video = facts.video
    chunks = () if video is None or not renditions else _chunks(video, chunk_seconds // segment_seconds, segment_seconds)
    return Plan(
        container=facts.container,
        seconds=facts.seconds,
        sound_seconds=_sound_seconds(facts),
        segment_seconds=segment_seconds,
        video=None if video is None else msgspec.structs.replace(video, counts=()),  # said by the chunks, and long
        audio=facts.audio[0] if facts.audio else None,
        audio_kbps=max((rendition.audio_kbps for rendition in renditions), default=AUDIO_KBPS),
        renditions=tuple(renditions) if video is not None else (),
        chunks=chunks,
    )


def _sound_seconds(facts: Facts) -> float:
    """Return how long the sound is to be: what sounds after the last frame is part of the film.

    Not what is hardly longer: packets of sound never end with a frame. Nor what begins after more silence than there is sound
    in all: a clock that jumps says that, and to believe it would be to write hours of nothing.
    """
    video = facts.video
    if video is None or not facts.audio:
        return facts.seconds
    sound = facts.audio[0]
    begin = sound.start - float(video.start * Fraction(*video.time_base)) if video.steady else 0.0
    beyond = begin + sound.seconds - facts.seconds
    return facts.seconds + beyond if STUB_SECONDS <= beyond <= sound.sounding else facts.seconds


def _chunks(video: VideoFacts, segments: int, segment_seconds: int) -> tuple[Chunk, ...]:
    """Return the chunks: about `segments` each, all with at least one frame."""
    if not video.steady or not video.counts:
        return (Chunk(index=0, start=0, seconds=video.seconds, frames=video.frames),)
    length = segments * segment_seconds
    before = [0, *accumulate(count for count, times in video.counts for _ in range(times))]
    bounds = [0]
    for second in range(length, len(before) - 1, length):
        if before[second] > before[bounds[-1]]:  # where nothing moves for minutes, there is no frame to encode
            bounds.append(second)
    if len(bounds) > 1 and (before[-1] == before[bounds[-1]] or video.seconds - bounds[-1] < length / 2):
        bounds.pop()
    ends: list[int | None] = [*bounds[1:], None]
    return tuple(
        Chunk(
            index=index,
            start=start,
            seconds=(video.seconds if end is None else float(end)) - start,
            frames=(before[-1] if end is None else before[end]) - before[start],
            first_tick=_tick(video, start),
            end_tick=None if end is None else _tick(video, end),
        )
        for index, (start, end) in enumerate(zip(bounds, ends, strict=True))
    )


def _tick(video: VideoFacts, second: int) -> int:
    """Return the first tick of the source's clock that is not before this second of the picture."""
    return video.start - (-second * video.time_base[1] // video.time_base[0])
