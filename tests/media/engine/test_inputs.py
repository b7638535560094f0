"""Odd and bad inputs: each ends as the table in docs/media/inputs.md says, and none hangs or takes anything down."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast_media.errors import MediaError, Stopped
from holdfast_media.ffmpeg.limits import reading_limit
from holdfast_media.source import check, identity, probe
from holdfast_media.transcode import verify
from tests.media.engine.bad_inputs import FAILING, TABLE, ffmpeg, png, promised
from tests.media.engine.making import transcode
from tests.media.engine.odd_inputs import without_rate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sources = Callable[[str], Path]


# -- inputs that fail ------------------------------------------------------------------------------------------------------


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
    unmade = "| a file that makes the reader"  # fail by itself: tried below
    lines = [line for line in rows.splitlines() if line.startswith("| ") and "`INPUT_" in line]
    named = [line[2:] for line in lines if not line.startswith(unmade)]
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
        probe(path, timeout=30.0)
    assert caught.value.code == "INPUT_UNREADABLE"


@pytest.mark.parametrize(
    "code",
    [
        "data = bytearray(1 << 34)",
        "import sys; print('[h264 @ 0x5] thread_get_buffer() failed', file=sys.stderr); print('{\"code\": \"INPUT_DAMAGED\"}')",
    ],
)
def test_too_little_memory_is_not_called_damage(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"x")
    reader = tmp_path / "reader.py"
    reader.write_text(code)
    monkeypatch.setattr(sys.modules["holdfast_media.source.probe"], "_READER", reader)
    with pytest.raises(MediaError, match=r"more than 3\.0 GiB of memory") as caught:
        probe(path, timeout=30.0)
    assert caught.value.code == "INPUT_TOO_LARGE"


def test_a_large_picture_takes_the_memory_of_a_few_frames(source: Sources) -> None:
    """An 8K frame has 50 MB: sixteen of them, held at once, would not find room."""
    video = probe(source("8k.mp4"), memory=1 << 30).video
    assert video is not None
    assert (video.width, video.height, video.frames, video.steady) == (7680, 4320, 16, True)


def test_a_reader_that_is_late_may_be_luckier_the_next_time(
    source: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is busy, or a disk that sleeps, is not the file's fault."""
    facts = probe(source("open.ts"))
    reader = tmp_path / "reader.py"
    reader.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(sys.modules["holdfast_media.source.probe"], "_READER", reader)
    for late in (lambda: probe(source("open.ts"), timeout=0.3), lambda: check(source("open.ts"), facts, timeout=0.3)):
        with pytest.raises(MediaError, match="not read within") as caught:
            late()
        assert caught.value.code == "PROBE_FAILED"
        assert caught.value.retryable


def test_what_is_larger_may_take_longer() -> None:
    assert reading_limit(1) == 300
    assert reading_limit(8 * 10**9) == 4000
    assert reading_limit(10**12, 7200.0) == 14_400
    assert reading_limit(10**6, 3600.0) == 7200


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
    path = without_rate(source("25.mp4"), tmp_path / "film.ts")
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


def test_a_film_that_was_trimmed_without_encoding_it_is_what_the_trim_left(source: Sources, tmp_path: Path) -> None:
    """Its edit list cuts off what stands before 1.3 s; the packets are all there, and the tables promise all of them."""
    path = tmp_path / "film.mp4"
    ffmpeg("-ss", "1.3", "-i", str(source("one-group.mp4")), "-c", "copy", "-movflags", "+faststart", str(path))
    made = transcode(path, tmp_path / "work")
    assert made.facts.video is not None
    assert made.facts.video.frames == (4 - 1.3) * 25 // 1
    verdict = verify(made.folder, made.plan, made.renditions, made.sound, decode=True)
    assert verdict.frames == made.facts.video.frames
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    with pytest.raises(MediaError, match="INPUT_TRUNCATED"):
        probe(path)


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
