"""Cutting a clip: to the frame by encoding anew, or fast by copying from the key frame before."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media import ffmpeg
from holdfast_media.clip.copying import Copied, copy_stretch
from holdfast_media.clip.reading import FORMATS, Picture, Stretch, read_stretch
from holdfast_media.errors import (
    BAD_RANGE,
    ENCODE_TIMEOUT,
    FAST_IMPOSSIBLE,
    INPUT_NO_MEDIA,
    INPUT_TRUNCATED,
    OUTPUT_EMPTY,
    OUTPUT_MISMATCH,
    MediaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.clip.deadline import Deadline
    from holdfast_media.clip.reading import Picture

CONTAINERS: Final = ("mp4", "mkv")
"""What clips are written to."""
MP4_PICTURES: Final = frozenset(
    {"h264", "hevc", "av1", "libdav1d", "libaom-av1", "vp9", "libvpx-vp9", "mpeg4", "mpeg2video", "mpeg1video"}
)
MP4_SOUNDS: Final = frozenset({"aac", "mp3", "mp3float", "ac3", "eac3", "opus", "libopus", "flac", "alac"})
"""What players expect in an mp4; everything else that is copied goes into Matroska."""
INDEXED: Final = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
"""Containers that know where their key frames are."""
NEAR: Final = Fraction(1, 2000)
"""Half a millisecond, as in `reader`."""
ROOMY: Final = 2.0
"""How much more room than its share of the source is asked for: encoded anew it may take more than it did."""
SLACK: Final = 0.5
"""Seconds by which a file may be shorter than its header says: pictures and sounds seldom end together."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What a clip really holds. Times are seconds of the source, from its first frame."""

    start: float
    """Of its first frame; what is fast begins earlier than it was asked to."""
    end: float
    """Where its last frame ends."""
    key_frame: float | None
    """The key frame that it begins with, where it was copied; `None`: it was encoded, and begins where it was asked to."""
    frames: int
    container: str
    """mp4, or mkv for copied streams that do not go into one."""
    encoder: str


def container_for(stretch: Stretch, *, fast: bool) -> str:
    """Return the container a clip is written to: mp4, but for copied streams that do not go into one."""
    picture, sound = stretch.picture, stretch.sound
    if not fast or picture is None:  # sound alone has no key frames: it is encoded, which is fast anyway
        return "mp4"
    return "mp4" if picture.codec in MP4_PICTURES and (sound is None or sound.codec in MP4_SOUNDS) else "mkv"


def check_range(stretch: Stretch, start: float, end: float | None, *, fast: bool) -> None:
    """Refuse what cannot be cut.

    Raises `BAD_RANGE` when there is nothing between the times, `INPUT_TRUNCATED` when there should be more than there is, and
    `FAST_IMPOSSIBLE` when there is no key frame to begin with, or nothing says when frames are shown.
    """
    length = "" if stretch.seconds is None else f"; it is {stretch.seconds:.3f} s long"
    picture = stretch.picture
    if picture is None:
        if stretch.seconds is not None and start >= stretch.seconds:
            raise MediaError(BAD_RANGE, f"the source ends before {start:g} s{length}")
        return
    if picture.first is None or picture.after is None:
        raise MediaError(
            BAD_RANGE, f"the source has no frame from {start:g} s to {'its end' if end is None else f'{end:g} s'}{length}"
        )
    if fast and (picture.key is None or not picture.steady):
        raise MediaError(FAST_IMPOSSIBLE, "the source does not say where its key frames are, or when they show: leave out fast")
    if picture.ends and stretch.seconds is not None:
        wanted = stretch.seconds if end is None else min(end, stretch.seconds)
        there = stretch.seconds_at(picture.after)
        if there < wanted - max(SLACK, 2 * float(Fraction(*picture.frame))):
            raise MediaError(
                INPUT_TRUNCATED, f"the source says that it has {stretch.seconds:.3f} s, and its picture ends at {there:.3f} s"
            )


def cut(
    source: Path,
    target: Path,
    stretch: Stretch,
    start: float,
    end: float | None,
    *,
    fast: bool,
    program: Path | None,
    deadline: Deadline,
    stall_after: float,
    scratch: Path,
    on_progress: Callable[[float], None],
    stop: Callable[[], str | None],
) -> Cut:
    """Write the clip into a file, and return what it really holds, as read from that file.

    Raises `MediaError`: `CLIP_TIMEOUT` when it took too long, and `ENCODE_STALLED` when nothing moved for `stall_after`
    seconds, and then nothing runs any more; `OUTPUT_EMPTY`, `OUTPUT_MISMATCH`; and `Stopped`.
    """
    wanted = _span(stretch, start, end, fast=fast)

    def run(*, seek: bool) -> None:
        try:
            ffmpeg.run(
                encoding(source, target, stretch, start, end, seek=seek),
                ffmpeg=program,
                duration=wanted,
                on_progress=lambda progress: on_progress(progress.fraction),
                stop=stop,
                timeout=deadline.left(),
                stall_after=stall_after,
                lead=_lead(stretch, start, seek=seek),
                scratch=scratch,
                hidden=[source],
            )
        except MediaError as error:
            if error.code != ENCODE_TIMEOUT:
                raise
            raise deadline.missed(detail=error.detail, said_by=error.said_by) from None
        _check_written(target)

    if fast and stretch.picture is not None:
        assert stretch.picture.key is not None  # noqa: S101  checked by `check_range`
        copied = copy_stretch(
            source,
            target,
            stretch.picture.key,
            end,
            deadline=deadline,
            stop=stop,
            stall_after=stall_after,
            on_progress=on_progress,
        )
        _check_written(target)
        return _copied(stretch, stretch.picture, copied, target.suffix.removeprefix("."))
    run(seek=True)
    if (made := _encoded(target, stretch, (start, end), stop, deadline)) is None and stretch.picture is not None:
        # some containers are not to be sought in precisely: then everything before the clip is decoded too
        run(seek=False)
        made = _encoded(target, stretch, (start, end), stop, deadline)
    if made is None:
        raise MediaError(OUTPUT_MISMATCH, "the clip has other frames than the source has in this stretch")
    return made


def room_for(source: Path, stretch: Stretch, start: float, end: float | None) -> float:
    """Return how many bytes a clip may take: by its share of the source."""
    whole = stretch.seconds or 0.0
    until = whole if end is None else min(end, whole)
    return source.stat().st_size * ROOMY * ((until - start) / whole if whole > 0 else 1.0)


def _check_written(target: Path) -> None:
    if not target.is_file() or target.stat().st_size == 0:
        raise MediaError(OUTPUT_EMPTY, "cutting ended well and left nothing")


# --- to the frame ---------------------------------------------------------------------------------------------------------


def encoding(source: Path, target: Path, stretch: Stretch, start: float, end: float | None, *, seek: bool = True) -> list[str]:
    """Return how ffmpeg encodes exactly the frames of the stretch, and the sound from its first frame to the end of its last.

    Frames are chosen by the ticks of the source's own clock (`-copyts`), so nothing is rounded; the sound is cut to the same
    times, and filled with silence where there is none, so that both stay together.
    """
    picture, sound, origin = stretch.picture, stretch.sound, Fraction(*stretch.origin)
    begin, until = origin + Fraction(start), None if end is None else origin + Fraction(end)
    arguments = [*_input(source, Fraction(0))]
    maps: list[str] = []
    if picture is not None:
        assert picture.first is not None  # noqa: S101  checked by `check_range`
        assert picture.after is not None  # noqa: S101  as above
        base = Fraction(*picture.time_base)
        begin, until = picture.first * base, picture.after * base
        bounds = f"start_pts={picture.first}:end_pts={picture.after}"
        if not picture.steady:
            begin, until = origin + Fraction(start), None if end is None else origin + Fraction(end)
            bounds = _bounds(begin - NEAR, None if until is None else until - NEAR)
        maps += ["-map", f"0:{picture.index}", "-vf", f"trim={bounds},setpts=PTS-STARTPTS,pad=ceil(iw/2)*2:ceil(ih/2)*2"]
        maps += ["-fps_mode", "passthrough", "-enc_time_base", f"{base.numerator}:{base.denominator}"]
        maps += ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"]
    if sound is not None:
        bounds = _bounds(begin, until)
        # the shift is a constant, not the first sample's time: sound that begins later than the picture stays later
        maps += [
            "-map",
            f"0:{sound.index}",
            "-af",
            f"atrim={bounds},asetpts=PTS-{_decimal(begin)}/TB,aresample=async=1:first_pts=0",
        ]
        maps += ["-c:a", "aac", "-b:a", "128k", "-ac", "2"]
    if seek:
        arguments = _input(source, _seek_to(stretch, begin))
    return ["-copyts", *arguments, *maps, *_output(target)]


def _seek_to(stretch: Stretch, begin: Fraction) -> Fraction:
    """Return where to begin decoding: at the key frame, or a little before it where the container goes only near it."""
    picture = stretch.picture
    if picture is None:
        return max(Fraction(0), begin - 1)
    if picture.key is None or not picture.steady or picture.key * Fraction(*picture.time_base) <= Fraction(*stretch.origin):
        return Fraction(0)
    key = picture.key * Fraction(*picture.time_base)
    return key + Fraction(1, 10_000) if stretch.container in INDEXED else max(Fraction(0), key - 2)


def _lead(stretch: Stretch, start: float, *, seek: bool) -> float:
    """Return how many seconds of the source are decoded before the first frame of the clip: nothing is written meanwhile.

    To decode takes less time than to watch, also on a slow machine: so that many seconds more may pass in silence.
    """
    origin, picture = Fraction(*stretch.origin), stretch.picture
    begin = origin + Fraction(start)
    if picture is not None and picture.first is not None:
        begin = picture.first * Fraction(*picture.time_base)
    return float(begin - max(origin, _seek_to(stretch, begin) if seek else origin))


def _encoded(
    target: Path, stretch: Stretch, asked: tuple[float, float | None], stop: Callable[[], str | None], deadline: Deadline
) -> Cut | None:
    """Return what was encoded; `None` when that are not the frames of the source."""
    try:
        made = read_stretch(target, 0.0, None, stop=stop, deadline=deadline)
    except MediaError as error:
        if error.code != INPUT_NO_MEDIA:
            raise
        return None
    picture = stretch.picture
    if picture is None:
        return _heard(made, *asked)
    assert picture.first is not None  # noqa: S101  checked by `check_range`
    assert picture.after is not None  # noqa: S101  as above
    if made.picture is None or made.picture.after is None:
        return None
    if not picture.steady:  # nobody knows better than what was decoded
        until = asked[0] + made.seconds_at(made.picture.after)
        return Cut(
            start=asked[0], end=_rounded(until), key_frame=None, frames=made.picture.frames, container="mp4", encoder="libx264"
        )
    if made.picture.frames != picture.frames:
        return None
    return Cut(
        start=_rounded(stretch.seconds_at(picture.first)),
        end=_rounded(stretch.seconds_at(picture.after)),
        key_frame=None,
        frames=made.picture.frames,
        container="mp4",
        encoder="libx264",
    )


def _heard(made: Stretch, start: float, end: float | None) -> Cut:
    seconds = made.seconds or 0.0
    until = start + seconds if end is None else min(end, start + seconds)
    return Cut(start=start, end=_rounded(until), key_frame=None, frames=0, container="mp4", encoder="aac")


# --- fast -----------------------------------------------------------------------------------------------------------------


def _copied(stretch: Stretch, picture: Picture, copied: Copied, container: str) -> Cut:
    assert picture.key is not None  # noqa: S101  checked by `check_range`
    key = _rounded(stretch.seconds_at(picture.key))
    end = _rounded(stretch.seconds_at(copied.after))
    return Cut(start=key, end=end, key_frame=key, frames=copied.frames, container=container, encoder="copy")


# --- both -----------------------------------------------------------------------------------------------------------------


def _input(source: Path, at: Fraction) -> list[str]:
    """Return how ffmpeg opens the source: as a plain file, at a time of the file's own clock."""
    # nothing is left out because of the seek: the filters choose
    seek = ["-noaccurate_seek", "-seek_timestamp", "1", "-ss", _decimal(at)] if at > 0 else []
    return [*seek, "-protocol_whitelist", "file,pipe,fd", "-format_whitelist", FORMATS, "-i", f"file:{source}"]


def _output(target: Path) -> list[str]:
    """Return how the clip is written: without what the source tells of its maker, playable before it is loaded whole."""
    faststart = ["-movflags", "+faststart"] if target.suffix == ".mp4" else []
    return ["-map_metadata", "-1", "-map_chapters", "-1", *faststart, "-y", f"file:{target}"]


def _span(stretch: Stretch, start: float, end: float | None, *, fast: bool) -> float | None:
    picture = stretch.picture
    if picture is not None and picture.first is not None and picture.after is not None:
        begin = picture.key if fast and picture.key is not None else picture.first
        return float((picture.after - begin) * Fraction(*picture.time_base))
    until = stretch.seconds if end is None else end
    return None if until is None else max(0.001, until - start)


def _bounds(begin: Fraction, until: Fraction | None) -> str:
    return f"start={_decimal(begin)}" + ("" if until is None else f":end={_decimal(until)}")


def _decimal(seconds: Fraction) -> str:
    return f"{float(seconds):.6f}"


def _rounded(seconds: float) -> float:
    return round(seconds, 6)
