"""Is what was made complete? Asked of the files themselves, before anybody is told that a video is ready."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast_media.errors import OUTPUT_EMPTY, OUTPUT_MISMATCH, MediaError, Stopped
from holdfast_media.ffmpeg.limits import time_limit
from holdfast_media.source.probe import ask
from holdfast_media.transcode.audio import PRIMING, RATE
from holdfast_media.transcode.boxes import HEADER, Broken, find, read_movie
from holdfast_media.transcode.facts import Verdict
from holdfast_media.transcode.master import MASTER
from holdfast_media.transcode.plan import CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast_media.transcode.facts import PackageFacts
    from holdfast_media.transcode.plan import Plan

_MAP: Final = re.compile(r'#EXT-X-MAP:URI="([^"]+)"')
_LENGTH: Final = re.compile(r"#EXTINF:([0-9.]+),")


class Counted(NamedTuple):
    """What is in a playlist: where segments begin, in ticks, and what they hold."""

    starts: tuple[int, ...]
    frames: int
    end: int
    bytes: int


def verify(
    folder: Path,
    plan: Plan,
    renditions: Sequence[PackageFacts],
    sound: PackageFacts | None = None,
    *,
    decode: bool = False,
    on_progress: Callable[[float], None] | None = None,
    stop: Callable[[], str | None] | None = None,
) -> Verdict:
    """Check the output in `folder` (master, one folder for each package) and return what was counted.

    Every playlist is complete and every segment there and not empty; segments begin with key frames, at the same times in all
    renditions; frames are as many as the source's and the length is the same within one frame. `decode` also decodes every
    frame, in a process of its own. Raises OUTPUT_EMPTY, OUTPUT_MISMATCH.
    """
    packages = [*renditions, *([sound] if sound is not None else [])]
    _master_names(folder / MASTER, packages)
    counted: dict[str, Counted] = {}
    for number, package in enumerate(packages):
        counted[package.name] = _counted(folder / package.name / package.playlist, stop, picture=package is not sound)
        if on_progress is not None:
            on_progress((number + 1) / len(packages) / (2 if decode else 1))
    for package in renditions:
        _like_the_source(package.name, counted[package.name], plan)
    if sound is not None:
        length = (counted[sound.name].end - PRIMING) / RATE
        if abs(length - plan.sound_seconds) > 2 * PRIMING / RATE:
            message = f"the sound is {length:.2f} s long, and that of the source {plan.sound_seconds:.2f} s."
            raise MediaError(OUTPUT_MISMATCH, message)
    if len(different := {counted[package.name].starts for package in renditions}) > 1:
        raise MediaError(OUTPUT_MISMATCH, f"key frames are not at the same times: {len(different)} different layouts.")
    if decode:
        for number, package in enumerate(renditions):
            _decoded(folder / package.name / package.playlist, counted[package.name].frames, plan.seconds, stop)
            if on_progress is not None:
                on_progress(0.5 + (number + 1) / len(renditions) / 2)
    first = counted[packages[0].name]
    return Verdict(
        frames=first.frames if renditions else 0,
        seconds=first.end / CLOCK if renditions else (first.end - PRIMING) / RATE,
        segments=sum(len(one.starts) for one in counted.values()),
        bytes=sum(one.bytes for one in counted.values()),
        renditions=tuple(package.name for package in renditions),
        decoded=decode,
    )


def read_playlist(path: Path) -> list[tuple[str, str, float]]:
    """Return header, name and length of every segment; raises OUTPUT_MISMATCH for a playlist that is not complete."""
    lines = _text(path).splitlines()
    if lines[:1] != ["#EXTM3U"] or lines[-1:] != ["#EXT-X-ENDLIST"]:
        raise MediaError(OUTPUT_MISMATCH, f"the playlist of {path.parent.name} is not complete.")
    header, length = "", 0.0
    segments = []
    for line in lines:
        if found := _MAP.fullmatch(line):
            header = found[1]
        elif found := _LENGTH.fullmatch(line):
            length = float(found[1])
        elif line and not line.startswith("#"):
            segments.append((header, line, length))
    if not segments:
        raise MediaError(OUTPUT_EMPTY, f"the playlist of {path.parent.name} has no segments.")
    return segments


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MediaError(OUTPUT_EMPTY, f"{path.parent.name}/{path.name} is missing or cannot be read.") from error


def _master_names(path: Path, packages: Sequence[PackageFacts]) -> None:
    text = _text(path)
    for package in packages:
        if f"{package.name}/{package.playlist}" not in text:
            raise MediaError(OUTPUT_MISMATCH, f"the master playlist does not name {package.name}.")


def _counted(playlist: Path, stop: Callable[[], str | None] | None, *, picture: bool) -> Counted:
    """Count what the segments of a playlist hold, from their own tables."""
    name = playlist.parent.name
    headers: dict[str, bytes] = {}
    starts: list[int] = []
    frames = total = end = 0
    for header, segment, length in read_playlist(playlist):
        if stop is not None and (reason := stop()) is not None:
            raise Stopped(reason)
        try:
            if header not in headers:
                content = (playlist.parent / header).read_bytes()
                begin, finish = find(content, b"moov")
                headers[header] = content[begin:finish]
            with (playlist.parent / segment).open("rb") as file:
                samples = read_movie(file, headers[header]).samples
                total += file.seek(0, 2)
        except (OSError, Broken) as error:
            raise MediaError(OUTPUT_EMPTY, f"{segment} of {name} is missing or not whole. Package it again.") from error
        if not samples or sum(sample.size for sample in samples) <= HEADER:
            raise MediaError(OUTPUT_EMPTY, f"{segment} of {name} holds nothing.")
        ticks = sum(sample.duration for sample in samples)
        if not samples[0].key or samples[0].decoded != end:
            raise MediaError(OUTPUT_MISMATCH, f"{segment} of {name} does not begin with a key frame where the last one ended.")
        if picture and abs(ticks / CLOCK - length) > 1e-3:  # noqa: PLR2004  a millisecond
            raise MediaError(OUTPUT_MISMATCH, f"{segment} of {name} is not as long as the playlist says.")
        starts.append(samples[0].decoded)
        frames += len(samples)
        end = samples[-1].decoded + samples[-1].duration
    return Counted(tuple(starts), frames, end, total)


def _like_the_source(name: str, counted: Counted, plan: Plan) -> None:
    if plan.video is None:
        raise MediaError(OUTPUT_MISMATCH, f"{name} has a picture, and the source has none.")
    if abs(counted.frames - plan.video.frames) > (0 if plan.video.steady else 1):
        message = f"{name} has {counted.frames} frames, and the source {plan.video.frames}."
        raise MediaError(OUTPUT_MISMATCH, message)
    frame = plan.video.frame_rate[1] / plan.video.frame_rate[0]
    if abs(counted.end / CLOCK - plan.seconds) > frame:
        message = f"{name} is {counted.end / CLOCK:.3f} s long, and the source {plan.seconds:.3f} s."
        raise MediaError(OUTPUT_MISMATCH, message)


def _decoded(playlist: Path, frames: int, seconds: float, stop: Callable[[], str | None] | None) -> None:
    """Decode every frame of a playlist and count what comes out."""
    try:
        found = ask("count", playlist.absolute(), timeout=time_limit(seconds), stop=stop).frames
    except MediaError as error:
        if error.retryable:  # by the reader and not by what it read: that is no reason to throw away what was made
            raise
        message = f"{playlist.parent.name} does not decode: {error.message}"
        raise MediaError(OUTPUT_MISMATCH, message, detail=error.detail) from error
    if found != frames:
        raise MediaError(OUTPUT_MISMATCH, f"{playlist.parent.name} has {frames} frames, and {found} of them decode.")
