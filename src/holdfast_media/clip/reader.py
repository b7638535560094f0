"""The process that reads a source: `python -m holdfast_media.clip.reader FILE START END`. Prints one line of JSON."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Final

import av
import av.error
import msgspec

from holdfast_media.clip.reading import FORMATS, STREAMS, Picture, Refusal, Sound, Stretch
from holdfast_media.errors import INPUT_EMPTY, INPUT_MISSING, INPUT_NO_MEDIA, INPUT_UNREADABLE, MediaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.stream import Stream
    from av.video.stream import VideoStream

NEAR: Final = Fraction(1, 2000)
"""Half a millisecond: times are written with three digits after the point."""
EARLIER: Final = (0, 10, 60)
"""Seconds before the start to look from, when looking from there has found no key frame; after that, from the beginning."""
FIRST: Final = 32
"""Packets among which the first frame is: more than any codec reorders."""
USUAL: Final = Fraction(1, 25)


def main(path: str, start: str, end: str) -> None:
    """Read, and print what was found or why nothing was."""
    try:
        found: Stretch | Refusal = read(path, Fraction(start), None if end == "end" else Fraction(end))
    except MediaError as error:
        found = Refusal(code=error.code, message=error.message)
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


def read(path: str, start: Fraction, end: Fraction | None) -> Stretch:
    """Return what there is between two times, or raise `MediaError` with an `INPUT_…` code."""
    with open_source(path) as container:
        video, audio = streams_of(container)
        origin = origin_of(container, video)
        return Stretch(
            container=container.format.name,
            origin=(origin.numerator, origin.denominator),
            seconds=None if container.duration is None else container.duration / 1_000_000,
            picture=None if video is None else _picture(path, origin + start, None if end is None else origin + end),
            sound=None if audio is None else Sound(index=audio.index, codec=audio.codec_context.name),
        )


@contextmanager
def open_source(path: str) -> Iterator[InputContainer]:
    """Open a file, and nothing it may name: other files and addresses are out of reach. Raises `MediaError`."""
    options = {"protocol_whitelist": "file", "format_whitelist": FORMATS}
    try:
        with av.open(path, container_options=options, metadata_errors="replace") as container:
            yield container
    except FileNotFoundError:
        raise MediaError(INPUT_MISSING, "there is no such file") from None
    except PermissionError:
        raise MediaError(INPUT_MISSING, "the file may not be read") from None
    except av.error.EOFError:
        raise MediaError(INPUT_EMPTY, "the file ends before it has begun") from None
    except (av.error.FFmpegError, OSError, ValueError, MemoryError) as error:
        raise MediaError(INPUT_UNREADABLE, f"this is no media file that can be read: {_words(error)}") from None


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


def streams_of(container: InputContainer) -> tuple[VideoStream | None, AudioStream | None]:
    """Return the picture and the sound that count: the first of each; a cover picture is none. Raises `INPUT_NO_MEDIA`."""
    known = list(container.streams)[:STREAMS]
    video = next((one for one in container.streams.video if one in known and not _is_cover(one)), None)
    audio = next((one for one in container.streams.audio if one in known and one.codec_context is not None), None)
    if video is None and audio is None:
        raise MediaError(INPUT_NO_MEDIA, "the file has neither picture nor sound")
    return video, audio


def origin_of(container: InputContainer, video: VideoStream | None) -> Fraction:
    """Return where time begins: with the first frame, as in what players get, also where sound is there before it.

    Reads the first packets, so the container must be fresh: what headers say of the first frame is not always so.
    """
    if video is None or video.time_base is None:
        return Fraction(container.start_time or 0, 1_000_000)
    packets = islice(container.demux(video), FIRST)
    return min((packet.pts for packet in packets if packet.pts is not None), default=video.start_time or 0) * video.time_base


def seek(container: InputContainer, video: VideoStream, tick: int) -> bool:
    """Go to a time, or near it, in a fresh container. The beginning is not sought: some containers would skip a frame.

    Returns whether it has moved.
    """
    if tick <= (video.start_time or 0):
        return False
    container.seek(tick, stream=video, backward=True)
    return True


def _is_cover(stream: Stream) -> bool:
    """Tell a picture that goes with music from a video."""
    return bool(stream.disposition & stream.disposition.attached_pic)


def _picture(path: str, start: Fraction, end: Fraction | None) -> Picture:
    for earlier in EARLIER:
        with open_source(path) as container:
            found, whole = _found(container, start, end, earlier)
        if whole:
            return found
    with open_source(path) as container:
        return _found(container, start, end, None)[0]


def _found(container: InputContainer, start: Fraction, end: Fraction | None, earlier: int | None) -> tuple[Picture, bool]:
    """Return what was found, and whether all of the stretch was read: some containers go behind what they are asked for."""
    stream, _ = streams_of(container)
    assert stream is not None  # noqa: S101  was there a moment ago
    base = stream.time_base or Fraction(1, 1000)
    first_tick = math.ceil((start - NEAR) / base)
    end_tick = math.inf if end is None else math.ceil((end - NEAR) / base)
    sought = earlier is not None and seek(container, stream, first_tick - round(earlier / base))
    times, keys, ends, steady = _packets(container, stream, end_tick)
    inside = [time for time, _ in times if first_tick <= time < end_tick]
    behind = [time for time, _ in times if time >= end_tick]
    first, last = min(inside, default=None), max(inside, default=None)
    frame = frame_of(stream)
    length = max((span for time, span in times if time == last), default=0) or round(frame / base)
    picture = Picture(
        index=stream.index,
        codec=stream.codec_context.name,
        time_base=(base.numerator, base.denominator),
        frame=(frame.numerator, frame.denominator),
        key=max((key for key in keys if first is not None and key <= first), default=None),
        first=first,
        last=last,
        after=min(behind) if behind else None if last is None else last + length,
        frames=len(inside),
        ends=ends and not behind,
        steady=steady,
    )
    return picture, not sought or any(key <= first_tick for key in keys)


def frame_of(stream: VideoStream) -> Fraction:
    """Return how long a frame lasts, in seconds, on average."""
    return 1 / rate if (rate := stream.average_rate or stream.guessed_rate) else USUAL


def _packets(
    container: InputContainer, stream: VideoStream, end_tick: float
) -> tuple[list[tuple[int, int]], list[int], bool, bool]:
    """Return times and lengths of the packets up to a time, which are key frames, if the file ended, if all say their time."""
    times: list[tuple[int, int]] = []
    keys: list[int] = []
    steady = True
    for packet in container.demux(stream):
        if packet.size == 0:
            continue  # the end, for those who decode
        if packet.pts is None:
            steady = False
            continue
        times.append((packet.pts, packet.duration or 0))
        if packet.is_keyframe:
            keys.append(packet.pts)
        # no frame is shown before it is decoded: from here on all are behind the end
        if packet.dts is not None and packet.dts >= end_tick and packet.pts >= end_tick:
            return times, keys, False, steady
    return times, keys, True, steady


if __name__ == "__main__":
    main(*sys.argv[1:])
