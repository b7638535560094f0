"""A transcode from end to end, by the functions that jobs call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import av

from holdfast_media.ladder import Ladder, Rung, choose
from holdfast_media.source import Facts, check, probe
from holdfast_media.transcode import (
    ChunkFacts,
    PackageFacts,
    Plan,
    encode_audio,
    encode_chunk,
    package_audio,
    package_rendition,
    plan,
    write_master,
)

if TYPE_CHECKING:
    from pathlib import Path

LADDER = Ladder(
    rungs=(
        Rung(name="90p", height=90, video_kbps=300, audio_kbps=96, preset="ultrafast"),
        Rung(name="44p", height=44, video_kbps=80, audio_kbps=64, preset="ultrafast"),
    )
)
BETTER_LADDER = Ladder(rungs=(Rung(name="90p", height=90, video_kbps=2000, audio_kbps=96, crf=12, preset="veryfast"),))


class Made(NamedTuple):
    """A finished output, and all that led to it."""

    facts: Facts
    plan: Plan
    chunks: list[ChunkFacts]
    renditions: list[PackageFacts]
    sound: PackageFacts | None
    folder: Path


def transcode(source: Path, folder: Path, *, ladder: Ladder = LADDER, chunk_seconds: int = 2, segment_seconds: int = 1) -> Made:
    facts = probe(source)
    check(source, facts)
    planned = plan(facts, choose(facts, ladder), chunk_seconds=chunk_seconds, segment_seconds=segment_seconds)
    out = folder / "out"
    made: list[ChunkFacts] = []
    renditions = []
    out.mkdir(parents=True)
    for rendition in planned.renditions:
        files = [folder / f"{rendition.name}-{chunk.index}.mp4" for chunk in planned.chunks]
        made += [
            encode_chunk(source, planned, rendition, chunk, file) for chunk, file in zip(planned.chunks, files, strict=True)
        ]
        renditions.append(package_rendition(planned, rendition, files, out / rendition.name))
    sound = None
    if planned.audio is not None:
        encode_audio(source, planned, folder / "sound.mp4")
        sound = package_audio(planned, folder / "sound.mp4", out / "audio")
    write_master(out, renditions, sound)
    return Made(facts, planned, made, renditions, sound, out)


def times(path: Path, kind: str = "video") -> list[float]:
    """Decode a file or a playlist and return the time of every frame."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0] if kind == "video" else container.streams.audio[0]
        return sorted(float(frame.time or 0) for packet in container.demux(stream) for frame in decoded(packet))


def decoded(packet: Any) -> list[Any]:
    return list(packet.decode())


def pixels(path: Path) -> list[Any]:
    """Decode a file or a playlist and return every frame, in the order it is shown."""
    with av.open(str(path)) as container:
        return sorted(container.decode(video=0), key=lambda frame: frame.pts)
