"""From encoded chunks to a playlist: fragmented MP4 for HLS, without encoding anything again.

Written here and not by ffmpeg's own muxers, which join files by adding up lengths and lose frames or their times on the way.
A chunk knows the time of each of its frames; what is decoded when follows from that, over the bounds of chunks.
"""

from __future__ import annotations

import errno
import math
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from holdfast_media.errors import DISK_FULL, OUTPUT_MISMATCH, PLAN_INVALID, MediaError, Stopped
from holdfast_media.transcode.audio import PRIMING, RATE
from holdfast_media.transcode.boxes import Broken, Movie, Sample, read_movie
from holdfast_media.transcode.facts import PackageFacts
from holdfast_media.transcode.fragments import codec, fragment, header, size_of_picture
from holdfast_media.transcode.plan import CLOCK, STUB_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from holdfast_media.ladder.rungs import Rendition
    from holdfast_media.transcode.plan import Plan

PLAYLIST: Final = "index.m3u8"
AUDIO: Final = "audio"
"""Name of the folder with the sound."""


class Segment(NamedTuple):
    """A segment to be: which file its data comes from, and its samples as they will be written."""

    source: int
    samples: list[Sample]


class Written(NamedTuple):
    """A segment that is there: seconds and bytes."""

    name: str
    header: int
    seconds: float
    bytes: int


def package_rendition(
    plan: Plan,
    rendition: Rendition,
    chunks: Sequence[Path],
    folder: Path,
    *,
    on_progress: Callable[[float], None] | None = None,
    stop: Callable[[], str | None] | None = None,
) -> PackageFacts:
    """Write `init_000.mp4`, `segment_00000.m4s`… and `index.m3u8` into the folder, from the chunks in the plan's order.

    Pure copying: the same chunks give the same bytes. Chunks of different encoders get a header each. Raises OUTPUT_MISMATCH
    when a chunk is not what the plan says, DISK_FULL, `Stopped`.
    """
    if plan.video is None or len(chunks) != len(plan.chunks):
        raise MediaError(PLAN_INVALID, f"the plan has {len(plan.chunks)} chunks, and {len(chunks)} were given.")
    movies = [_movie(path) for path in chunks]
    for chunk, movie in zip(plan.chunks, movies, strict=True):
        allowed = 0 if plan.video.steady else 1
        if abs(len(movie.samples) - chunk.frames) > allowed or not movie.samples[0].key:
            found = f"{len(movie.samples)} frames were found in the file of chunk {chunk.index}"
            raise MediaError(OUTPUT_MISMATCH, f"{found}, which has {chunk.frames}. Encode it again.")
        if size_of_picture(movie.moov) != (rendition.width, rendition.height):
            raise MediaError(OUTPUT_MISMATCH, f"chunk {chunk.index} has another size than the rendition. Encode it again.")
    end = round(plan.seconds * CLOCK)
    timed = list(_timed([movie.samples for movie in movies], end))
    segments = [
        Segment(index, part) for index, samples in enumerate(timed) for part in _cut(samples, plan.segment_seconds * CLOCK)
    ]
    shift = max(0, *(sample.decoded - sample.shown for samples in timed for sample in samples))
    written = _write(chunks, movies, segments, folder, ticks=CLOCK, cut=shift, wait=shift, on_progress=on_progress, stop=stop)
    frames = sum(len(movie.samples) for movie in movies)
    seconds = (end - timed[0][0].shown) / CLOCK
    return _facts(rendition.name, movies, written, frames=frames, rate=frames / seconds if seconds else 0.0)


def package_audio(
    plan: Plan,
    sound: Path,
    folder: Path,
    *,
    on_progress: Callable[[float], None] | None = None,
    stop: Callable[[], str | None] | None = None,
) -> PackageFacts:
    """Do the same for the sound, from the one file of `encode_audio`."""
    movie = _movie(sound)
    length = plan.segment_seconds * RATE
    parts: list[list[Sample]] = []
    for sample in movie.samples:
        number = max(sample.decoded - PRIMING, 0) // length
        while len(parts) <= number:
            parts.append([])
        parts[number].append(sample)
    segments = [Segment(0, part) for part in _without_stub([part for part in parts if part])]
    written = _write([sound], [movie], segments, folder, ticks=RATE, cut=PRIMING, wait=0, on_progress=on_progress, stop=stop)
    return _facts(AUDIO, [movie], written, frames=len(movie.samples), rate=0.0)


def _without_stub(parts: list[list[Sample]]) -> list[list[Sample]]:
    """Join a last segment of sound that is hardly one to the one before it, as encoding does for the picture."""
    if len(parts) > 1 and sum(sample.duration for sample in parts[-1]) < STUB_SECONDS * RATE:
        return [*parts[:-2], parts[-2] + parts[-1]]
    return parts


def _movie(path: Path) -> Movie:
    try:
        with path.open("rb") as file:
            movie = read_movie(file)
    except (Broken, OSError) as error:
        raise MediaError(
            OUTPUT_MISMATCH, f"an encoded file is not whole: {error.__class__.__name__}. Encode it again."
        ) from error
    if not movie.samples:
        raise MediaError(OUTPUT_MISMATCH, "an encoded file holds nothing. Encode it again.")
    return movie


def _timed(chunks: Sequence[list[Sample]], end: int) -> Iterable[list[Sample]]:
    """Give the samples of each chunk with the times of decoding they will have.

    The i-th to be decoded gets the time at which the i-th is shown. So decoding goes on evenly from chunk to chunk, each frame
    lasts until the next, and nothing depends on how an encoder counts before its first frame.
    """
    starts = [min(sample.shown for sample in samples) for samples in chunks]
    for samples, limit in zip(chunks, [*starts[1:], end], strict=True):
        times = sorted(sample.shown for sample in samples)
        if len(set(times)) < len(times) or times[-1] >= max(limit, times[0] + 1):
            raise MediaError(OUTPUT_MISMATCH, "the frames of a chunk reach into the next one. Encode it again.")
        spans = [later - earlier for earlier, later in pairwise([*times, limit])]
        yield [sample._replace(decoded=time, duration=span) for sample, time, span in zip(samples, times, spans, strict=True)]


def _cut(samples: list[Sample], length: int) -> list[list[Sample]]:
    """Cut a chunk into segments: at the first key frame at or after each multiple of the length."""
    parts: list[list[Sample]] = [[]]
    bound = (samples[0].shown // length + 1) * length
    for sample in samples:
        if sample.key and sample.shown >= bound:
            parts.append([])
            bound = (sample.shown // length + 1) * length
        parts[-1].append(sample)
    for earlier, later in pairwise(parts):
        if max(sample.shown for sample in earlier) > later[0].shown:
            raise MediaError(OUTPUT_MISMATCH, "a key frame is none to begin with: frames after it come before it.")
    return parts


def _write(
    paths: Sequence[Path],
    movies: Sequence[Movie],
    segments: Sequence[Segment],
    folder: Path,
    *,
    ticks: int,
    cut: int,
    wait: int,
    on_progress: Callable[[float], None] | None,
    stop: Callable[[], str | None] | None,
) -> list[Written]:
    """Write headers, segments and playlist, and return the segments.

    Players cut `cut` ticks from the start; every sample waits `wait` ticks, so that none is shown before it is decoded.
    """
    headers: dict[bytes, int] = {}
    written: list[Written] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for movie in movies:
            head = header(movie.moov, cut)
            if head not in headers:
                headers[head] = len(headers)
                (folder / f"init_{headers[head]:03}.mp4").write_bytes(head)
        file: BinaryIO | None = None
        opened = -1
        try:
            for number, (source, samples) in enumerate(segments):
                if stop is not None and (reason := stop()) is not None:
                    raise Stopped(reason)
                if source != opened:
                    if file is not None:
                        file.close()
                    file, opened = paths[source].open("rb"), source
                assert file is not None  # noqa: S101  opened a line ago
                name = f"segment_{number:05}.m4s"
                with (folder / name).open("wb") as out:
                    out.write(fragment(number + 1, samples, wait))
                    for sample in samples:
                        file.seek(sample.offset)
                        out.write(file.read(sample.size))
                    size = out.tell()
                seconds = sum(sample.duration for sample in samples) / ticks
                if number == 0:
                    seconds -= (cut - wait) / ticks  # the first packet of the sound is not heard
                written.append(Written(name, headers[header(movies[source].moov, cut)], max(seconds, 0.0), size))
                if on_progress is not None:
                    on_progress((number + 1) / len(segments))
        finally:
            if file is not None:
                file.close()
        (folder / PLAYLIST).write_text(_playlist(written), encoding="utf-8")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise MediaError(DISK_FULL, "no space left where the playlist goes. Make room.") from error
        raise
    return written


def _playlist(segments: Sequence[Written]) -> str:
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", f"#EXT-X-TARGETDURATION:{_target(segments)}", "#EXT-X-MEDIA-SEQUENCE:0"]
    lines += ["#EXT-X-PLAYLIST-TYPE:VOD", "#EXT-X-INDEPENDENT-SEGMENTS"]
    current = None
    for segment in segments:
        if segment.header != current:
            # No EXT-X-DISCONTINUITY: clock, codec and tracks go on, and all playlists of a title must have the same ones (RFC
            # 8216, 6.2.4). Which encoder made a chunk is known of this quality alone, and sound has none at all.
            current = segment.header
            lines.append(f'#EXT-X-MAP:URI="init_{current:03}.mp4"')
        lines += [f"#EXTINF:{segment.seconds:.6f},", segment.name]
    return "\n".join([*lines, "#EXT-X-ENDLIST", ""])


def _target(segments: Sequence[Written]) -> int:
    return max(1, *(math.ceil(round(segment.seconds, 3)) for segment in segments))


def _facts(name: str, movies: Sequence[Movie], written: Sequence[Written], *, frames: int, rate: float) -> PackageFacts:
    headers = sorted({segment.header for segment in written})
    codecs = [codec(movie.moov) for movie in movies]
    total = sum(segment.bytes for segment in written)
    width, height = size_of_picture(movies[0].moov) if rate else (0, 0)
    files = (*(f"init_{number:03}.mp4" for number in headers), *(segment.name for segment in written), PLAYLIST)
    return PackageFacts(
        name=name,
        playlist=PLAYLIST,
        files=files,
        bytes=total,
        segments=len(written),
        frames=frames,
        seconds=_seconds(written),
        peak_bandwidth=peak_bandwidth(written),
        average_bandwidth=_rate(written),
        codecs=max(codecs, key=lambda one: (one[-2:], one)),  # the one that needs most of a player: its level comes last
        width=width,
        height=height,
        frame_rate=round(rate, 3),
    )


def peak_bandwidth(segments: Sequence[Written]) -> int:
    """Return the bits per second of the heaviest stretch, never below the average of all.

    A segment that is shorter than half of the longest counts with those after it; the last ones, with those before.
    """
    least = _target(segments) / 2
    peak = _rate(segments)
    for first in range(len(segments)):
        begin, end = first, first + 1
        while _seconds(segments[begin:end]) < least and end < len(segments):
            end += 1
        while _seconds(segments[begin:end]) < least and begin > 0:
            begin -= 1
        peak = max(peak, _rate(segments[begin:end]))
    return peak


def _rate(segments: Sequence[Written]) -> int:
    seconds = _seconds(segments)
    return math.ceil(sum(segment.bytes for segment in segments) * 8 / seconds) if seconds else 0


def _seconds(segments: Sequence[Written]) -> float:
    return sum(segment.seconds for segment in segments)
