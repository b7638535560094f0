"""Encoding one chunk of one rendition."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import (
    ENCODE_FAILED,
    ENCODE_KILLED,
    ENCODE_STALLED,
    ENCODE_TIMEOUT,
    FFMPEG_UNSUITABLE,
    INPUT_DAMAGED,
    OUTPUT_EMPTY,
    OUTPUT_MISMATCH,
    PLAN_INVALID,
    MediaError,
)
from holdfast_media.ffmpeg.encoders import SOFTWARE, Encoder, choose_encoder, doubt
from holdfast_media.ffmpeg.limits import memory_limit, time_limit
from holdfast_media.ffmpeg.run import run
from holdfast_media.transcode.boxes import Broken, read_movie
from holdfast_media.transcode.facts import ChunkFacts
from holdfast_media.transcode.output import FRAGMENTS, STRICT, digest, reading, work_file
from holdfast_media.transcode.plan import CLOCK, STUB_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast_media.ffmpeg.progress import Progress
    from holdfast_media.ladder.rungs import Rendition
    from holdfast_media.source.facts import VideoFacts
    from holdfast_media.transcode.plan import Chunk, Plan

_OF_THE_INPUT: Final = ("Invalid data found", "ecod", "corrupt", "rror reading", "runcat", "End of file")
"""Words by which ffmpeg complains about what it reads: decoding, Decoder, truncated…"""
_OF_THE_HARDWARE: Final = frozenset(
    {
        *(ENCODE_FAILED, ENCODE_KILLED, ENCODE_STALLED, ENCODE_TIMEOUT, FFMPEG_UNSUITABLE, OUTPUT_EMPTY, OUTPUT_MISMATCH),
        INPUT_DAMAGED,  # a piece of hardware that drops frames looks like that; libx264 knows better
    }
)
"""What may be the fault of a piece of hardware or its driver."""


def encode_chunk(
    source: Path,
    plan: Plan,
    rendition: Rendition,
    chunk: Chunk,
    target: Path,
    *,
    encoder: str = "auto",
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    ffmpeg: Path | None = None,
    threads: int = 0,
    stall_after: float = 60.0,
    timeout: float | None = None,
) -> ChunkFacts:
    """Encode the frames of the chunk into the file `target` (`….mp4`) and return what it holds.

    The file is complete when this returns, on disk and with as many frames as the chunk has: each frame of the source is in
    exactly one chunk. `timeout` is for writing it; reading up to it may take as long again as that stretch is. A hardware
    encoder that fails, stalls or dies gives way to libx264. Raises `Stopped`, `MediaError`: INPUT_DAMAGED, OUTPUT_EMPTY,
    OUTPUT_MISMATCH and what `run` raises; nothing is left at `target` then.
    """
    (facts,) = encode_chunks(
        source,
        plan,
        [rendition],
        chunk,
        [target],
        encoder=encoder,
        on_progress=on_progress,
        stop=stop,
        ffmpeg=ffmpeg,
        threads=threads,
        stall_after=stall_after,
        timeout=timeout,
    )
    return facts


def encode_chunks(
    source: Path,
    plan: Plan,
    renditions: Sequence[Rendition],
    chunk: Chunk,
    targets: Sequence[Path],
    *,
    encoder: str = "auto",
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    ffmpeg: Path | None = None,
    threads: int = 0,
    stall_after: float = 60.0,
    timeout: float | None = None,
) -> tuple[ChunkFacts, ...]:
    """Encode one chunk in several renditions at once, each into its target: the source is decoded once for all of them.

    The files are those that `encode_chunk` would make one by one, for less of the processor's time; they succeed or fail
    together. `seconds` of the facts is the time of all.
    """
    video = plan.video
    if video is None:
        raise MediaError(PLAN_INVALID, "the plan has no picture, so there is no chunk to encode.")
    begun = time.monotonic()
    limit = sum(time_limit(chunk.seconds, one.time_factor) for one in renditions) if timeout is None else timeout

    def attempt(with_encoder: Encoder, works: Sequence[Path], *, seek: bool) -> int:
        arguments = _reading(plan, video, chunk, with_encoder, source=source, seek=seek, threads=threads)
        arguments += ["-filter_complex", _graph(video, renditions, chunk, with_encoder)]
        for number, (rendition, work) in enumerate(zip(renditions, works, strict=True)):
            arguments += ["-map", f"[out{number}]", *_writing(plan, rendition, chunk, with_encoder, threads=threads)]
            arguments += ["-y", f"file:{work.absolute()}"]
        lead = _lead(video, chunk, seek=seek)
        run(
            arguments,
            ffmpeg=ffmpeg,
            duration=chunk.seconds,
            offset=float(chunk.start),
            on_progress=on_progress,
            stop=stop,
            timeout=limit + lead,
            stall_after=stall_after,
            lead=lead,
            memory=memory_limit(video.frame_bytes, [one.width * one.height for one in renditions], threads=threads),
            scratch=targets[0].absolute().parent,
            hidden=(source.absolute(),),
        )
        frames = {count_frames(work) for work in works}
        if len(frames) > 1:
            raise MediaError(OUTPUT_MISMATCH, f"renditions of chunk {chunk.index} have different numbers of frames: {frames}.")
        return frames.pop()

    chosen = choose_encoder(encoder, ffmpeg)
    with ExitStack() as stack:
        works = [stack.enter_context(work_file(target)) for target in targets]
        try:
            _encode(chunk, video, lambda *, seek: attempt(chosen, works, seek=seek))
        except MediaError as error:
            if chosen.family == SOFTWARE or error.code not in _OF_THE_HARDWARE:
                raise
            doubted, chosen = chosen, choose_encoder(SOFTWARE, ffmpeg)
            _encode(chunk, video, lambda *, seek: attempt(chosen, works, seek=seek))
            doubt(doubted, ffmpeg)  # it was not the source
    seconds = time.monotonic() - begun
    return tuple(
        ChunkFacts(frames=count_frames(target), bytes=size, sha256=sha256, encoder=chosen.name, seconds=seconds)
        for target in targets
        for size, sha256 in [digest(target)]
    )


def _lead(video: VideoFacts, chunk: Chunk, *, seek: bool) -> float:
    """Return how many seconds of the source are read before the first frame of the chunk: nothing is written meanwhile.

    To decode takes less time than to watch, also on a slow machine: so that many seconds more may pass in silence.
    """
    if chunk.index == 0:
        return 0.0
    return min(video.key_frame_gap, chunk.start) if seek else float(chunk.start)


def count_frames(path: Path) -> int:
    """Return how many frames an encoded chunk holds; raises OUTPUT_EMPTY, OUTPUT_MISMATCH."""
    try:
        with path.open("rb") as file:
            frames = len(read_movie(file).samples)
    except FileNotFoundError:
        frames = 0
    except Broken as error:
        raise MediaError(OUTPUT_MISMATCH, f"the encoded chunk is no whole file: {error}.") from error
    if frames == 0:
        raise MediaError(OUTPUT_EMPTY, "ffmpeg ended well and wrote no frame. Another attempt may do better.")
    return frames


def _encode(chunk: Chunk, video: VideoFacts, attempt: Callable[..., int]) -> None:
    """Encode from the key frame before the chunk; should that give other frames than the chunk has, from the beginning.

    Reading from the beginning is slow and beyond doubt: every frame is decoded in order, and falls into one chunk.
    """
    if chunk.index > 0:
        try:
            if attempt(seek=True) == chunk.frames:
                return
        except MediaError as error:
            if error.code not in (ENCODE_FAILED, OUTPUT_EMPTY):
                raise
    try:
        frames = attempt(seek=False)
    except MediaError as error:
        if error.code == ENCODE_FAILED and any(words in error.detail for words in _OF_THE_INPUT):
            message = f"the source does not decode between {chunk.start} s and {chunk.start + chunk.seconds:.0f} s."
            raise MediaError(INPUT_DAMAGED, message, detail=error.detail) from error
        raise
    if frames < chunk.frames - (not video.steady):
        message = f"chunk {chunk.index} has {chunk.frames} frames in the source, and only {frames} of them decode."
        raise MediaError(INPUT_DAMAGED, message)
    if frames > chunk.frames + (not video.steady):
        message = f"chunk {chunk.index} has {chunk.frames} frames in the source, and {frames} were encoded."
        raise MediaError(OUTPUT_MISMATCH, message)


def _reading(
    plan: Plan, video: VideoFacts, chunk: Chunk, encoder: Encoder, *, source: Path, seek: bool, threads: int
) -> list[str]:
    """Return how ffmpeg reads the source."""
    strict = video.steady and video.seeks_cleanly and not (video.ragged_end and chunk.end_tick is None)
    before = [*encoder.before_input, *(STRICT if strict else ()), "-threads", str(threads)]
    if video.steady:
        before.append("-copyts")
    if seek:
        before += ["-seek_timestamp", "1", "-noaccurate_seek", "-ss", f"{_seek_point(video, chunk):.6f}"]
    return reading(source, plan, *before)


def _graph(video: VideoFacts, renditions: Sequence[Rendition], chunk: Chunk, encoder: Encoder) -> str:
    """Return the filters: the frames of the chunk are chosen once, and made into each size."""
    ends = [f"[in{number}]" for number in range(len(renditions))]
    chosen = f"[0:{video.index}]" + ",".join([*_timing(video, chunk), *_progressive(video)])
    sizes = [
        f"{end}{','.join([*_size(video, rendition), *encoder.filters])}[out{number}]"
        for number, (end, rendition) in enumerate(zip(ends, renditions, strict=True))
    ]
    return ";".join([f"{chosen},split={len(renditions)}{''.join(ends)}", *sizes])


def _writing(plan: Plan, rendition: Rendition, chunk: Chunk, encoder: Encoder, *, threads: int) -> list[str]:
    """Return how ffmpeg encodes one rendition, but for its file."""
    bounds = [chunk.start, *range(chunk.start, math.ceil(chunk.start + chunk.seconds - STUB_SECONDS), plan.segment_seconds)[1:]]
    return [
        *("-map_metadata", "-1", "-map_chapters", "-1", "-fps_mode", "passthrough", "-enc_time_base", f"1:{CLOCK}"),
        *("-c:v", encoder.name, *quality_options(encoder, rendition), "-threads", str(threads)),
        # Key frames at the bounds of segments, and nowhere else: at the same times in every rendition.
        *("-force_key_frames", ",".join(map(str, bounds)), "-g", "100000"),
        *("-video_track_timescale", str(CLOCK), "-flags", "+bitexact", "-fflags", "+bitexact"),
        # frag_discont keeps the time of the first frame, negative offsets keep it free of an edit list
        *("-movflags", f"{FRAGMENTS}+frag_keyframe+frag_discont+negative_cts_offsets", "-f", "mp4"),
    ]


def _seek_point(video: VideoFacts, chunk: Chunk) -> float:
    """Return where reading begins, in seconds on the file's clock: the reader goes to the key frame before it.

    Without an index it goes to any packet before it, so the start is set back until a key frame must come in time.
    """
    first = (chunk.first_tick or 0) * video.time_base[0] / video.time_base[1]
    return first if video.seeks_cleanly else first - video.key_frame_gap - 0.5


def _timing(video: VideoFacts, chunk: Chunk) -> list[str]:
    """Return the filters that choose the frames by whole ticks, and set their time on the clock of the output."""
    if chunk.first_tick is None:
        rate = f"{CLOCK * video.frame_rate[1]}/{video.frame_rate[0]}"
        return [f"settb=1/{CLOCK}", f"setpts=N*{rate}"]
    first = max(chunk.first_tick, video.start)
    end = f":end_pts={chunk.end_tick}" if chunk.end_tick is not None else f":end_pts={video.end}" if video.ragged_end else ""
    return [f"trim=start_pts={first}{end}", f"setpts=PTS-({video.start})", f"settb=1/{CLOCK}"]


def _progressive(video: VideoFacts) -> list[str]:
    """Return the filters that make whole frames of fields, as many as there were."""
    return ["yadif=mode=send_frame:deint=interlaced", f"settb=1/{CLOCK}"] if video.interlaced else []


def _size(video: VideoFacts, rendition: Rendition) -> list[str]:
    """Return the filters for the size; ffmpeg has turned the picture by then."""
    # Naming a range makes the scaler work even where nothing changes, so only what has the other one names it.
    full = ":out_range=tv" if video.pixel_format.startswith("yuvj") else ""
    return [f"scale={rendition.width}:{rendition.height}:flags=bicubic{full}", "setsar=1"]


def quality_options(encoder: Encoder, rendition: Rendition) -> list[str]:
    """Return the options of the encoder: constant quality under a ceiling, which chunks do not disturb as an average would."""
    ceiling = ["-maxrate", f"{rendition.video_kbps}k", "-bufsize", f"{2 * rendition.video_kbps}k"]
    if encoder.family == SOFTWARE:
        return ["-preset", rendition.preset, "-crf", str(rendition.crf), *ceiling, "-sc_threshold", "0", "-profile:v", "high"]
    return [*encoder.options, "-b:v", f"{rendition.video_kbps * 4 // 5}k", *ceiling, "-profile:v", "high"]
