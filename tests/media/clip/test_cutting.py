"""Clips hold exactly the frames they should, and fast ones exactly those they say."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import av
import msgspec
import psutil
import pytest

from holdfast_media import ffmpeg
from holdfast_media.clip import copier
from holdfast_media.clip.copying import copy_stretch
from holdfast_media.clip.cutting import Cut, check_range, container_for, cut
from holdfast_media.clip.deadline import Deadline
from holdfast_media.clip.reading import read_stretch
from holdfast_media.errors import MediaError, Stopped
from tests.media.clip import films

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RANGES = [(1.3, 3.3), (2.5, 2.54), (4.01, None)]


def make_clip(
    source: Path, target: Path, start: float, end: float | None, *, fast: bool = False, **changes: Any
) -> tuple[Cut, Path]:
    deadline = Deadline(60.0)
    stretch = read_stretch(source, start, end, stop=lambda: None, deadline=deadline)
    check_range(stretch, start, end, fast=fast)
    path = target / f"clip.{container_for(stretch, fast=fast)}"
    options: dict[str, Any] = {
        "fast": fast,
        "program": None,
        "deadline": deadline,
        "stall_after": 60.0,
        "scratch": target,
        "on_progress": lambda _: None,
        "stop": lambda: None,
    }
    return cut(source, path, stretch, start, end, **{**options, **changes}), path


def meant(source: Path, start: float, end: float | None) -> list[int]:
    """The frames of a stretch, by decoding the whole source."""
    return [
        frame.number
        for frame in films.frames(source)
        if frame.at >= start - 0.0005 and (end is None or frame.at < end - 0.0005)
    ]


@pytest.fixture(scope="session")
def containers(film: Path, shelf: Path) -> dict[str, Path]:
    return {name: films.copy(film, shelf / f"film.{name}") for name in ("ts", "mkv", "avi")} | {"mp4": film}


@pytest.mark.parametrize(
    ("container", "start", "end"),
    [("mp4", *RANGES[0]), ("mp4", *RANGES[1]), ("mkv", *RANGES[0]), ("mkv", *RANGES[2]), ("ts", 0.0, 0.5), ("ts", 2.466, 3.0)],
)
def test_a_clip_has_exactly_its_frames(
    containers: dict[str, Path], tmp_path: Path, container: str, start: float, end: float | None
) -> None:
    source = containers[container]
    facts, path = make_clip(source, tmp_path, start, end)
    expected = meant(source, start, end)
    assert films.numbers(path) == expected
    assert facts.frames == len(expected)
    assert facts.key_frame is None
    assert facts.start == pytest.approx(expected[0] / films.RATE, abs=0.001)
    assert facts.end == pytest.approx((expected[-1] + 1) / films.RATE, abs=0.001)


@pytest.mark.parametrize(("container", "start", "end"), [("mp4", *RANGES[0]), ("mkv", *RANGES[1]), ("ts", *RANGES[0])])
def test_a_fast_clip_holds_what_it_states(
    containers: dict[str, Path], tmp_path: Path, container: str, start: float, end: float | None
) -> None:
    source = containers[container]
    facts, path = make_clip(source, tmp_path, start, end, fast=True)
    made, whole = films.frames(path), films.frames(source)
    assert facts.key_frame == facts.start
    first = round(facts.start * films.RATE)
    assert first % films.GAP == 0, "it does not begin with a key frame"
    assert first <= meant(source, start, end)[0] < first + films.GAP, "there is a nearer key frame"
    assert [frame.number for frame in made] == list(range(first, round(facts.end * films.RATE))), "frames are missing"
    assert len(made) == facts.frames
    assert made[-1].number >= meant(source, start, end)[-1]
    assert [frame.digest for frame in made] == [frame.digest for frame in whole[first : first + len(made)]], "not copied"


@pytest.mark.slow
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("container", ["mp4", "mkv", "ts"])
def test_every_start_of_a_film_gives_its_frames(
    containers: dict[str, Path],
    tmp_path: Path,
    container: str,
    fast: bool,  # noqa: FBT001
) -> None:
    """Starts on, just before and between frames, on and around key frames; ends likewise."""
    source = containers[container]
    for start in (0.0, 0.016, 0.033, 1.3, 2.466, 2.483, 2.5, 2.533, 5.9):
        for end in (start + 0.05, start + 1.0, None):
            facts, path = make_clip(source, tmp_path, start, end, fast=fast)
            found, expected = films.numbers(path), meant(source, start, end)
            if not fast:
                assert found == expected
            else:
                assert found == list(range(round(facts.start * films.RATE), round(facts.end * films.RATE)))
                assert found[0] <= expected[0]
                assert found[-1] >= expected[-1]


def test_a_fast_clip_of_open_groups_leaves_out_what_leans_on_others(shelf: Path, tmp_path: Path) -> None:
    source = films.make(shelf / "open.ts", "-x264-params", "open-gop=1:keyint=75:bframes=3:b-adapt=0")
    facts, path = make_clip(source, tmp_path, 3.0, 4.0, fast=True)
    found = films.numbers(path)
    assert found == list(range(round(facts.start * films.RATE), round(facts.start * films.RATE) + len(found)))
    assert found[0] in range(60, 91)


def test_frames_of_a_variable_rate_keep_their_times(shelf: Path, tmp_path: Path) -> None:
    source = films.make(
        shelf / "variable.mp4", "-vf", "select='mod(n,3)+mod(n,7)'", "-fps_mode", "vfr", rate="30000/1001", sound=False
    )
    _, path = make_clip(source, tmp_path, 1.3, 3.3)
    stretch = [frame for frame in films.frames(source) if 1.2995 <= frame.at < 3.2995]
    made = films.frames(path)
    assert [frame.number for frame in made] == [frame.number for frame in stretch]
    assert [frame.at for frame in made] == pytest.approx([frame.at - stretch[0].at for frame in stretch], abs=0.0005)


def test_a_source_that_does_not_say_its_times_loses_no_frame(containers: dict[str, Path], tmp_path: Path) -> None:
    """An AVI with reordered frames says when they are decoded, not when they are shown: the first may be one off."""
    facts, path = make_clip(containers["avi"], tmp_path, 1.3, 3.3)
    found = films.numbers(path)
    assert found == list(range(found[0], found[0] + 60))
    assert abs(found[0] - 39) <= 1
    assert facts.frames == 60


def test_a_time_rounded_to_milliseconds_means_its_frame(film: Path, tmp_path: Path) -> None:
    """Frame 2 is at 66.67 ms, and programs print that as 0.067: the frame after it is not meant."""
    _, path = make_clip(film, tmp_path, 0.067, 0.1)
    assert films.numbers(path) == [2]


def test_odd_sizes_are_padded(shelf: Path, tmp_path: Path) -> None:
    source = shelf / "odd.mkv"
    films.ffmpeg("-f", "lavfi", "-i", "testsrc2=s=65x37:d=1", "-c:v", "ffv1", str(source))
    facts, path = make_clip(source, tmp_path, 0.2, 0.6)
    assert facts.frames == 10
    assert path.stat().st_size > 0


def test_sound_stays_with_the_picture(shelf: Path, tmp_path: Path) -> None:
    """A tone of a tenth of a second at 2.0 s: it must sound 0.7 s into a clip that begins at 1.3 s."""
    source = shelf / "beep.mp4"
    beep = "aevalsrc='if(between(t,2,2.1),0.8*sin(2*PI*880*t),0)':d=6:s=48000"
    films.ffmpeg(*("-f", "lavfi", "-i", films.NUMBERED.format(rate=30, seconds=6), "-f", "lavfi", "-i", beep, str(source)))
    _, path = make_clip(source, tmp_path, 1.3, 3.3)
    assert first_sound(path) == pytest.approx(0.7, abs=0.03)
    facts, path = make_clip(source, tmp_path, 2.0, 3.3, fast=True)
    assert first_sound(path) == pytest.approx(2.0 - facts.start, abs=0.03)


def first_sound(path: Path) -> float:
    with av.open(str(path)) as container:
        for piece in container.decode(audio=0):
            samples = memoryview(bytes(piece.planes[0])).cast("f")
            for at, sample in enumerate(samples[: piece.samples]):
                if abs(sample) > 0.2:
                    return films.moment(piece) + at / piece.sample_rate
    raise AssertionError("it is silent")


def test_sound_alone_is_cut_too(shelf: Path, tmp_path: Path) -> None:
    source = shelf / "tone.m4a"
    films.ffmpeg("-f", "lavfi", "-i", "sine=440:d=4", "-c:a", "aac", str(source))
    facts, path = make_clip(source, tmp_path, 1.0, 2.5)
    assert (facts.start, facts.end, facts.frames) == (1.0, 2.5, 0)
    heard = films.loudness(path)
    assert heard[-1][0] + heard[-1][1] / 44_100 == pytest.approx(1.5, abs=0.03)


def test_sound_alone_is_encoded_also_when_it_should_be_fast_and_named_after_what_it_is(shelf: Path, tmp_path: Path) -> None:
    source = shelf / "tone.wav"  # no sound that goes into an mp4 as it is
    films.ffmpeg("-f", "lavfi", "-i", "sine=440:d=2", str(source))
    facts, path = make_clip(source, tmp_path, 0.5, 1.5, fast=True)
    assert (facts.container, facts.encoder, path.suffix) == ("mp4", "aac", ".mp4")
    with av.open(str(path)) as container:
        assert container.format.name == "mov,mp4,m4a,3gp,3g2,mj2"


# --- what cannot be cut ---------------------------------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(MediaError) as error:
        call()
    assert not error.value.retryable
    return error.value.code


def test_nothing_is_there_after_the_end(film: Path, tmp_path: Path) -> None:
    assert refused(lambda: make_clip(film, tmp_path, 60.0, 61.0)) == "BAD_RANGE"


def test_an_end_beyond_the_source_is_the_sources_end(film: Path, tmp_path: Path) -> None:
    facts, path = make_clip(film, tmp_path, 5.0, 100.0)
    assert facts.end == pytest.approx(6.0)
    assert films.numbers(path) == list(range(150, 180))


def test_a_truncated_source_is_no_success(shelf: Path, film: Path, tmp_path: Path) -> None:
    whole = shelf / "front.mp4"
    films.ffmpeg("-i", str(film), "-c", "copy", "-movflags", "+faststart", str(whole))
    half = tmp_path / "half.mp4"
    half.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    assert refused(lambda: make_clip(half, tmp_path, 1.0, 5.5)) == "INPUT_TRUNCATED"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "INPUT_EMPTY"),
        (b"\x00" * 4096, "INPUT_UNREADABLE"),
        (os.urandom(65_536), "INPUT_UNREADABLE"),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n/etc/passwd\n#EXT-X-ENDLIST\n", "INPUT_UNREADABLE"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "INPUT_UNREADABLE"),
    ],
    ids=["empty", "zeros", "random", "playlist", "concat"],
)
def test_what_is_no_media_file_is_refused(tmp_path: Path, content: bytes, code: str) -> None:
    source = tmp_path / "source.mp4"
    source.write_bytes(content)
    assert refused(lambda: make_clip(source, tmp_path, 0.0, 1.0)) in {code, "INPUT_UNREADABLE"}


def test_a_playlist_cannot_reach_another_film(film: Path, tmp_path: Path) -> None:
    source = tmp_path / "list.m3u8"
    source.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6,\n{film}\n#EXT-X-ENDLIST\n")
    assert refused(lambda: make_clip(source, tmp_path, 0.0, 1.0)) == "INPUT_UNREADABLE"


# --- how it ends ----------------------------------------------------------------------------------------------------------


def program(folder: Path, script: str) -> Path:
    path = folder / "ffmpeg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_clip_that_takes_too_long_is_ended(film: Path, tmp_path: Path) -> None:
    slow = program(tmp_path, f'echo $$ > "{tmp_path}/pid"; sleep 60 & echo $! >> "{tmp_path}/pid"; wait')
    begun = time.monotonic()
    with pytest.raises(MediaError) as error:
        make_clip(film, tmp_path, 1.0, 2.0, program=slow, deadline=Deadline(0.5))
    assert (error.value.code, error.value.retryable) == ("CLIP_TIMEOUT", True)
    assert time.monotonic() - begun < 10
    pids = [int(line) for line in (tmp_path / "pid").read_text().split()]
    assert len(pids) == 2
    assert ended(pids)


def test_reading_that_takes_too_long_may_be_tried_again(film: Path) -> None:
    with pytest.raises(MediaError) as error:
        read_stretch(film, 1.0, 2.0, stop=lambda: None, deadline=Deadline(0.0))
    assert (error.value.code, error.value.retryable) == ("CLIP_TIMEOUT", True)


def test_the_time_limit_is_for_all_of_it(film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run makes the wrong frames, so there is a second one; it has what the first has left."""
    wrong = program(tmp_path, f'for last; do :; done; cp "{film}" "${{last#file:}}"')
    limits: list[float] = []
    real = ffmpeg.run

    def noted(*args: Any, **options: Any) -> Any:
        limits.append(options["timeout"])
        return real(*args, **options)

    monkeypatch.setattr(ffmpeg, "run", noted)
    begun = time.monotonic() - 30.0
    with pytest.raises(MediaError, match="OUTPUT_MISMATCH"):
        make_clip(film, tmp_path, 1.0, 2.0, program=wrong, deadline=Deadline(60.0, begun))
    assert 30.0 > limits[0] > limits[1]


def ended(pids: list[int], seconds: float = 10.0) -> bool:
    """Tell whether processes are gone; a killed one takes a moment, and an orphan is reaped by others."""
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if psutil.pid_exists(pid) and _alive(pid)]:
        if time.monotonic() > deadline:
            return not left
        time.sleep(0.02)
    return True


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_fast_clip_that_takes_too_long_is_ended(film: Path, tmp_path: Path) -> None:
    with pytest.raises(MediaError) as error:
        make_clip(film, tmp_path, 1.0, 2.0, fast=True, deadline=Deadline(0.0))
    assert error.value.code == "CLIP_TIMEOUT"


def test_a_stop_ends_it_at_once(film: Path, tmp_path: Path) -> None:
    slow = program(tmp_path, "exec sleep 60")
    begun = time.monotonic()
    with pytest.raises(Stopped, match="shutdown"):
        make_clip(film, tmp_path, 1.0, 2.0, program=slow, stop=lambda: "shutdown" if time.monotonic() > begun + 0.3 else None)
    assert time.monotonic() - begun < 5


def test_an_output_without_a_byte_may_be_tried_again(film: Path, tmp_path: Path) -> None:
    empty = program(tmp_path, 'for last; do :; done; : > "${last#file:}"')
    with pytest.raises(MediaError) as error:
        make_clip(film, tmp_path, 1.0, 2.0, program=empty)
    assert (error.value.code, error.value.retryable) == ("OUTPUT_EMPTY", True)


def test_an_output_with_other_frames_is_no_success(film: Path, tmp_path: Path, shelf: Path) -> None:
    other = shelf / "other.mp4"
    if not other.exists():
        films.make(other, seconds=1)
    wrong = program(tmp_path, f'for last; do :; done; cp "{other}" "${{last#file:}}"')
    with pytest.raises(MediaError) as error:
        make_clip(film, tmp_path, 1.0, 3.0, program=wrong)
    assert error.value.code == "OUTPUT_MISMATCH"


def test_a_name_that_looks_like_an_option_or_an_address_is_a_name(film: Path, tmp_path: Path) -> None:
    for name, fast in (("http:x.mp4", False), ("-i '\"%03d\n.mp4", True)):
        source = tmp_path / name
        shutil.copy(film, source)
        facts, _ = make_clip(source, tmp_path, 1.0, 1.5, fast=fast)
        assert facts.frames in {15, 46}


def test_a_copy_that_stands_still_is_ended_long_before_its_time_is_up(tmp_path: Path) -> None:
    """As on a disk that does not answer: a pipe that nobody writes into."""
    hung = tmp_path / "hung.mp4"
    os.mkfifo(hung)
    before = set(psutil.Process().children())
    with pytest.raises(MediaError, match=r"the copy moved nothing for 0\.5 seconds") as error:
        copy_stretch(
            hung,
            tmp_path / "clip.mp4",
            0,
            None,
            deadline=Deadline(600.0),
            stop=lambda: None,
            stall_after=0.5,
            on_progress=lambda _: None,
        )
    assert (error.value.code, error.value.retryable, error.value.said_by) == ("ENCODE_STALLED", True, "the process that copies")
    assert set(psutil.Process().children()) <= before


def test_a_copy_that_still_reads_says_so(film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copier.main(str(film), str(tmp_path / "clip.mp4"), "0", "end")
    shares = [msgspec.json.decode(line).get("share") for line in capsys.readouterr().out.splitlines()]
    assert shares[0] == 0.0, "before anything is copied"
    assert shares[-2:] == [1.0, None]
