"""Which ffmpeg is used, and which encoders it really has."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast_media.cli.common import Common
from holdfast_media.cli.doctor import doctor
from holdfast_media.errors import MediaError
from holdfast_media.ffmpeg import available, capabilities, choose_encoder, encoders, find_ffmpeg, look_for_ffmpeg
from tests.media.engine.fake_ffmpeg import fake

if TYPE_CHECKING:
    from pathlib import Path


def test_the_setting_comes_first_then_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake(tmp_path, "")
    monkeypatch.setenv("HOLDFAST_FFMPEG", str(program))
    assert find_ffmpeg() == program
    other = program.with_name("other")
    other.write_bytes(program.read_bytes())
    other.chmod(0o755)
    assert find_ffmpeg(other) == other


def test_without_either_the_one_on_path_is_used_and_then_that_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_FFMPEG", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "imageio_ffmpeg" in str(find_ffmpeg())
    program = fake(tmp_path, "").rename(tmp_path / "ffmpeg")
    assert find_ffmpeg() == program


OLD = "print('ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright (c) 2000-2021 the FFmpeg developers')"


def test_one_on_path_that_is_too_old_gives_way_to_that_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """4.4 has no -fps_mode: it would find its encoders by a trial, and fail with every chunk."""
    monkeypatch.delenv("HOLDFAST_FFMPEG", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    program = fake(tmp_path, OLD).rename(tmp_path / "ffmpeg")
    assert "imageio_ffmpeg" in str(find_ffmpeg())
    assert "the ffmpeg on PATH is 4.4, and 5.1 or newer is needed" in caplog.text
    assert look_for_ffmpeg().passed_over
    fake(tmp_path, "sys.exit('libx264.so.163: cannot open shared object file')").rename(program)
    assert "cannot be run" in look_for_ffmpeg().passed_over
    fake(tmp_path, OLD.replace("4.4.2", "n7.0.1")).rename(program)
    assert look_for_ffmpeg() == (program, "7.0", "")
    fake(tmp_path, OLD.replace("4.4.2-0ubuntu0.22.04.1", "N-110233-g9b2")).rename(program)
    assert look_for_ffmpeg() == (program, "N-110233-g9b2", "")


def test_one_that_is_set_and_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_FFMPEG", str(fake(tmp_path, OLD)))
    with pytest.raises(MediaError, match=r"is 4\.4, and 5\.1 or newer") as caught:
        find_ffmpeg()
    assert caught.value.code == "FFMPEG_UNSUITABLE"


def test_without_a_wheel_an_old_one_is_no_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_FFMPEG", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MediaError, match="FFMPEG_MISSING"):
        find_ffmpeg()
    fake(tmp_path, OLD).rename(tmp_path / "ffmpeg")
    with pytest.raises(MediaError, match=r"FFMPEG_UNSUITABLE: the ffmpeg on PATH is 4\.4"):
        find_ffmpeg()


def test_the_doctor_says_which_one_was_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOLDFAST_FFMPEG", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    fake(tmp_path, OLD).rename(tmp_path / "ffmpeg")
    assert doctor(common=Common(as_json=True)) == 0
    (line,) = [one for one in json.loads(capsys.readouterr().out) if one["name"] == "ffmpeg"]
    assert line["level"] == "warn"
    assert "the ffmpeg on PATH is 4.4" in line["text"]


def test_a_setting_that_leads_nowhere_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_FFMPEG", "/home/ana/no-such-ffmpeg")
    with pytest.raises(MediaError, match="HOLDFAST_FFMPEG") as caught:
        find_ffmpeg()
    assert caught.value.code == "FFMPEG_MISSING"
    assert "/home" not in caught.value.message


def test_encoders_are_found_by_a_trial() -> None:
    assert "x264" in available()
    assert choose_encoder("x264").name == "libx264"


def test_hardware_that_is_only_listed_is_not_believed(tmp_path: Path) -> None:
    """This ffmpeg encodes with libx264 and amf, and fails with all others."""
    program = fake(tmp_path, "sys.exit(not {'libx264', 'h264_amf'} & set(sys.argv))")
    assert available(program) == {"x264", "amf"}
    assert choose_encoder("auto", program).name == "h264_amf"
    assert choose_encoder("nvenc", program).name == "libx264"


def test_an_ffmpeg_without_any_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError) as caught:
        choose_encoder("auto", fake(tmp_path, "sys.exit(1)"))
    assert caught.value.code == "FFMPEG_UNSUITABLE"


def test_one_bad_trial_is_not_believed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy, or a driver that comes back: what did not work is tried again, what works is not."""
    tried = tmp_path / "tried"
    program = fake(
        tmp_path,
        f"open({str(tried)!r}, 'a').write(sys.argv[sys.argv.index('-c:v') + 1] + ' ')\nsys.exit('libx264' not in sys.argv)",
    )
    assert available(program) == {"x264"}
    assert available(program) == {"x264"}
    assert tried.read_text().split().count("h264_nvenc") == 1
    monkeypatch.setattr(encoders, "AGAIN_AFTER", 0.0)
    program.write_text(program.read_text().replace("sys.exit('libx264' not in sys.argv)", ""))
    assert "nvenc" in available(program)
    assert available(program) == available(program)
    assert tried.read_text().split().count("h264_nvenc") == 2
    assert tried.read_text().split().count("libx264") == 1


def test_an_ffmpeg_that_failed_once_may_work_the_next_time(tmp_path: Path) -> None:
    program = fake(tmp_path, "sys.exit(1)")
    assert available(program) == frozenset()
    program.write_text(program.read_text().replace("sys.exit(1)", "sys.exit('libx264' not in sys.argv)"))
    assert choose_encoder("auto", program).name == "libx264"


def test_a_worker_publishes_what_it_has_in_hardware(tmp_path: Path) -> None:
    assert capabilities() <= {*encoders.FAMILIES, "hardware"} - {"x264"}
    program = fake(tmp_path, "sys.exit(not {'libx264', 'h264_amf'} & set(sys.argv))")
    assert capabilities(program) == {"amf", "hardware"}
