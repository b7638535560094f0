"""What an artifact is called: a hash of everything that determines it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from holdfast_media.ladder.rungs import Rendition
    from holdfast_media.transcode.plan import Chunk, Plan

VERSION: Final = 1
"""Raised whenever the same plan would be encoded differently."""


def recipe(plan: Plan, rendition: Rendition, chunk: Chunk, source_identity: str) -> str:
    """Return the recipe of an encoded chunk: 64 hexadecimal digits.

    The encoder is not in it: what hardware makes is as good as what libx264 makes, and the first that is published stays.
    Neither are names and what is required: they do not change a byte.
    """
    picture = (rendition.width, rendition.height, rendition.video_kbps, rendition.crf, rendition.preset)
    stretch = (chunk.start, round(chunk.seconds * 1000), chunk.frames, chunk.first_tick, chunk.end_tick)
    return _hash("chunk", source_identity, plan.segment_seconds, _stream(plan), picture, stretch)


def audio_recipe(plan: Plan, source_identity: str) -> str:
    """Return the recipe of the encoded sound."""
    index = None if plan.audio is None else plan.audio.index
    return _hash("audio", source_identity, _stream(plan), index, plan.audio_kbps, round(plan.sound_seconds * 1000))


def package_recipe(plan: Plan, rendition: Rendition, source_identity: str) -> str:
    """Return the recipe of a packaged rendition: that of all its chunks."""
    return _hash("package", source_identity, [recipe(plan, rendition, chunk, source_identity) for chunk in plan.chunks])


def pictures_recipe(plan: Plan, source_identity: str) -> str:
    """Return the recipe of poster and sprites."""
    return _hash("pictures", source_identity, _stream(plan))


def _stream(plan: Plan) -> tuple[object, ...] | None:
    """Return what the plan takes from the picture of the source; the rest of its facts may grow without changing recipes."""
    if (video := plan.video) is None:
        return None
    return (video.index, video.start, video.time_base, video.steady, video.interlaced, video.ragged_end)


def _hash(*parts: object) -> str:
    """Return the SHA-256 of the parts as JSON, whose keys are in order: the same on every machine."""
    return hashlib.sha256(msgspec.json.encode((VERSION, *parts), order="deterministic")).hexdigest()
