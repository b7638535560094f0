"""Encoding the sound: once, in one piece, for all renditions."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import OUTPUT_EMPTY, OUTPUT_MISMATCH, PLAN_INVALID, MediaError
from holdfast_media.ffmpeg.limits import time_limit
from holdfast_media.ffmpeg.run import run
from holdfast_media.transcode.boxes import Broken, read_movie
from holdfast_media.transcode.facts import ChunkFacts
from holdfast_media.transcode.output import FRAGMENTS, digest, reading, work_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.ffmpeg.progress import Progress
    from holdfast_media.source.facts import AudioFacts
    from holdfast_media.transcode.plan import Plan

RATE: Final = 48_000
PRIMING: Final = 1024
"""Samples that the encoder puts before the sound: one packet."""
_ENCODER: Final = "aac"
_FRAGMENT_MICROSECONDS: Final = 10_000_000


def encode_audio(
    source: Path,
    plan: Plan,
    target: Path,
    *,
    on_progress: Callable[[float], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    ffmpeg: Path | None = None,
    stall_after: float = 60.0,
    timeout: float | None = None,
) -> ChunkFacts:
    """Encode the sound of `plan.audio` as stereo AAC into the file `target` (`….mp4`), on the clock of the picture.

    It begins with the first frame and is as long as the picture: sound outside that is cut, and where there is none, there is
    silence. A packet that does not decode is silence too, for most sound begins or ends with one. Call it only for a plan with
    `audio`. Raises as `encode_chunk` does.
    """
    sound = plan.audio
    if sound is None:
        raise MediaError(PLAN_INVALID, "the plan has no sound, so there is nothing to encode.")
    begun = time.monotonic()

    def tell(progress: Progress) -> None:
        if on_progress is not None:
            on_progress(progress.fraction)

    with work_file(target) as work:
        run(
            [*_arguments(source, plan, sound), "-y", f"file:{work.absolute()}"],
            ffmpeg=ffmpeg,
            duration=plan.seconds,
            on_progress=tell,
            stop=stop,
            timeout=time_limit(plan.seconds) if timeout is None else timeout,
            stall_after=stall_after,
            scratch=target.absolute().parent,
            hidden=(source.absolute(),),
        )
        packets, seconds = _measured(work)
        if abs(seconds - plan.seconds) > 2 * PRIMING / RATE:
            message = f"the sound is {seconds:.2f} s long and the source {plan.seconds:.2f} s."
            raise MediaError(OUTPUT_MISMATCH, message)
    size, sha256 = digest(target)
    return ChunkFacts(frames=packets, bytes=size, sha256=sha256, encoder=_ENCODER, seconds=time.monotonic() - begun)


def _arguments(source: Path, plan: Plan, sound: AudioFacts) -> list[str]:
    filters = []
    before: list[str] = []
    if plan.video is None or plan.video.steady:
        start = sound.start if plan.video is None else float(plan.video.start * Fraction(*plan.video.time_base))
        before = ["-copyts"]
        filters = [f"asetpts=PTS-({start:.9f})/TB"]
    # async=1 fills gaps with silence and never stretches; first_pts=0 cuts or fills the beginning
    filters += [f"aresample={RATE}:async=1:first_pts=0", f"aformat=sample_rates={RATE}:channel_layouts=stereo"]
    filters += [f"apad=whole_dur={plan.seconds:.6f}", f"atrim=end={plan.seconds:.6f}"]
    return [
        *reading(source, plan, *before),
        *("-map", f"0:{sound.index}", "-vn", "-sn", "-dn", "-map_metadata", "-1", "-map_chapters", "-1"),
        *(
            "-af",
            ",".join(filters),
            "-c:a",
            _ENCODER,
            "-b:a",
            f"{plan.audio_kbps}k",
            "-flags",
            "+bitexact",
            "-fflags",
            "+bitexact",
        ),
        *("-movflags", FRAGMENTS, "-frag_duration", str(_FRAGMENT_MICROSECONDS), "-f", "mp4"),
    ]


def _measured(path: Path) -> tuple[int, float]:
    """Return how many packets the file holds and how long they sound."""
    try:
        with path.open("rb") as file:
            samples = read_movie(file).samples
    except Broken as error:
        raise MediaError(OUTPUT_MISMATCH, f"the encoded sound is no whole file: {error}.") from error
    if not samples:
        raise MediaError(OUTPUT_EMPTY, "ffmpeg ended well and wrote no sound. Another attempt may do better.")
    return len(samples), max(sum(sample.duration for sample in samples) - PRIMING, 0) / RATE
