"""Encoding the sound: once, in one piece, for all renditions."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import ENCODE_FAILED, INPUT_DAMAGED, OUTPUT_EMPTY, OUTPUT_MISMATCH, PLAN_INVALID, MediaError
from holdfast_media.ffmpeg.limits import memory_limit, time_limit
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
_MOST_LOST: Final = 0.001
_FEW: Final = 3
"""Packets that may be lost however short the sound is: one that was cut off at either end, and one that leans on it."""
_TOO_MUCH_LOST: Final = ("Decode error rate", "-1145393733")
"""How ffmpeg says that more packets did not decode than it was told to bear: in words, and as a number that stands for none."""


def encode_audio(
    source: Path,
    plan: Plan,
    target: Path,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    ffmpeg: Path | None = None,
    stall_after: float = 60.0,
    timeout: float | None = None,
) -> ChunkFacts:
    """Encode the sound of `plan.audio` as stereo AAC into the file `target` (`….mp4`), on the clock of the picture.

    It begins with the first frame, and lasts as long as the picture or longer (`plan.sound_seconds`); where there is none,
    there is silence. A packet that does not decode is silence too, for most sound begins or ends with one; more than a few of
    them are INPUT_DAMAGED. Call it only for a plan with `audio`. Raises as `encode_chunk` does.
    """
    sound = plan.audio
    if sound is None:
        raise MediaError(PLAN_INVALID, "the plan has no sound, so there is nothing to encode.")
    begun = time.monotonic()
    with work_file(target) as work:
        try:
            run(
                [*_arguments(source, plan, sound), "-y", f"file:{work.absolute()}"],
                ffmpeg=ffmpeg,
                duration=plan.sound_seconds,
                on_progress=on_progress,
                stop=stop,
                timeout=time_limit(plan.sound_seconds) if timeout is None else timeout,
                stall_after=stall_after,
                memory=memory_limit(0.0 if plan.video is None else plan.video.frame_bytes),
                scratch=target.absolute().parent,
                hidden=(source.absolute(),),
            )
        except MediaError as error:
            if error.code == ENCODE_FAILED and any(words in error.detail for words in _TOO_MUCH_LOST):
                message = "more of the sound does not decode than the few packets that a cut leaves. Upload it again."
                raise MediaError(INPUT_DAMAGED, message, detail=error.detail) from error
            raise
        packets, seconds = _measured(work)
        if abs(seconds - plan.sound_seconds) > 2 * PRIMING / RATE:
            message = f"the sound is {seconds:.2f} s long and that of the source {plan.sound_seconds:.2f} s."
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
    filters += [f"apad=whole_dur={plan.sound_seconds:.6f}", f"atrim=end={plan.sound_seconds:.6f}"]
    return [
        # of the whole program, and without it ffmpeg goes on with two thirds of the sound lost
        *("-max_error_rate", f"{_bearable(sound):.6f}"),
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


def _bearable(sound: AudioFacts) -> float:
    """Return the share of packets that may be lost."""
    return min(max(_MOST_LOST, _FEW / sound.packets if sound.packets else 0.01), 0.5)


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
