"""Reads one file and prints its facts: `python reader.py facts PATH HOW`, always in a process of its own (see `probe`).

`python reader.py check PATH INDEX HOW END` decodes the picture instead and prints how many frames came out (see `check`);
`python reader.py count PLAYLIST` does so with our own output (see `verify`).

Run by path, never imported by the worker: it loads libav, which a hostile file may crash. It needs PyAV and the standard
library. The last line of standard output is JSON: {"facts": …}, or {"code": …, "message": …} for what cannot be used.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import sys
from array import array
from collections import deque
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import av
import av.error
import av.logging

FORMATS: Final = (
    "aac,ac3,aiff,amr,asf,av1,avi,caf,dts,dv,eac3,flac,flv,h264,hevc,ivf,m4v,matroska,mov,mp3,mpeg,mpegts,mpegvideo,mxf,nut,obu,"
    "ogg,tta,vc1,w64,wav,wv"
)
"""Readers that take one file and open no other. Playlists, lists of files, devices and generators are not among them."""
_WITHOUT_INDEX: Final = frozenset({"mpegts", "mpeg", "mpegvideo", "m4v", "h264", "hevc", "obu", "dv"})
"""Readers that seek to any packet, not to a key frame."""
_LISTS: Final = (b"#EXTM3U", b"ffconcat", b"<?xml", b"<MPD", b"<SMIL", b"[playlist]", b"v=0\r\n", b"v=0\n")
_LIST_MESSAGE: Final = "a kind of file that is not accepted: playlists and lists of files could read other files."
_MOST_PIXELS: Final = 8192 * 8192
_LARGE: Final = 4096 * 2304
"""Pixels from which on as many threads as a machine has cores could need more memory than there is."""
_FEW_THREADS: Final = 4
_NEARLY: Final = 0.85
"""Of the limit on memory: who came so near to it was refused one frame more."""
_HEAD_PACKETS: Final = 48
_TAIL_GROUPS: Final = 3
_MOST_OF_A_GROUP: Final = 1000
_WITH_LENGTH: Final = frozenset({"mov", "matroska", "avi", "flv", "asf", "wav", "w64", "mxf", "flac"})
"""Containers whose header promises a length that can be held against what is there."""
_GRACE: Final = {"mxf": 0.1, "flac": 0.1, "asf": 1.0}
"""Seconds that may be missing, beside a frame or a packet of sound, where nothing else tells that a file was cut. The lengths
of others include subtitles, which are not read, or are guesses; those are counted, or end in the midst of a packet."""
_EVEN: Final = 0.95
"""Of the frames, for a film to be one of even frames."""
_GAP: Final = 1.0
"""Seconds without a frame from which on such a film lacks something; half of it without sound is silence."""
_RATES: Final = tuple(
    Fraction(rate) for rate in ("24000/1001", "24", "25", "30000/1001", "30", "48", "50", "60000/1001", "60", "100", "120")
)
_USUAL_RATE: Final = Fraction(25)


class Refused(Exception):
    """The file cannot be used."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class Picture(NamedTuple):
    """The packets of the picture: their times, those of key frames, and what is odd about them."""

    times: array[int]
    keys: list[int]
    lacking: int
    backwards: int
    open_gop: bool
    good_end: int | None
    """Frames from this time on are not whole, because the stream was cut."""
    last_duration: int
    decoding: tuple[int, int | None, int | None]
    """How many packets there are, and when the first and the last of them is decoded."""


def main(what: str, path: str, *more: str) -> None:
    """Print the facts of the file, or what checking it found, or why it cannot be used."""
    # libav says what it has to say by itself: its threads would wait for ours to pass it on, and ours for them to end
    av.logging.restore_default_callback()
    av.logging.set_libav_level(av.logging.ERROR)
    try:
        answer: dict[str, Any] = (
            {"facts": read(path, *more)}
            if what == "facts"
            else {"frames": count(path) if what == "count" else decode(path, *more)}
        )
    except Refused as refused:
        answer = {"code": refused.code, "message": refused.message}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


def read(path: str, how: str) -> dict[str, Any]:
    """Return the facts as plain data, in the shape of `Facts`; `how` is `open` for a file that promises no end, else `closed`.

    What libav has to complain of goes to standard error, where `probe` looks at it (see `promise` and `complaints`).
    """
    with _opened(path) as container:
        return _read(container, open_ended=how == "open")


def decode(path: str, index: str, how: str, end: str) -> int:
    """Decode the picture up to the tick `end` (`-`: all of it); an error anywhere but in a ragged head is damage.

    Says on standard output how far it is, one number of seconds for each line. A decoder that is told to be strict never
    finds its feet in a recording that began in the middle, so that one is decoded `kindly`.
    """
    frames = 0
    told = 0.0
    limit = sys.maxsize if end == "-" else int(end)
    with _opened(path) as container:
        stream = container.streams[int(index)]
        # Threads that decode whole frames tell of an error some packets later, which must not be taken for one of the end.
        _thread(stream, "AUTO" if end == "-" else "SLICE")
        if how == "strictly":
            stream.codec_context.options = {"err_detect": "explode"}
        for packet in container.demux(stream):
            try:
                decoded = [frame for frame in packet.decode() if frame.pts is None or frame.pts < limit]
            except av.error.FFmpegError as error:
                _must_have_memory(error)
                at = packet.pts if packet.pts is not None else packet.dts
                if frames and packet.size and (at is None or at < limit):
                    where = "" if at is None else f" at {float(at * packet.time_base):.2f} seconds"
                    raise Refused("INPUT_DAMAGED", f"the picture does not decode{where}.") from None
                continue
            if frames and any(frame.is_corrupt for frame in decoded):
                raise Refused("INPUT_DAMAGED", f"the picture does not decode at {decoded[0].time or 0.0:.2f} seconds.")
            frames += len(decoded)
            if decoded and (decoded[-1].time or 0.0) > told + 1:
                told = decoded[-1].time
                sys.stdout.write(f"{told:.1f}\n")
                sys.stdout.flush()
    if not frames:
        raise Refused("INPUT_DAMAGED", "no frame of the picture can be decoded.")
    return frames


def count(playlist: str) -> int:
    """Decode every frame of a playlist that we wrote, and return how many there are; any error is one too many."""
    folder = Path(playlist).parent
    runs: list[list[Path]] = []
    for line in Path(playlist).read_text(encoding="utf-8").splitlines():
        if line.startswith("#EXT-X-MAP:"):
            runs.append([folder / line.split('"')[1]])
        elif line and not line.startswith("#"):
            runs[-1].append(folder / line)
    frames = 0
    for run in runs:
        container: Any = av.open(Joined(run), format="mov")
        with container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            stream.codec_context.options = {"err_detect": "explode"}
            try:
                frames += sum(1 for _ in container.decode(stream))
            except av.error.FFmpegError as error:
                raise Refused("OUTPUT_MISMATCH", f"after {frames} frames: {error.strerror}.") from None
    return frames


class Joined(io.RawIOBase):
    """Files read one after the other, as a player gets a header and its segments."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = iter(paths)
        self._file: BinaryIO | None = None

    def readable(self) -> bool:
        """Say so."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to this many bytes; nothing at the end of the last file."""
        while True:
            if self._file is None:
                if (path := next(self._paths, None)) is None:
                    return b""
                self._file = path.open("rb")
            if data := self._file.read(size):
                return data
            self._file.close()
            self._file = None


def _opened(path: str, **more: str) -> Any:
    """Open the file, with readers that open no other; by a number, because libav also guesses from names."""
    descriptor = os.open(path, os.O_RDONLY)  # closed with this process
    if os.pread(descriptor, 64, 0).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(_LISTS):
        raise Refused("INPUT_UNSUPPORTED", _LIST_MESSAGE)
    options = {"protocol_whitelist": "file", "format_whitelist": FORMATS, **more}
    try:
        return av.open(f"file:/dev/fd/{descriptor}", options=options, metadata_errors="replace")
    except av.error.ArgumentError:
        raise Refused("INPUT_UNSUPPORTED", _LIST_MESSAGE) from None
    except (av.error.FFmpegError, ValueError):
        message = "no media file, or one whose beginning or index is missing (an upload that was cut off leaves such a file)."
        raise Refused("INPUT_UNREADABLE", message) from None


def _thread(stream: Any, how: str) -> None:
    """Have the stream decoded by threads, and a large picture by few: each of them has frames of its own."""
    stream.thread_type = how
    if stream.codec_context.width * stream.codec_context.height > _LARGE:
        stream.codec_context.thread_count = _FEW_THREADS


def _must_have_memory(error: Exception) -> None:
    """Raise `MemoryError` where a decoder failed for want of memory: it calls what it was given invalid, as if damaged."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    status = Path("/proc/self/status")  # where there is none, what libav says is all that tells (see `complaints`)
    peak = re.search(r"VmPeak:\s+(\d+) kB", status.read_text(encoding="utf-8")) if limit > 0 and status.exists() else None
    if isinstance(error, MemoryError) or (peak is not None and int(peak[1]) * 1024 > limit * _NEARLY):
        raise MemoryError from error


def _read(container: Any, *, open_ended: bool) -> dict[str, Any]:
    name = container.format.name.split(",")[0]
    video = _picture_stream(container)
    sounds = [stream for stream in container.streams.audio if stream.codec_context is not None and stream.rate]
    if video is None and not sounds:
        raise Refused("INPUT_NO_MEDIA", "the file has neither a picture nor sound that can be decoded.")
    head = _Head(video) if video is not None else None
    silences: dict[int, list[tuple[float, float]]] = {stream.index: [] for stream in sounds}
    picture, spans, broken = _packets(name, container, video, sounds, head, silences=silences)
    streams = [stream for stream in (video, *sounds) if stream is not None]
    # the length of sound alone may be libav's guess from its bit rate, where the header has none
    _must_be_whole(name, container, streams, spans, broken=broken, exact=open_ended and video is not None)
    if name == "matroska" and not open_ended and video is not None and picture is not None:
        _must_be_even(video, picture, [silences[index] for index in silences if index in spans])
    facts: dict[str, Any] = {"container": name, "size": container.size, "video": None, "audio": []}
    if video is not None and head is not None and picture is not None and (picture.times or picture.lacking):
        facts["video"] = _video_facts(container, video, picture, head)
    facts["audio"] = [_audio_facts(stream, spans[stream.index]) for stream in sounds if stream.index in spans]
    facts["audio"].sort(key=lambda sound: not sound["default"])
    if facts["video"] is not None:
        ticks = facts["video"]["end"] - facts["video"]["start"]
        facts["seconds"] = float(ticks * Fraction(*facts["video"]["time_base"]))
    elif facts["audio"]:
        facts["seconds"] = facts["audio"][0]["seconds"]
    else:
        raise Refused("INPUT_NO_MEDIA", "the file names streams and holds nothing of them.")
    return facts


def _picture_stream(container: Any) -> Any:
    """Return the stream with the film: not the cover of an album, nor a preview picture."""
    real = []
    for stream in container.streams.video:
        flags = stream.disposition
        if stream.codec_context is None or flags & (flags.attached_pic | flags.timed_thumbnails | flags.still_image):
            continue
        if stream.codec_context.width * stream.codec_context.height > _MOST_PIXELS:
            raise Refused("INPUT_TOO_LARGE", f"the picture has more than {_MOST_PIXELS // 1_000_000} million pixels.")
        real.append(stream)
    return max(real, key=lambda stream: bool(stream.disposition & stream.disposition.default), default=None)


class _Head:
    """Decodes the first packets of the picture: what a frame looks like, and whether packets and frames are one to one.

    Only the first frame is kept, and of the others their times: an 8K frame has 50 MB, and all of them no room.
    """

    def __init__(self, stream: Any) -> None:
        _thread(stream, "AUTO")
        self._context = stream.codec_context
        self.first: Any = None
        self.times: list[int | None] = []
        """Of the frames that came out."""
        self.packets: list[int | None] = []
        self._open = True
        self.failed = False

    def take(self, packet: Any, *, shown: bool) -> None:
        if not self._open:
            return
        if shown:
            self.packets.append(packet.pts)
        self._decode(packet)
        if len(self.packets) >= _HEAD_PACKETS:
            self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._decode(None)

    def _decode(self, packet: Any) -> None:
        try:
            frames = self._context.decode(packet)
        except av.error.FFmpegError as error:
            _must_have_memory(error)
            self.failed = True
            return
        if self.first is None and frames:
            self.first = frames[0]
        self.times += [frame.pts for frame in frames]

    @property
    def lost_at_start(self) -> int:
        """Packets before the first frame that came out: a recording that began in the middle of a group of pictures."""
        if not self.times or (first := self.times[0]) is None:
            return 0
        return sum(time is not None and time < first for time in self.packets)

    @property
    def one_to_one(self) -> bool:
        return len(self.times) + self.lost_at_start == len(self.packets) and None not in self.times


class _Tail:
    """Keeps the last groups of pictures, to find out whether a stream that promises no length ends with whole frames."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._groups: deque[list[Any]] = deque([[]], maxlen=_TAIL_GROUPS)

    def take(self, packet: Any) -> None:
        if packet.is_keyframe or len(self._groups[-1]) >= _MOST_OF_A_GROUP:
            self._groups.append([])
        self._groups[-1].append(packet)

    def good_end(self) -> int | None:
        """Return the time from which on frames are missing, or None when the last group decodes."""
        if len(self._groups) < 2 or not self._groups[-1][0].is_keyframe:  # noqa: PLR2004  what comes before the last is needed
            return None
        context = av.CodecContext.create(self._stream.codec_context.name, "r")
        context.extradata = self._stream.codec_context.extradata
        context.thread_type = "NONE"
        context.options = {"err_detect": "explode"}
        shown: set[int | None] = set()
        for packet in [packet for group in self._groups for packet in group] + [None]:
            with contextlib.suppress(av.error.FFmpegError):
                shown.update(frame.pts for frame in context.decode(packet) if not frame.is_corrupt)
        missing = [packet.pts for packet in self._groups[-1] if packet.pts not in shown]
        return min(missing) if missing and len(missing) < len(self._groups[-1]) else None


def _packets(
    name: str,
    container: Any,
    video: Any,
    sounds: list[Any],
    head: _Head | None,
    *,
    silences: dict[int, list[tuple[float, float]]],
) -> tuple[Picture | None, dict[int, list[float]], bool]:
    """Read every packet. Returns the picture's, what is known of each stream, and whether reading broke off.

    Of a stream that is: where it begins, where it ends, how many packets it has, and how long they are together. Where nothing
    is of a sound, from when to when, is put into `silences`.
    """
    times: array[int] = array("q")
    keys: list[int] = []
    lacking = backwards = last_duration = 0
    open_gop = broken = False
    tail = _Tail(video) if video is not None and name in _WITHOUT_INDEX else None
    first_decode: int | None = None
    last_decode: int | None = None
    last_key: int | None = None
    spans: dict[int, list[float]] = {}
    lengths: dict[int, float] = {}
    wanted = [stream for stream in (video, *sounds) if stream is not None]
    counts: dict[int, int] = dict.fromkeys((stream.index for stream in wanted), 0)
    demuxer = container.demux(wanted)
    while True:
        try:
            packet = next(demuxer)
        except StopIteration:
            break
        except av.error.FFmpegError:
            broken = True
            break
        if packet.size == 0 and packet.dts is None:
            continue  # PyAV's mark for the end of a stream
        index = packet.stream.index
        counts[index] += 1
        if packet.is_corrupt and name in _WITH_LENGTH:
            broken = True
        time = packet.pts if packet.pts is not None else packet.dts
        if time is not None and not packet.is_discard:
            begin = float(time * packet.time_base)
            length = float((packet.duration or 0) * packet.time_base)
            end = begin + length
            lengths[index] = lengths.get(index, 0.0) + length
            span = spans.setdefault(index, [begin, end, 0, 0.0])
            if index in silences and begin - span[1] > _GAP / 2:
                silences[index].append((span[1], begin))
            span[0], span[1] = min(span[0], begin), max(span[1], end)
        if video is None or index != video.index:
            continue
        shown = not packet.is_discard and (video.codec_context.name != "vp8" or _vp8_shows(packet))
        if head is not None:
            head.take(packet, shown=shown)
        if not shown:
            continue
        if tail is not None:
            tail.take(packet)
        if packet.dts is not None:
            backwards += last_decode is not None and packet.dts < last_decode
            last_decode = packet.dts
            first_decode = packet.dts if first_decode is None else first_decode
        if packet.pts is None:
            lacking += 1
            continue
        if not times or packet.pts > times[-1]:
            last_duration = packet.duration or 0
        times.append(packet.pts)
        if packet.is_keyframe:
            keys.append(packet.pts)
            last_key = packet.pts
        elif last_key is not None and packet.pts < last_key:
            open_gop = True
    for index, span in spans.items():
        span[2:] = counts[index], lengths[index]
    if head is not None:
        head.close()
    if video is None:
        return None, spans, broken
    decoding = (counts[video.index], first_decode, last_decode)
    good_end = tail.good_end() if tail is not None and not lacking else None
    picture = Picture(times, keys, lacking, backwards, open_gop, good_end, last_duration, decoding)
    return picture, spans, broken


def _vp8_shows(packet: Any) -> bool:
    """Tell whether a packet of VP8 is a frame to be seen; others only serve as a reference."""
    data = bytes(packet)[:1]
    return bool(data) and bool(data[0] & 0x10)


def _must_be_whole(
    name: str, container: Any, streams: list[Any], spans: dict[int, list[float]], *, broken: bool, exact: bool
) -> None:
    """Refuse a file that ends before what its header promises."""
    if not spans:
        if broken:
            raise Refused("INPUT_TRUNCATED", "the file has a header and nothing of what the header promises.")
        return
    promised = {stream.index: stream.frames for stream in streams} if name == "mov" else {}
    found = {index: int(spans[index][2]) if index in spans else 0 for index in promised}
    if any(found[index] < count for index, count in promised.items()):
        found = _count_unedited(container.name.removeprefix("file:"), list(promised))
        for index, count in promised.items():
            if found[index] < count:
                message = f"the file ends early: its header promises {count} packets, {found[index]} are there."
                raise Refused("INPUT_TRUNCATED", message)
    if name in _WITH_LENGTH and container.duration:
        promised_seconds = container.duration / 1e6
        begin = min(span[0] for span in spans.values())
        found_seconds = max(span[1] for span in spans.values()) - min(begin, 0.0 if name == "mov" else begin)
        one = max((span[1] - span[0]) / span[2] for span in spans.values())  # a frame, or a packet of sound
        grace = 0.1 if exact else _GRACE.get(name)
        if found_seconds < (promised_seconds * 0.98 - 1.0 if grace is None else promised_seconds - one - grace):
            raise Refused(
                "INPUT_TRUNCATED",
                f"the file ends early: its header promises {promised_seconds:.1f} seconds, {found_seconds:.1f} are there.",
            )
    if broken:
        raise Refused("INPUT_TRUNCATED", "the file ends, or breaks, in the middle of a packet.")


def _must_be_even(video: Any, picture: Picture, silences: list[list[tuple[float, float]]]) -> None:
    """Refuse a film that is all even frames, as its header says, but for a gap in which there is no sound either.

    Groups of pictures that were lost as a whole leave one, and what is there decodes. A film whose frames last differently long
    has gaps of its own, and so has one where the sound goes on.
    """
    times, base = sorted(set(picture.times)), Fraction(video.time_base)
    steps = sorted(later - earlier for earlier, later in pairwise(times))
    if picture.lacking or not steps or not video.average_rate:
        return
    usual, second = steps[len(steps) // 2], float(1 / base)  # in ticks: a film has many frames
    even = sum(step <= usual * 1.1 + second / 500 for step in steps) >= _EVEN * len(steps)  # its clock has milliseconds
    if not even or not 0.95 < video.average_rate * usual * base < 1.05:  # noqa: PLR2004  as the header says
        return
    for earlier, later in pairwise(times):
        if later - earlier <= max(_GAP * second, 10 * usual):
            continue
        begin, end = float(earlier * base), float(later * base)
        if all(any(start < end and begin < stop for start, stop in gaps) for gaps in silences):
            message = f"nothing is there between {begin:.2f} and {end:.2f} seconds, and the header promises even frames."
            raise Refused("INPUT_DAMAGED", f"{message} Upload it again, or put it into an MP4 if it is meant to be so.")


def _count_unedited(path: str, streams: list[int]) -> dict[int, int]:
    """Count the packets of an MP4 as its tables list them: an edit list leaves out those that it cuts off.

    A film that was trimmed without encoding it has such a list, as phones and editors write it; all of its packets are there.
    """
    counts = dict.fromkeys(streams, 0)
    with _opened(path, ignore_editlist="1") as container, contextlib.suppress(av.error.FFmpegError):
        for packet in container.demux([container.streams[index] for index in streams]):
            counts[packet.stream.index] += packet.size > 0 and not packet.is_corrupt
    return counts


def _video_facts(container: Any, stream: Any, picture: Picture, head: _Head) -> dict[str, Any]:
    first = head.first
    if first is None:
        raise Refused("INPUT_DAMAGED", "no frame of the picture can be decoded.")
    base = Fraction(stream.time_base)
    times = sorted(picture.times)
    if head.lost_at_start:
        times = [time for time in times if time >= first.pts]
    if picture.good_end is not None:
        times = [time for time in times if time < picture.good_end]
    steady = not picture.lacking and not picture.backwards and len(set(times)) == len(times) and head.one_to_one
    if container.format.name == "avi" and stream.codec_context.has_b_frames:
        steady = False  # AVI keeps no time of showing: what libav says of it is a guess
    if steady:
        rate, variable = _rate(times, base, stream)
        frames = len(times)
    else:
        frames = _count_by_decoding(container.name.removeprefix("file:"), stream.index)
        rate, variable = _guessed_rate(picture, base, stream), False
        times = []
    length = 1 / (rate * base)
    if times:
        start = times[0]
        last = picture.last_duration if 0 < picture.last_duration <= 10 * length else max(1, round(length))
        end = min(times[-1] + last, picture.good_end or sys.maxsize)
    else:
        start, end = 0, max(1, round(frames * length))
    width, height, rotation, aspect = _shape(first, stream)
    return {
        "index": stream.index,
        "codec": stream.codec_context.name,
        "profile": stream.codec_context.profile or "",
        "pixel_format": first.format.name,
        "bit_depth": max((part.bits for part in first.format.components), default=8),
        "coded_width": first.width,
        "coded_height": first.height,
        "width": width,
        "height": height,
        "rotation": rotation,
        "sample_aspect": [aspect.numerator, aspect.denominator],
        "interlaced": bool(first.interlaced_frame),
        "time_base": [base.numerator, base.denominator],
        "start": start,
        "end": end,
        "frames": frames,
        "frame_rate": [rate.numerator, rate.denominator],
        "variable": variable,
        "counts": _counts(times, base),
        "key_frame_gap": _longest_gap(picture.keys, start, end, base) if steady else float((end - start) * base),
        "open_gop": picture.open_gop,
        "seeks_cleanly": not (
            picture.open_gop or head.lost_at_start or head.failed or container.format.name.split(",")[0] in _WITHOUT_INDEX
        ),
        "ragged_start": bool(head.lost_at_start),
        "ragged_end": picture.good_end is not None,
        "steady": steady,
    }


def _rate(times: list[int], base: Fraction, stream: Any) -> tuple[Fraction, bool]:
    """Return the frame rate, and whether it varies: more than clocks of coarse ticks make it seem."""
    if len(times) < 2:  # noqa: PLR2004  one frame has no distance to another
        return _said_rate(stream), False
    steps = [later - earlier for earlier, later in pairwise(times)]
    average = Fraction(len(steps)) / ((times[-1] - times[0]) * base)
    if max(steps) - min(steps) <= max(1, round(Fraction(1, 1000) / base)):
        near = min(_RATES, key=lambda rate: abs(rate - average))
        return (near if abs(near - average) / near < Fraction(1, 500) else average.limit_denominator(1001)), False
    return average.limit_denominator(1001), True


def _guessed_rate(picture: Picture, base: Fraction, stream: Any) -> Fraction:
    """Return the rate of a source without good times: from when its packets are decoded, else what the header says."""
    count, first, last = picture.decoding
    if not picture.backwards and first is not None and last is not None and last > first:
        average = Fraction(count - 1) / ((last - first) * base)
        near = min(_RATES, key=lambda rate: abs(rate - average))
        return near if abs(near - average) / near < Fraction(1, 100) else average.limit_denominator(1001)
    return _said_rate(stream)


def _said_rate(stream: Any) -> Fraction:
    """Return what the header says, where the frames do not tell; that of the codec first, for raw streams have no other."""
    for rate in (stream.codec_context.framerate, stream.average_rate, stream.guessed_rate, stream.base_rate):
        if rate and 1 <= rate <= 240:  # noqa: PLR2004  beyond that headers speak of ticks
            return Fraction(rate)
    return _USUAL_RATE


def _count_by_decoding(path: str, index: int) -> int:
    """Count frames the long way, for a source whose packets do not tell; opened anew, for not all of them can be rewound."""
    frames = 0
    with _opened(path) as container:
        stream = container.streams[index]
        _thread(stream, "AUTO")
        try:
            for packet in container.demux(stream):
                try:
                    frames += len(packet.decode())
                except av.error.InvalidDataError as error:
                    _must_have_memory(error)
        except av.error.FFmpegError as error:
            _must_have_memory(error)  # else what came out so far is what there is
    if not frames:
        raise Refused("INPUT_DAMAGED", "no frame of the picture can be decoded.")
    return frames


def _shape(frame: Any, stream: Any) -> tuple[int, int, int, Fraction]:
    """Return the size as shown, the turn and the shape of a pixel."""
    aspect = Fraction(stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio or 1)
    if not Fraction(1, 20) <= aspect <= 20:  # noqa: PLR2004  nonsense in the header
        aspect = Fraction(1)
    width, height = frame.width, frame.height
    # The longer side is kept and the shorter stretched less than it would be by the other way round: never larger than needed.
    width, height = (max(1, round(width * aspect)), height) if aspect >= 1 else (width, max(1, round(height / aspect)))
    rotation = -int(frame.rotation) % 360
    rotation = round(rotation / 90) * 90 % 360
    if rotation in (90, 270):
        width, height = height, width
    return width, height, rotation, aspect


def _counts(times: list[int], base: Fraction) -> list[list[int]]:
    """Return the number of frames in each second, run-length coded."""
    runs: list[list[int]] = []

    def close(count: int) -> None:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])

    second = count = 0
    for time in times:
        at = (time - times[0]) * base.numerator // base.denominator
        while second < at:
            close(count)
            second, count = second + 1, 0
        count += 1
    if times:
        close(count)
    return runs


def _longest_gap(keys: list[int], start: int, end: int, base: Fraction) -> float:
    marks = [start, *sorted(key for key in keys if key > start), end]
    return float(max(later - earlier for earlier, later in pairwise(marks)) * base)


def _audio_facts(stream: Any, span: list[float]) -> dict[str, Any]:
    return {
        "index": stream.index,
        "codec": stream.codec_context.name,
        "sample_rate": stream.rate,
        "channels": stream.channels,
        "start": span[0],
        "seconds": max(span[1] - span[0], 0.0),
        "sounding": span[3],
        "packets": int(span[2]),
        "language": stream.language or "",
        "default": bool(stream.disposition & stream.disposition.default),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
