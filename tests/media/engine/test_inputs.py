"""Odd and bad inputs: each ends as the table in docs/media/inputs.md says, and none hangs or takes anything down."""

from __future__ import annotations

import io
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import av
import pytest

from holdfast_media.errors import MediaError, Stopped
from holdfast_media.ffmpeg import find_ffmpeg
from holdfast_media.source import check, identity, probe
from holdfast_media.transcode import verify
from tests.media.engine.making import transcode

if TYPE_CHECKING:
    from collections.abc import Callable

    Sources = Callable[[str], Path]

TABLE = Path(__file__).parents[3] / "docs/media/inputs.md"
PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
MANIFEST = '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>file:///etc/passwd</BaseURL></MPD>'


# -- inputs that fail ------------------------------------------------------------------------------------------------------


def no_file(path: Path, source: Sources) -> None:
    assert not path.exists()


def empty(path: Path, source: Sources) -> None:
    path.touch()


def random_bytes(path: Path, source: Sources) -> None:
    path.write_bytes(random.Random(7).randbytes(100_000))


def text(path: Path, source: Sources) -> None:
    path.write_text("Dear reader,\n" * 1000)


def zip_bomb(path: Path, source: Sources) -> None:
    """A megabyte of zeros, in a zip, a hundred times over."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        for number in range(100):
            bomb.writestr(f"{number}.mp4", bytes(1 << 20))


def no_index(path: Path, source: Sources) -> None:
    data = source("25.mp4").read_bytes()
    path.write_bytes(data[: data.rindex(b"moov") - 4])


def hls(path: Path, source: Sources) -> None:
    path.write_text(PLAYLIST)


def concat(path: Path, source: Sources) -> None:
    path.write_text(f"ffconcat version 1.0\nfile '{source('25.mp4')}'\n")


def dash(path: Path, source: Sources) -> None:
    path.write_text(MANIFEST)


def png(path: Path, source: Sources) -> None:
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=64x64:d=1", "-frames:v", "1", "-f", "image2", "-c:v", "png", "-update", "1", str(path)
    )


def subtitles(path: Path, source: Sources) -> None:
    (path.parent / "words.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nwords\n")
    ffmpeg("-i", str(path.parent / "words.srt"), "-f", "matroska", str(path))


def enormous(path: Path, source: Sources) -> None:
    """The size stands in the header of the container: nothing has to be there."""
    data = source("large.mkv").read_bytes()
    said = b"\xb0\x82" + (320).to_bytes(2) + b"\xba\x82" + (300).to_bytes(2)
    assert data.count(said) == 1
    path.write_bytes(data.replace(said, b"\xb0\x82" + (16000).to_bytes(2) + b"\xba\x82" + (16000).to_bytes(2)))


def half(path: Path, source: Sources) -> None:
    data = source("fast-start.mp4").read_bytes()
    path.write_bytes(data[: len(data) // 2])


def half_matroska(path: Path, source: Sources) -> None:
    data = source("24.mkv").read_bytes()
    path.write_bytes(data[: len(data) // 2])


def rotten(path: Path, source: Sources) -> None:
    data = bytearray(source("25.mp4").read_bytes())
    rot(data, data.index(b"mdat") + 40_000)
    path.write_bytes(data)


def rotten_stream(path: Path, source: Sources) -> None:
    """Only inside of packets: the stream itself stays whole."""
    data = bytearray(source("open.ts").read_bytes())
    middle = len(data) // 2 // 188 * 188
    for packet in range(middle, middle + 188 * 200, 188):
        data[packet + 100 : packet + 140] = random.Random(packet).randbytes(40)
    path.write_bytes(data)


def rot(data: bytearray, start: int) -> None:
    chance = random.Random(11)
    for _ in range(400):
        data[start + chance.randrange(20_000)] ^= 1 << chance.randrange(8)


def ffmpeg(*arguments: str) -> None:
    subprocess.run([find_ffmpeg(), "-v", "error", "-y", *arguments], check=True)


FAILING = {
    "a file that is not there": no_file,
    "an empty file": empty,
    "random bytes": random_bytes,
    "text with the name of a video": text,
    "a zip bomb with the name of a video": zip_bomb,
    "an MP4 without its index": no_index,
    "an HLS playlist": hls,
    "a list of files": concat,
    "a DASH manifest": dash,
    "a picture (PNG": png,
    "a container without picture or sound": subtitles,
    "a picture of more than 67 million pixels": enormous,
    "an MP4 with its index first, cut in half": half,
    "a Matroska file cut in half": half_matroska,
    "an MP4 with rotten bits": rotten,
    "an MPEG transport stream with rotten bits": rotten_stream,
}


def promised(beginning: str) -> str:
    """Return the code that the table gives for the row that begins like this."""
    (code,) = re.findall(rf"^\| {re.escape(beginning)}[^|]*\| `(\w+)`", TABLE.read_text(), re.MULTILINE)
    return str(code)


@pytest.mark.parametrize("name", FAILING)
def test_a_bad_input_ends_as_the_table_says(name: str, source: Sources, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    FAILING[name](path, source)
    with pytest.raises(MediaError) as caught:
        transcode(path, tmp_path / "work")
    error = caught.value
    assert error.code == promised(name), error.detail
    assert not error.retryable
    assert str(tmp_path) not in error.message + error.detail
    assert not list((tmp_path / "work").rglob("*.part"))


def test_every_row_that_fails_is_tried() -> None:
    rows = TABLE.read_text().split("## Inputs that fail")[1].split("## Inputs that become")[0]
    named = [line[2:] for line in rows.splitlines() if "`INPUT_" in line and not line.startswith("| a file that crashes")]
    assert len(named) == len(FAILING)
    assert all(any(row.startswith(name) for name in FAILING) for row in named)


def test_no_other_file_is_opened_for_a_list_of_files(source: Sources, tmp_path: Path) -> None:
    """The list names a pipe, and who opened it would wait for ever; nobody does."""
    os.mkfifo(tmp_path / "pipe.mp4")
    path = tmp_path / "film.mp4"
    path.write_text(f"ffconcat version 1.0\nfile '{tmp_path / 'pipe.mp4'}'\n")
    with pytest.raises(MediaError, match="INPUT_UNSUPPORTED"):
        probe(path, timeout=30)


# -- a reader that breaks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os.abort()", "signal 6"),
        ("import sys; sys.exit(3)", "code 3"),
        ("data = bytearray(1 << 34)", "code 1"),
        ("import time; time.sleep(60)", "within 1 seconds"),
        ("print('x' * (20 << 20))", "more facts"),
        ("print('{}')", "reader"),
    ],
)
def test_a_reader_that_breaks_is_the_files_fault(code: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"x")
    reader = tmp_path / "reader.py"
    reader.write_text(code)
    monkeypatch.setattr(sys.modules["holdfast_media.source.probe"], "_READER", reader)
    with pytest.raises(MediaError, match=how) as caught:
        probe(path, timeout=1.0 if "sleep" in code else 30.0)
    assert caught.value.code == "INPUT_UNREADABLE"


def test_reading_stops_when_told(source: Sources) -> None:
    with pytest.raises(Stopped):
        probe(source("25.mp4"), stop=lambda: "shutdown")
    with pytest.raises(Stopped):
        identity(source("25.mp4"), stop=lambda: "shutdown")


# -- inputs that become a video --------------------------------------------------------------------------------------------


def test_a_wrong_extension_does_not_matter(source: Sources, tmp_path: Path) -> None:
    path = tmp_path / "-i holiday %d, file:photo.jpg"
    path.write_bytes(source("25.mp4").read_bytes())
    made = transcode(path, tmp_path / "work")
    assert verify(made.folder, made.plan, made.renditions, made.sound).frames == 133


def test_a_header_with_no_frame_rate_does_not_matter(source: Sources, tmp_path: Path) -> None:
    """The length of a frame is taken out of the tracks' defaults, and the header of the codec has none."""
    output = io.BytesIO()
    with av.open(str(source("25.mp4"))) as given, av.open(output, "w", format="mpegts") as out:
        stream = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    path = tmp_path / "film.ts"
    path.write_bytes(output.getvalue())
    video = probe(path).video
    assert video is not None
    assert (video.frame_rate, video.frames) == ((25, 1), 133)


def test_a_recording_that_begins_in_the_middle_begins_where_it_can(source: Sources, tmp_path: Path) -> None:
    data = source("open.ts").read_bytes()
    (tmp_path / "film.ts").write_bytes(data[: 188 * 3] + data[len(data) // 4 // 188 * 188 :])
    made = transcode(tmp_path / "film.ts", tmp_path / "work")
    assert made.facts.video is not None
    assert made.facts.video.ragged_start
    verdict = verify(made.folder, made.plan, made.renditions, made.sound, decode=True)
    assert 100 <= verdict.frames == made.facts.video.frames <= 130


def test_a_stream_that_was_cut_is_a_shorter_video(source: Sources, tmp_path: Path) -> None:
    data = source("closed.ts").read_bytes()
    (tmp_path / "film.ts").write_bytes(data[: len(data) // 2 + 77])
    made = transcode(tmp_path / "film.ts", tmp_path / "work")
    assert 60 <= verify(made.folder, made.plan, made.renditions, made.sound, decode=True).frames <= 80


def test_an_album_with_a_cover_is_sound_alone(source: Sources, tmp_path: Path) -> None:
    cover = tmp_path / "cover.png"
    png(cover, source)
    together = "-map 0 -map 1 -c copy -disposition:v attached_pic"
    ffmpeg("-i", str(source("sound.mp3")), "-i", str(cover), *together.split(), str(tmp_path / "album.mp3"))
    facts = probe(tmp_path / "album.mp3")
    assert facts.video is None
    assert len(facts.audio) == 1


def test_checking_is_done_only_where_chunks_cannot_be_strict(source: Sources) -> None:
    told: list[float] = []
    assert check(source("open.ts"), probe(source("open.ts")), on_progress=told.append)
    assert told == sorted(told)
    assert not check(source("25.mp4"), probe(source("25.mp4")))
    assert check(source("25.mp4"), probe(source("25.mp4")), always=True)


def test_an_identity_is_that_of_every_byte(source: Sources, tmp_path: Path) -> None:
    data = bytearray(source("25.mp4").read_bytes())
    (tmp_path / "same.mp4").write_bytes(data)
    data[len(data) // 2] ^= 1
    (tmp_path / "other.mp4").write_bytes(data)
    assert identity(tmp_path / "same.mp4") == identity(source("25.mp4"))
    assert identity(tmp_path / "other.mp4") != identity(source("25.mp4"))
    with pytest.raises(MediaError, match="INPUT_MISSING"):
        identity(tmp_path / "none.mp4")
