"""Whole transcodes: every frame of the source arrives once, at its time, in every quality."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import av
import msgspec
import pytest

from holdfast_media.ladder import choose
from holdfast_media.source import probe
from holdfast_media.transcode import encode_chunk, encode_chunks, pictures, plan, verify
from holdfast_media.transcode.package import Written, peak_bandwidth
from tests.media.engine.making import BETTER_LADDER, LADDER, Made, pixels, times, transcode
from tests.media.engine.odd_inputs import turned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.ffmpeg import Progress

STEADY = [
    *("24.mkv", "25.mp4", "29.97.mp4", "30.webm", "60.mp4"),
    *("vfr.mp4", "pause.mp4", "open.ts", "mpeg2.ts", "closed.ts", "hidden.webm", "interlaced.ts"),
]
GUESSED = ["raw.h264", "guessed.avi"]


def verified(made: Made) -> None:
    verdict = verify(made.folder, made.plan, made.renditions, made.sound, decode=True)
    assert made.facts.video is not None
    assert verdict.frames == made.facts.video.frames
    assert verdict.renditions == ("90p", "44p")


@pytest.mark.parametrize("name", STEADY)
def test_every_frame_arrives_once_and_at_its_time(name: str, source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source(name), tmp_path)
    verified(made)
    assert len(made.plan.chunks) > (name != "pause.mp4")  # whose key frames are as far apart as the pause is long
    expected = times(source(name))
    for rendition in made.renditions:
        found = times(made.folder / rendition.name / "index.m3u8")
        assert len(found) == len(expected)
        assert found == pytest.approx([time - expected[0] for time in expected], abs=1 / 90_000)


@pytest.mark.parametrize("name", GUESSED)
def test_without_good_times_every_frame_arrives_once_in_one_piece(
    name: str, source: Callable[[str], Path], tmp_path: Path
) -> None:
    made = transcode(source(name), tmp_path)
    verified(made)
    assert len(made.plan.chunks) == 1
    found = times(made.folder / "44p/index.m3u8")
    assert len(found) == 100
    assert {round(later - earlier, 4) for earlier, later in pairwise(found)} == {0.04}


def test_frames_are_in_their_order(source: Callable[[str], Path], tmp_path: Path) -> None:
    """Each frame of the output is more like its own of the source than like the neighbours: chunks are not shifted."""
    made = transcode(source("open.ts"), tmp_path, ladder=BETTER_LADDER)
    before = [picture.to_bytes() for picture in brightness(source("open.ts"))]
    after = [picture.to_bytes() for picture in brightness(made.folder / "90p/index.m3u8")]
    for number, picture in enumerate(after):
        near = {other: difference(picture, before[other]) for other in range(max(number - 2, 0), min(number + 3, len(before)))}
        assert min(near, key=lambda other: near[other]) == number


class Brightness:
    """The luma of a frame, thinned out."""

    def __init__(self, frame: av.VideoFrame) -> None:
        plane = frame.reformat(format="gray").planes[0]
        data = bytes(plane)
        self._rows = [data[row * plane.line_size : row * plane.line_size + frame.width] for row in range(0, frame.height, 3)]

    def to_bytes(self) -> bytes:
        return b"".join(self._rows)


def brightness(path: Path) -> list[Brightness]:
    return [Brightness(frame) for frame in pixels(path)]


def difference(one: bytes, other: bytes) -> int:
    return sum(abs(left - right) for left, right in zip(one, other, strict=True))


# -- pictures that are not as they seem ------------------------------------------------------------------------------------


def shape(made: Made) -> tuple[int, int]:
    with av.open(str(made.folder / made.renditions[0].name / "index.m3u8")) as container:
        frame = next(container.decode(video=0))
        assert frame.format.name == "yuv420p"
        assert frame.rotation == 0
        assert container.streams.video[0].sample_aspect_ratio in (None, Fraction(1))
        return frame.width, frame.height


def test_a_turned_picture_is_upright(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(turned(source("silent.mp4"), tmp_path / "turned.mp4"), tmp_path / "work")
    assert made.facts.video is not None
    assert (made.facts.video.width, made.facts.video.height, made.facts.video.rotation) == (90, 160, 90)
    assert shape(made) == (90, 160)
    verified(made)


def test_pixels_become_square(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source("wide-pixels.mp4"), tmp_path)
    assert made.facts.video is not None
    assert (made.facts.video.width, made.facts.video.height) == (213, 90)
    assert shape(made) == (160, 68)


def test_ten_bits_become_eight(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source("ten-bit.mkv"), tmp_path)
    assert made.facts.video is not None
    assert made.facts.video.bit_depth == 10
    assert shape(made) == (160, 90)
    assert made.renditions[0].codecs.startswith("avc1.42")  # ultrafast is baseline, and so eight bits


@pytest.mark.parametrize(
    ("name", "size", "frames"), [("odd.mkv", (80, 44), 50), ("one-pixel.mkv", (2, 2), 50), ("one-frame.mp4", (160, 90), 1)]
)
def test_odd_and_tiny_sources_work(
    name: str, size: tuple[int, int], frames: int, source: Callable[[str], Path], tmp_path: Path
) -> None:
    made = transcode(source(name), tmp_path)
    assert shape(made) == size
    verdict = verify(made.folder, made.plan, made.renditions, made.sound, decode=True)
    assert verdict.frames == frames


# -- sound -----------------------------------------------------------------------------------------------------------------


def loudness(playlist: Path) -> list[tuple[float, bool]]:
    """Return time and whether anything is heard, for every packet."""
    with av.open(str(playlist)) as container:
        frames = list(container.decode(audio=0))
        assert {frame.layout.name for frame in frames} == {"stereo"}
        return [(float(frame.time or 0), max(bytes(frame.planes[0])[3::4]) & 0x7F > 0x39) for frame in frames]


@pytest.mark.parametrize(("name", "begin", "end"), [("late.mp4", 1.5, 3.5), ("early.mkv", 0.0, 3.0)])
def test_sound_is_heard_when_it_should_be(
    name: str, begin: float, end: float, source: Callable[[str], Path], tmp_path: Path
) -> None:
    made = transcode(source(name), tmp_path)
    verify(made.folder, made.plan, made.renditions, made.sound)
    heard = [time for time, loud in loudness(made.folder / "audio/index.m3u8") if loud]
    assert heard[0] == pytest.approx(begin, abs=0.06)
    assert heard[-1] == pytest.approx(end, abs=0.06)


def test_sound_after_the_last_frame_is_kept(source: Callable[[str], Path], tmp_path: Path) -> None:
    """The picture is as long as it was: no frame is shown twice for it."""
    made = transcode(source("longer-sound.mp4"), tmp_path)
    verdict = verify(made.folder, made.plan, made.renditions, made.sound, decode=True)
    assert verdict.frames == 50
    assert verdict.seconds == pytest.approx(2.0, abs=0.01)
    heard = [time for time, loud in loudness(made.folder / "audio/index.m3u8") if loud]
    assert heard[-1] == pytest.approx(5.0, abs=0.06)
    assert made.sound is not None
    assert made.sound.seconds == pytest.approx(5.0, abs=0.06)


def test_a_clock_of_the_sound_that_jumps_is_not_believed(source: Callable[[str], Path]) -> None:
    """One packet that says it sounds in a day would be a day of silence."""
    facts = probe(source("longer-sound.mp4"))
    (sound,) = facts.audio
    assert sound.sounding == pytest.approx(5.0, abs=0.1)
    jumped = msgspec.structs.replace(facts, audio=(msgspec.structs.replace(sound, seconds=86_400.0),))
    assert plan(jumped, ()).sound_seconds == facts.seconds
    assert plan(facts, ()).sound_seconds == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("name", ["sound.m4a", "sound.mp3"])
def test_sound_alone_gives_a_playlist_of_sound(name: str, source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source(name), tmp_path)
    assert made.facts.video is None
    verdict = verify(made.folder, made.plan, made.renditions, made.sound)
    assert verdict.seconds == pytest.approx(4.3, abs=0.06)
    assert "audio/index.m3u8" in (made.folder / "master.m3u8").read_text()


def test_a_silent_source_has_no_sound(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source("silent.mp4"), tmp_path)
    assert made.sound is None
    assert "AUDIO" not in (made.folder / "master.m3u8").read_text()


# -- what is told about it -------------------------------------------------------------------------------------------------


def test_the_master_playlist_says_what_the_files_are(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source("25.mp4"), tmp_path)
    assert made.sound is not None
    master = (made.folder / "master.m3u8").read_text().splitlines()
    lines = [dict(part.split("=", 1) for part in quoted(line)) for line in master if line.startswith("#EXT-X-STREAM-INF:")]
    for line, rendition in zip(lines, made.renditions, strict=True):
        folder = made.folder / rendition.name
        sizes = [path.stat().st_size for path in sorted(folder.glob("*.m4s"))]
        average = sum(sizes) * 8 / 5.32 + made.sound.average_bandwidth
        assert int(line["AVERAGE-BANDWIDTH"]) == pytest.approx(average, rel=0.001)
        assert int(line["BANDWIDTH"]) >= max(sizes[:-1]) * 8
        assert int(line["BANDWIDTH"]) >= int(line["AVERAGE-BANDWIDTH"])
        assert line["RESOLUTION"] == f"{rendition.width}x{rendition.height}"
        assert line["FRAME-RATE"] == "25.000"
        assert line["CODECS"].strip('"').split(",")[1] == "mp4a.40.2"
        with av.open(str(folder / "index.m3u8")) as container:
            extradata = container.streams.video[0].codec_context.extradata
            assert extradata is not None
            assert line["CODECS"].strip('"').split(",")[0] == f"avc1.{extradata[1:4].hex()}"


@pytest.mark.parametrize(
    ("segments", "peak"),
    [
        ([(6.0, 600), (6.0, 600), (1.0, 400)], 1143),  # a short last one counts with its neighbour: 1000 bytes in 7 s
        ([(6.0, 600), (6.0, 1200), (1.0, 10)], 1600),
        ([(6.0, 600), (1.0, 100), (1.0, 300)], 1000),  # and with as many as it takes
        ([(2.0, 500)], 2000),
        ([(6.0, 300), (4.0, 200), (6.0, 300)], 400),
    ],
)
def test_the_peak_of_a_playlist_is_never_below_its_average(segments: list[tuple[float, int]], peak: int) -> None:
    written = [Written(name="", header=0, seconds=seconds, bytes=size) for seconds, size in segments]
    average = sum(size for _, size in segments) * 8 / sum(seconds for seconds, _ in segments)
    assert peak_bandwidth(written) == peak >= average


def quoted(line: str) -> list[str]:
    """Split the attributes of a line at commas outside quotes."""
    parts = line.partition(":")[2].split('"')
    return "".join(part.replace(",", "\n") if number % 2 == 0 else f'"{part}"' for number, part in enumerate(parts)).split("\n")


def test_segments_are_as_long_as_the_playlist_promises(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source("29.97.mp4"), tmp_path)
    text = (made.folder / "90p/index.m3u8").read_text()
    lengths = [float(line[8:].rstrip(",")) for line in text.splitlines() if line.startswith("#EXTINF:")]
    target = int(text.split("#EXT-X-TARGETDURATION:")[1].split()[0])
    assert math.fsum(lengths) == pytest.approx(made.facts.seconds, abs=1e-4)
    assert target >= max(round(length) for length in lengths)
    assert max(lengths[:-1]) - min(lengths[:-1]) < 0.05
    assert text.endswith("#EXT-X-ENDLIST\n")


def test_a_chunk_encoded_twice_is_the_same_to_the_byte(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source("25.mp4"), tmp_path)
    rendition, chunk = made.plan.renditions[0], made.plan.chunks[1]
    told: list[Progress] = []
    again = encode_chunk(
        source("25.mp4"), made.plan, rendition, chunk, tmp_path / "again.mp4", threads=1, on_progress=told.append
    )
    once_more = encode_chunk(source("25.mp4"), made.plan, rendition, chunk, tmp_path / "more.mp4", threads=1)
    assert again.sha256 == once_more.sha256
    assert (again.frames, again.encoder) == (chunk.frames, "libx264")
    assert told[-1].fraction == 1.0
    assert not list(tmp_path.glob("*.part"))


def test_renditions_encoded_together_are_those_encoded_one_by_one(source: Callable[[str], Path], tmp_path: Path) -> None:
    path = source("interlaced.ts")
    facts = probe(path)
    planned = plan(facts, choose(facts, LADDER), chunk_seconds=2, segment_seconds=1)
    chunk = planned.chunks[1]
    apart = [
        encode_chunk(path, planned, rendition, chunk, tmp_path / f"{rendition.name}.mp4", threads=1)
        for rendition in planned.renditions
    ]
    targets = [tmp_path / f"{rendition.name}-together.mp4" for rendition in planned.renditions]
    together = encode_chunks(path, planned, planned.renditions, chunk, targets, threads=1)
    assert [one.sha256 for one in together] == [one.sha256 for one in apart]


def test_poster_and_sprites_show_the_film(source: Callable[[str], Path], tmp_path: Path) -> None:
    made = transcode(source("25.mp4"), tmp_path)
    shots = pictures(source("25.mp4"), made.plan, tmp_path / "100% pictures")
    folder = tmp_path / "100% pictures"
    assert sorted(path.name for path in folder.iterdir()) == sorted(shots.files)
    with av.open(str(folder / shots.poster)) as container:
        poster = next(container.decode(video=0))
    assert (poster.width, poster.height) == (160, 90)
    track = (folder / shots.track).read_text()
    assert track.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nsprites_000.jpg#xywh=0,0,160,90\n")
    assert "00:00:05.000 --> 00:00:05.320\nsprites_000.jpg#xywh=800,0,160,90\n" in track
    assert track.count("-->") == 6


def test_facts_of_a_source_are_counted_not_believed(source: Callable[[str], Path]) -> None:
    video = probe(source("29.97.mp4")).video
    assert video is not None
    assert (video.frame_rate, video.variable, video.frames) == ((30000, 1001), False, 213)
    assert sum(count * seconds for count, seconds in video.counts) == 213
    varied = probe(source("vfr.mp4")).video
    assert varied is not None
    assert varied.variable
    opened = probe(source("open.ts")).video
    assert opened is not None
    assert (opened.open_gop, opened.seeks_cleanly) == (True, False)
    assert opened.start > 0
    interlaced = probe(source("interlaced.ts")).video
    assert interlaced is not None
    assert interlaced.interlaced
