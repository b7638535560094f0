"""Parts of a file that are missing: what tells of them where all that is there decodes, and what is no damage."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from holdfast_media.errors import MediaError
from holdfast_media.ffmpeg import find_ffmpeg
from holdfast_media.source import probe
from holdfast_media.source.complaints import Complaints
from holdfast_media.source.promise import promise_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sources = Callable[[str], Path]


def test_groups_of_pictures_that_are_missing_without_a_trace_are_damage(source: Sources, tmp_path: Path) -> None:
    """Every element is whole, and libav has nothing to say: only that the frames were even, and are not there for a while."""
    data = bytearray(source("clusters.webm").read_bytes())
    starts = [found.start() for found in re.finditer(re.escape(b"\x1f\x43\xb6\x75"), data)]
    begin, end = starts[len(starts) // 2], starts[len(starts) * 3 // 4]
    data[begin : begin + 9] = b"\xec\x01" + (end - begin - 9).to_bytes(7)  # an element that is to be ignored
    (tmp_path / "film.webm").write_bytes(data)
    with pytest.raises(MediaError, match="INPUT_DAMAGED: nothing is there between") as caught:
        probe(tmp_path / "film.webm")
    assert "even frames" in caught.value.message


@pytest.mark.parametrize("name", ["vfr.mkv", "pause.mkv"])
def test_a_picture_that_stands_still_by_intention_is_no_damage(name: str, source: Sources) -> None:
    """Frames that last differently long, and a film whose sound goes on while its picture does not."""
    video = probe(source(name)).video
    assert video is not None
    assert video.variable


def test_a_recording_that_promised_no_end_is_held_to_its_length(source: Sources, tmp_path: Path) -> None:
    """A recorder of live pictures does not know how many bytes it will write; one that knows the length says that."""
    path = tmp_path / "film.mkv"
    command = [str(find_ffmpeg()), "-v", "error", "-i", str(source("24.mkv")), "-c", "copy", "-f", "matroska", "-"]
    path.write_bytes(data := subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    promise = promise_of(path)
    assert (promise.open_ended, promise.end, promise.kept) == (True, None, True)
    assert probe(path).seconds == pytest.approx(5.7, abs=0.05)
    path.write_bytes(data[: len(data) * 9 // 10])
    with pytest.raises(MediaError, match="INPUT_TRUNCATED"):
        probe(path)


@pytest.mark.parametrize("name", ["sound.flac", "film.mxf"])
def test_a_file_that_is_shorter_than_its_header_says_is_refused(name: str, source: Sources, tmp_path: Path) -> None:
    """Every packet that is there is whole: only the length tells."""
    assert probe(source(name)).seconds == pytest.approx(8 if name == "sound.flac" else 20, abs=0.01)
    data = source(name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) * 96 // 100])
    with pytest.raises(MediaError, match="INPUT_TRUNCATED"):
        probe(tmp_path / name)


@pytest.mark.parametrize("name", ["24.mkv", "clusters.webm", "fast-start.mp4", "25.mp4"])
def test_a_whole_file_keeps_its_promise_and_one_that_lacks_a_byte_does_not(name: str, source: Sources, tmp_path: Path) -> None:
    data = source(name).read_bytes()
    promise = promise_of(source(name))
    assert promise.kept
    index = data.rfind(b"moov") - 4
    end = index + int.from_bytes(data[index : index + 4]) if name.endswith("mp4") else len(data)
    assert promise.end == end
    (tmp_path / "cut").write_bytes(data[: end - 1])
    assert not promise_of(tmp_path / "cut").kept


@pytest.mark.parametrize(
    "data", [b"", b"\x1a", b"\x1a\x45\xdf\xa3", b"\x1a\x45\xdf\xa3\x00", b"\0\0\0\x08ftyp" * 5000, b"RIFF"]
)
def test_what_is_too_odd_to_be_understood_promises_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "film").write_bytes(data)
    assert promise_of(tmp_path / "film").end is None


def test_a_complaint_that_comes_in_pieces_is_heard() -> None:
    complaints = Complaints()
    for piece in (b"[mp3 @ 0x5] Header missing\n[matroska,we", b"bm @ 0x55] Invalid track number 34\n", b"[matroska"):
        complaints.take(piece)
    assert complaints.first == "Invalid track number 34"
