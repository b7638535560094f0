"""Which ffmpeg is used, and which encoders it really has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast_media.errors import MediaError
from holdfast_media.ffmpeg import available, choose_encoder, find_ffmpeg
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
