"""Subtitles from the command line: who writes them down, and what is said where nobody can."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast_media import Media
from holdfast_media.speech.transcript import Segment, Transcript
from holdfast_media.speech.whisper import FasterWhisper
from tests.media.tasks.films import film

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.media.cli.commanding import Done


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no faster-whisper here, whatever is installed."""
    monkeypatch.setattr("holdfast_media.speech.whisper.importlib.util.find_spec", lambda _: None)


def hears(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have every model hear the same; returns which were asked."""
    asked: list[str] = []

    def transcribe(self: FasterWhisper, source: Path, **_: Any) -> Transcript:
        del source
        asked.append(self.model)
        return Transcript((Segment(0.0, 1.0, "Otters."),), "en")

    monkeypatch.setattr(FasterWhisper, "check", lambda _: None)
    monkeypatch.setattr(FasterWhisper, "transcribe", transcribe)
    return asked


def test_a_model_in_the_settings_makes_a_transcriber(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Media(Holdfast("sqlite:///jobs.db"), root=tmp_path).transcriber is None
    monkeypatch.setenv("HOLDFAST_MEDIA_SPEECH_MODEL", "tiny")
    assert Media(Holdfast("sqlite:///jobs.db"), root=tmp_path).transcriber == FasterWhisper(model="tiny")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    media = Media(Holdfast("sqlite:///jobs.db"), root=tmp_path, speech_model="models")
    assert media.transcriber == FasterWhisper(model=str(tmp_path / "models")), "a folder, wherever workers are started"
    own = FasterWhisper(model="base")
    assert Media(Holdfast("sqlite:///jobs.db"), root=tmp_path, transcriber=own).transcriber is own


def test_subtitles_are_written_by_the_command_that_asks_for_them(
    cli: Callable[..., Done], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film(here / "film.mp4", seconds=2)
    asked = hears(monkeypatch)
    plain = cli("transcode", "film.mp4", "--ladder", "small.toml", "--json")
    assert (plain.json[0]["versions"][0]["result"]["captions"], asked) == (None, [])
    video_id = plain.json[0]["id"]
    with_words = cli("transcode", "film.mp4", "--transcribe", "--model", "tiny", "--json").json[0]["versions"][0]
    assert (with_words["number"], asked) == (2, ["tiny"])
    assert "Otters." in (here / "media" / with_words["result"]["captions"]).read_text()
    again = cli("transcode", "film.mp4", "--transcribe", "--json").json[0]["versions"][0]
    assert again["number"] == 2, "they are there"
    anew = cli("retranscode", video_id, "--transcribe", "--json")
    assert (anew.code, asked) == (0, ["tiny", "small"])


def test_without_the_package_it_is_refused_with_what_installs_it(
    cli: Callable[..., Done], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch)
    film(here / "film.mp4", seconds=2)
    refused = cli("transcode", "film.mp4", "--ladder", "small.toml", "--transcribe")
    assert (refused.code, "pip install 'holdfast[speech]'" in refused.err) == (1, True)
    video_id = cli("transcode", "film.mp4", "--ladder", "small.toml", "--json").json[0]["id"]
    refused = cli("retranscode", video_id, "--transcribe")
    assert (refused.code, "pip install 'holdfast[speech]'" in refused.err) == (1, True)
    assert [one["number"] for one in cli("show", video_id, "--json").json["versions"]] == [1], "nothing was begun"


def test_subtitles_that_nobody_could_write_are_missed_aloud(cli: Callable[..., Done], here: Path) -> None:
    film(here / "film.mp4", seconds=2)
    video_id = cli("transcode", "film.mp4", "--ladder", "small.toml", "--json").json[0]["id"]
    assert cli("retranscode", video_id, "--transcribe", "--detach").code == 0
    done = cli("transcode", "film.mp4")  # which has no model, and does what is there to do
    assert (done.code, "  ready  film: 90p" in done.out) == (0, True)
    assert "film: NO_TRANSCRIBER: no subtitles: " in done.err
    assert "HOLDFAST_MEDIA_SPEECH_MODEL" in done.err
    assert "NO_TRANSCRIBER" in cli("ls").out
    assert "NO_TRANSCRIBER" in cli("watch", video_id, "--once").err


def test_a_model_that_is_not_there_is_refused_before_anything_is_made_and_by_the_doctor(
    cli: Callable[..., Done], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = here / "packages"
    packages.mkdir()
    (packages / "faster_whisper.py").write_text("def download_model(name, **_):\n    raise LookupError(name)\n")
    monkeypatch.setenv("PYTHONPATH", str(packages), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(packages))
    film(here / "film.mp4", seconds=2)
    refused = cli("transcode", "film.mp4", "--ladder", "small.toml", "--transcribe", "--model", "absent")
    assert (refused.code, "the model absent is not there" in refused.err) == (1, True)
    assert cli("ls").code == 2, "nothing was begun, not even a library"
    monkeypatch.setenv("HOLDFAST_MEDIA_SPEECH_MODEL", "absent")
    checks = {one["name"]: one for one in cli("doctor", "--json").json}
    assert (checks["speech"]["level"], "the model absent is not there" in checks["speech"]["text"]) == ("fail", True)


def test_a_retry_of_a_title_with_subtitles_listens_as_the_first_did(
    cli: Callable[..., Done], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = hears(monkeypatch)
    (here / "film.mp4").write_bytes(b"no film")
    failed = cli("transcode", "film.mp4", "--ladder", "small.toml", "--transcribe", "--model", "tiny")
    assert f"retry {failed.out.split()[0]} --model tiny" in failed.err
    film(here / "film.mp4", seconds=2)
    mended = cli("retry", failed.out.split()[0], "--model", "tiny", "--json").json[0]["versions"][0]
    assert "Otters." in (here / "media" / mended["result"]["captions"]).read_text()
    assert asked == ["tiny"]
