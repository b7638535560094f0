"""The process that copies a stretch: `python -m holdfast_media.clip.copier SOURCE TARGET START END`. Prints lines of JSON.

ffmpeg's own copying is not used: it seeks by rules of thumb, so it may begin a key frame too early, and it ends by the order of
decoding, so frames before the end may be missing. Here the copy begins with the very key frame that is stated, and ends where
no frame before the end is missing.
"""

from __future__ import annotations

import errno
import math
import sys
import time
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import av.error
import msgspec

from holdfast_media.clip.copying import Copied, Share
from holdfast_media.clip.reader import NEAR, frame_of, open_source, origin_of, seek, streams_of
from holdfast_media.clip.reading import Refusal
from holdfast_media.errors import DISK_FULL, FAST_IMPOSSIBLE, INPUT_UNREADABLE, MediaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import InputContainer, OutputContainer
    from av.packet import Packet
    from av.stream import Stream
    from av.video.stream import VideoStream

AHEAD = 64
"""Packets of the picture that are looked at beyond the end: more than any codec reorders."""
TELL_EVERY = 1.0
"""Seconds between two signs of life while nothing is copied yet."""
LAGS = 5
"""Seconds that sound may stand behind the picture in a file."""


def main(source: str, target: str, key: str, end: str) -> None:
    """Copy, and print what was copied or why nothing was."""
    try:
        answer: Copied | Refusal = copy(source, target, int(key), None if end == "end" else Fraction(end))
    except MediaError as error:
        answer = Refusal(code=error.code, message=error.message)
    _say(answer)


def copy(source: str, target: str, key: int, end: Fraction | None) -> Copied:
    """Copy from the key frame with this time, in ticks of the picture, to the end of the stretch."""
    with open_source(source) as container:
        video, _ = streams_of(container)
        if video is None or video.time_base is None:
            raise MediaError(FAST_IMPOSSIBLE, "a source without a picture has no key frames")
        end_tick = math.inf if end is None else math.ceil((origin_of(container, video) + end - NEAR) / video.time_base)
    seconds_before = _room_before(source, key)
    count, after = _length(source, seconds_before, key, end_tick)
    try:
        with open_source(source) as container, av.open(target, "w", options=_options(target)) as output:
            _copy(container, output, seconds_before=seconds_before, key=key, count=count, after=after)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise MediaError(DISK_FULL, "there is no room left where it works") from None
        raise MediaError(INPUT_UNREADABLE, f"these streams cannot be copied: {error.strerror}") from None
    return Copied(frames=count, after=after)


def _options(target: str) -> dict[str, str]:
    return {"movflags": "+faststart"} if target.endswith(".mp4") else {}


def _room_before(source: str, key: int) -> int | None:
    """Return how many seconds before the key frame to seek to, so that it surely follows; `None`: begin with the file.

    Some containers go only near to what they are asked for.
    """
    for seconds in (0, 2, 20):
        with _opened_at(source, key, seconds) as (container, video):
            first = next((packet.pts for packet in container.demux(video) if packet.pts is not None), None)
            if first is not None and first <= key:
                return seconds
    return None


def _length(source: str, seconds_before: int | None, key: int, end_tick: float) -> tuple[int, int]:
    """Return how many frames to copy, in the order of decoding, and where the last of them ends.

    All frames before the end are among them, and between those that are none is missing: a copy may end only where every frame
    so far is shown before every frame that follows.
    """
    times: list[tuple[int, int]] = []
    beyond = 0
    with _opened_at(source, key, seconds_before) as (container, video):
        usual = round(frame_of(video) / (video.time_base or 1))
        for time, packet in _picture(container.demux(video), key):
            times.append((time, packet.duration or usual))
            beyond = beyond + 1 if packet.dts is not None and packet.dts >= end_tick else 0
            if beyond > AHEAD:
                break
    earliest = [math.inf] * (len(times) + 1)
    for at in range(len(times) - 1, -1, -1):
        earliest[at] = min(earliest[at + 1], times[at][0])
    latest = (key, usual)
    for at, one in enumerate(times):
        latest = max(latest, one)
        if latest[0] < earliest[at + 1] and earliest[at + 1] >= end_tick:
            return at + 1, sum(latest)
    return len(times), sum(latest)


def _copy(
    container: InputContainer, output: OutputContainer, *, seconds_before: int | None, key: int, count: int, after: int
) -> None:
    video, audio = streams_of(container)
    assert video is not None  # noqa: S101  was there a moment ago
    assert video.time_base is not None  # noqa: S101  as above
    begin, end = key * video.time_base, after * video.time_base
    targets = {one.index: output.add_stream_from_template(one) for one in (video, audio) if one is not None}
    if seconds_before is not None:
        seek(container, video, key - round(seconds_before / video.time_base))
    seen, frames, heard = False, 0, audio is None
    for packet in container.demux(*(one for one in (video, audio) if one is not None)):
        if packet.size == 0 or packet.pts is None:
            continue
        at = packet.pts * packet.time_base
        if packet.stream is video:
            seen = seen or packet.pts == key
            if frames == count:
                heard = heard or at > end + LAGS
            elif seen and packet.pts >= key:
                frames += 1
                _put(output, packet, targets[video.index], begin)
                _say(Share(share=frames / count))
        elif begin <= at < end:
            _put(output, packet, targets[packet.stream.index], begin)
        else:
            heard = heard or at >= end
        if frames == count and heard:
            return


def _picture(packets: Iterator[Packet[Any]], key: int) -> Iterator[tuple[int, Packet[Any]]]:
    """Yield the packets from the key frame on with their times; not those that are shown before it, which lean on others.

    Reading far is no standing still: it is told now and then.
    """
    seen, told = False, -math.inf
    for packet in packets:
        if (now := time.monotonic()) - told >= TELL_EVERY:
            told = now
            _say(Share(share=0.0))
        if packet.size and packet.pts is not None:
            seen = seen or packet.pts == key
            if seen and packet.pts >= key:
                yield packet.pts, packet


@contextmanager
def _opened_at(source: str, key: int, seconds_before: int | None) -> Iterator[tuple[InputContainer, VideoStream]]:
    with open_source(source) as container:
        video, _ = streams_of(container)
        assert video is not None  # noqa: S101  was there a moment ago
        if seconds_before is not None:
            seek(container, video, key - round(seconds_before / (video.time_base or 1)))
        yield container, video


def _put(output: OutputContainer, packet: Packet[Any], target: Stream, begin: Fraction) -> None:
    """Write a packet with its time counted from the key frame."""
    shift = round(begin / packet.time_base)
    packet.stream = target
    packet.pts = None if packet.pts is None else packet.pts - shift
    packet.dts = None if packet.dts is None else packet.dts - shift
    output.mux(packet)


def _say(what: Copied | Refusal | Share) -> None:
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
