"""Packaging and verifying: what is not whole is found, and chunks of different encoders play as one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from holdfast_media.errors import MediaError, Stopped
from holdfast_media.ffmpeg import RunResult, choose_encoder, find_ffmpeg, run
from holdfast_media.transcode import chunk as chunk_module
from holdfast_media.transcode import encode_audio, encode_chunk, package_rendition, verify, write_master
from tests.media.engine.fake_ffmpeg import fake
from tests.media.engine.making import Made, times, transcode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sources = Callable[[str], Path]


@pytest.fixture(scope="module")
def finished(source: Sources, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return transcode(source("25.mp4"), tmp_path_factory.mktemp("finished") / "work")


@pytest.fixture
def made(finished: Made, tmp_path: Path) -> Made:
    """A finished output of this test's own, to break."""
    shutil.copytree(finished.folder, tmp_path / "out")
    return finished._replace(folder=tmp_path / "out")


def refused(made: Made, *, decode: bool = False) -> str:
    with pytest.raises(MediaError) as caught:
        verify(made.folder, made.plan, made.renditions, made.sound, decode=decode)
    return caught.value.code


# -- verifying -------------------------------------------------------------------------------------------------------------


def test_what_is_whole_is_counted(made: Made) -> None:
    told: list[float] = []
    verdict = verify(made.folder, made.plan, made.renditions, made.sound, decode=True, on_progress=told.append)
    assert (verdict.frames, verdict.seconds, verdict.decoded) == (133, 5.32, True)
    assert verdict.bytes == sum(path.stat().st_size for path in made.folder.rglob("*.m4s"))
    assert told[-1] == 1.0


def test_a_missing_segment_is_found(made: Made) -> None:
    (made.folder / "44p/segment_00002.m4s").unlink()
    assert refused(made) == "OUTPUT_EMPTY"


def test_an_empty_segment_is_found(made: Made) -> None:
    (made.folder / "audio/segment_00001.m4s").write_bytes(b"")
    assert refused(made) == "OUTPUT_EMPTY"


def test_a_segment_that_was_cut_is_found(made: Made) -> None:
    path = made.folder / "90p/segment_00001.m4s"
    path.write_bytes(path.read_bytes()[:-10])
    assert refused(made) == "OUTPUT_EMPTY"


def test_a_missing_header_is_found(made: Made) -> None:
    (made.folder / "90p/init_000.mp4").unlink()
    assert refused(made) == "OUTPUT_EMPTY"


def test_a_playlist_without_its_end_is_found(made: Made) -> None:
    path = made.folder / "90p/index.m3u8"
    path.write_text(path.read_text().replace("#EXT-X-ENDLIST\n", ""))
    assert refused(made) == "OUTPUT_MISMATCH"


def test_a_playlist_that_lacks_a_segment_is_found(made: Made) -> None:
    for rendition in ("90p", "44p"):
        path = made.folder / rendition / "index.m3u8"
        path.write_text("".join(path.read_text().partition("#EXTINF")[0:1]) + rest_after(path, 1))
    assert refused(made) == "OUTPUT_MISMATCH"


def rest_after(path: Path, segments: int) -> str:
    """Return the playlist from after this many segments."""
    return "#EXTINF" + "#EXTINF".join(path.read_text().split("#EXTINF")[1 + segments :])


def test_a_playlist_that_ends_early_is_found(made: Made) -> None:
    for rendition in ("90p", "44p"):
        path = made.folder / rendition / "index.m3u8"
        path.write_text("#EXTINF".join(path.read_text().split("#EXTINF")[:-1]) + "#EXT-X-ENDLIST\n")
    assert refused(made) == "OUTPUT_MISMATCH"


def test_a_quality_that_the_master_does_not_name_is_found(made: Made) -> None:
    write_master(made.folder, made.renditions[:1], made.sound)
    assert refused(made) == "OUTPUT_MISMATCH"


def test_key_frames_that_are_not_aligned_are_found(made: Made, source: Sources, tmp_path: Path) -> None:
    other = transcode(source("25.mp4"), tmp_path / "other", segment_seconds=2)
    shutil.rmtree(made.folder / "44p")
    shutil.copytree(other.folder / "44p", made.folder / "44p")
    assert refused(made) == "OUTPUT_MISMATCH"


def test_data_that_does_not_decode_is_found_by_decoding_only(made: Made) -> None:
    path = made.folder / "90p/segment_00001.m4s"
    data = bytearray(path.read_bytes())
    data[-3000:-1000] = bytes(2000)
    path.write_bytes(data)
    verify(made.folder, made.plan, made.renditions, made.sound)
    assert refused(made, decode=True) == "OUTPUT_MISMATCH"


# -- packaging -------------------------------------------------------------------------------------------------------------


def encoded(made: Made, source: Path, folder: Path, **options: str) -> list[Path]:
    files = [folder / f"{chunk.index}.mp4" for chunk in made.plan.chunks]
    for chunk, file in zip(made.plan.chunks, files, strict=True):
        encode_chunk(source, made.plan, made.plan.renditions[0], chunk, file)
    return files


def test_the_same_chunks_give_the_same_bytes(made: Made, source: Sources, tmp_path: Path) -> None:
    files = encoded(made, source("25.mp4"), tmp_path)
    first = package_rendition(made.plan, made.plan.renditions[0], files, tmp_path / "one")
    assert package_rendition(made.plan, made.plan.renditions[0], files, tmp_path / "two") == first
    for name in first.files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_chunks_of_different_encoders_play_as_one(made: Made, source: Sources, tmp_path: Path) -> None:
    """One chunk is encoded with other settings, as by hardware: its header is another."""
    files = encoded(made, source("25.mp4"), tmp_path)
    real = find_ffmpeg()
    code = f"os.execv({str(real)!r}, [{{'ultrafast': 'medium'}}.get(argument, argument) for argument in sys.argv])"
    other = fake(tmp_path, code)
    encode_chunk(source("25.mp4"), made.plan, made.plan.renditions[0], made.plan.chunks[1], files[1], ffmpeg=other)
    folder = made.folder / "90p"
    shutil.rmtree(folder)
    package = package_rendition(made.plan, made.plan.renditions[0], files, folder)
    assert (folder / "index.m3u8").read_text().count("#EXT-X-MAP") == (3 if len(files) > 2 else 2)
    # all playlists of a title must agree on where one is, and the others have none
    assert "DISCONTINUITY" not in (folder / "index.m3u8").read_text()
    assert [name for name in package.files if name.startswith("init")] == ["init_000.mp4", "init_001.mp4"]
    assert verify(made.folder, made.plan, [package, made.renditions[1]], made.sound, decode=True).frames == 133
    assert package.codecs.startswith("avc1.64")


def test_a_chunk_that_is_another_is_refused(made: Made, source: Sources, tmp_path: Path) -> None:
    files = encoded(made, source("25.mp4"), tmp_path)
    for wrong in ([files[0]] * len(files), [*files[:-1], cut(files[-1])], [*files[:-1], tmp_path / "none.mp4"]):
        with pytest.raises(MediaError) as caught:
            package_rendition(made.plan, made.plan.renditions[0], wrong, tmp_path / "out2")
        assert caught.value.code == "OUTPUT_MISMATCH"
    with pytest.raises(MediaError) as caught:
        package_rendition(made.plan, made.plan.renditions[1], files, tmp_path / "out2")
    assert caught.value.code == "OUTPUT_MISMATCH"
    with pytest.raises(MediaError) as caught:
        package_rendition(made.plan, made.plan.renditions[0], files[:-1], tmp_path / "out2")
    assert caught.value.code == "PLAN_INVALID"


def cut(path: Path) -> Path:
    target = path.with_name("cut.mp4")
    target.write_bytes(path.read_bytes()[:-5000])
    return target


def test_packaging_stops_when_told(made: Made, source: Sources, tmp_path: Path) -> None:
    files = encoded(made, source("25.mp4"), tmp_path)
    with pytest.raises(Stopped):
        package_rendition(made.plan, made.plan.renditions[0], files, tmp_path / "out2", stop=lambda: "deleted")


# -- encoding that goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fails",
    [
        "sys.exit(1)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "time.sleep(60)",
        "sys.exit('Invalid data found when processing input')",
    ],
)
def test_hardware_that_fails_gives_way_to_software_and_that_is_recorded(
    fails: str, made: Made, source: Sources, tmp_path: Path
) -> None:
    """This nvenc passes its trial of one frame, and then fails, is killed, stands still, or blames the source."""
    real = find_ffmpeg()
    code = f"if 'h264_nvenc' in sys.argv and 'lavfi' in sys.argv: sys.exit()\nif 'h264_nvenc' in sys.argv: {fails}\n"
    code += f"if 'lavfi' in sys.argv: sys.exit('libx264' not in sys.argv)\nos.execv({str(real)!r}, sys.argv)"
    chunk = made.plan.chunks[0]
    program = fake(tmp_path, code)
    facts = encode_chunk(
        source("25.mp4"), made.plan, made.plan.renditions[0], chunk, tmp_path / "x.mp4", ffmpeg=program, stall_after=0.5
    )
    assert (facts.encoder, facts.frames) == ("libx264", chunk.frames)
    assert choose_encoder("auto", program).name == "libx264", "the next chunk does not try it again"


def test_reading_from_the_beginning_has_the_time_it_needs(
    made: Made, source: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that stands before the chunk is decoded and thrown away: that takes time, and nothing is written meanwhile."""
    given: list[tuple[bool, float, float]] = []

    def noted(arguments: list[str], **options: Any) -> RunResult:
        seeks = "-ss" in arguments
        given.append((seeks, options["timeout"], options["lead"]))
        if seeks:
            raise MediaError("ENCODE_FAILED", "the index is broken.")
        return run(arguments, **options)

    monkeypatch.setattr(chunk_module, "run", noted)
    chunk = made.plan.chunks[1]
    facts = encode_chunk(
        source("25.mp4"), made.plan, made.plan.renditions[0], chunk, tmp_path / "x.mp4", timeout=100.0, encoder="x264"
    )
    assert facts.frames == chunk.frames
    assert made.plan.video is not None
    gap = made.plan.video.key_frame_gap
    assert given == [(True, 100.0 + gap, gap), (False, 100.0 + chunk.start, chunk.start)]


def test_a_seek_that_misses_is_made_good_from_the_beginning(made: Made, source: Sources, tmp_path: Path) -> None:
    """This ffmpeg seeks a second too far, as a broken index would make it."""
    real = find_ffmpeg()
    code = f"a = sys.argv[1:]\nif '-ss' in a: a[a.index('-ss') + 1] = '3.3'\nos.execv({str(real)!r}, ['ffmpeg', *a])"
    chunk = made.plan.chunks[1]
    facts = encode_chunk(
        source("25.mp4"), made.plan, made.plan.renditions[0], chunk, tmp_path / "x.mp4", ffmpeg=fake(tmp_path, code)
    )
    assert facts.frames == chunk.frames
    assert times(tmp_path / "x.mp4")[0] >= chunk.start


def test_an_encode_that_leaves_nothing_is_retryable(made: Made, source: Sources, tmp_path: Path) -> None:
    code = "if 'lavfi' in sys.argv: sys.exit('libx264' not in sys.argv)\n"
    code += "if sys.argv[-1].startswith('file:'): open(sys.argv[-1][5:], 'w')"
    program = fake(tmp_path, code)
    with pytest.raises(MediaError) as caught:
        encode_audio(source("25.mp4"), made.plan, tmp_path / "x.mp4", ffmpeg=program)
    assert caught.value.retryable
    with pytest.raises(MediaError) as caught:
        encode_chunk(
            source("25.mp4"), made.plan, made.plan.renditions[0], made.plan.chunks[0], tmp_path / "x.mp4", ffmpeg=program
        )
    assert caught.value.retryable
    assert not list(tmp_path.glob("x.mp4*"))


def test_an_encode_that_is_stopped_leaves_nothing(made: Made, source: Sources, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        encode_chunk(
            source("25.mp4"),
            made.plan,
            made.plan.renditions[0],
            made.plan.chunks[0],
            tmp_path / "x.mp4",
            stop=lambda: "lease lost",
        )
    assert not list(tmp_path.glob("x.mp4*"))
