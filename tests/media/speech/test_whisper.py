"""The adapter for faster-whisper, in its real process.

Its models cannot be had in tests, and it does not fail, hang or crash when it is told to. So a package of the same name stands
in for it, with the few names and results of it that the adapter uses; everything on our side of that is real: the process, its
lines, its end. `test_the_real_package_…` run the real one, with a model of chance weights.
"""

from __future__ import annotations

import importlib.util
import os
import time
from typing import TYPE_CHECKING

import pytest

from holdfast_media.errors import MediaError, Stopped
from holdfast_media.speech import webvtt
from holdfast_media.speech.transcribing import transcribe
from holdfast_media.speech.whisper import FasterWhisper
from tests.media.clip import films
from tests.media.speech import tiny

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STAND_IN = """
import os, sys, time
from types import SimpleNamespace


class WhisperModel:
    def __init__(
        self, model_size_or_path, device="auto", compute_type="default", cpu_threads=0, download_root=None,
        local_files_only=False,
    ):
        print("the library talks on standard output", {{"model": model_size_or_path}})
        if model_size_or_path == "absent":
            raise RuntimeError("cannot find the files in the local cache at /root/.cache/secret")
        assert local_files_only, "nothing may be fetched"

    def transcribe(self, audio, language=None, beam_size=5, vad_filter=False):
        assert os.path.isfile(audio)
        {body}
        info = SimpleNamespace(language=language or "de", duration=10.0)
        return segments(), info
"""
FINDS = """

def download_model(size_or_id, output_dir=None, local_files_only=False, cache_dir=None):
    assert local_files_only, "nothing may be fetched"
    {finds}
"""
SPEAKS = """
        def segments():
            yield SimpleNamespace(start=0.0, end=2.5, text=" Guten Tag & <Weg>. ")
            yield SimpleNamespace(start=2.5, end=5.0, text="  ")
            yield SimpleNamespace(start=5.0, end=10.0, text="Bis bald.")
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a package called `faster_whisper` that does as the test says."""

    def make(body: str = SPEAKS, finds: str = "raise AssertionError('not asked')") -> None:
        (tmp_path / "packages").mkdir(exist_ok=True)
        (tmp_path / "packages" / "faster_whisper.py").write_text(STAND_IN.format(body=body) + FINDS.format(finds=finds))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"), prepend=os.pathsep)
        monkeypatch.syspath_prepend(str(tmp_path / "packages"))

    return make


@pytest.fixture(scope="module")
def tone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "tone.m4a"
    films.ffmpeg("-f", "lavfi", "-i", "sine=440:d=1", "-c:a", "aac", str(path))
    return path


def never() -> None:
    return None


def test_what_is_said_becomes_subtitles(stand_in: Callable[..., None], tone: Path, tmp_path: Path) -> None:
    stand_in()
    shares: list[float] = []
    target = tmp_path / "captions.vtt"
    said = transcribe(FasterWhisper(), tone, target, on_progress=shares.append, stop=never)
    assert said.language == "de"
    assert [(one.start, one.end, one.text) for one in said.segments] == [
        (0.0, 2.5, "Guten Tag & <Weg>."),
        (5.0, 10.0, "Bis bald."),
    ]
    assert shares == [0.25, 1.0, 1.0]
    read = webvtt.parse(target.read_text())
    assert (read.language, [cue.text for cue in read.cues]) == ("de", ["Guten Tag & <Weg>.", "Bis bald."])
    assert list(tmp_path.glob(".*")) == []


def test_a_known_language_is_passed_on(stand_in: Callable[..., None], tone: Path) -> None:
    stand_in()
    assert FasterWhisper().transcribe(tone, language="fr", on_progress=lambda _: None, stop=never).language == "fr"


def test_a_file_without_sound_says_nothing(stand_in: Callable[..., None], tmp_path: Path) -> None:
    stand_in("raise AssertionError('not asked')")
    silent = tmp_path / "silent.mp4"
    films.ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x36:d=0.2", "-c:v", "libx264", "-preset", "ultrafast", str(silent))
    assert FasterWhisper().transcribe(silent, language=None, on_progress=lambda _: None, stop=never).segments == ()


def refused(model: FasterWhisper, source: Path) -> MediaError:
    with pytest.raises(MediaError) as error:
        model.transcribe(source, language=None, on_progress=lambda _: None, stop=never)
    return error.value


def test_a_model_that_is_not_there_is_named_with_what_to_do(stand_in: Callable[..., None], tone: Path) -> None:
    stand_in()
    error = refused(FasterWhisper(model="absent"), tone)
    assert (error.code, error.retryable) == ("SPEECH_MISSING", False)
    assert "absent" in error.message
    assert "download=True" in error.message
    assert "/root" not in error.message


def test_a_folder_without_a_model_is_noticed_before_any_work(stand_in: Callable[..., None], tmp_path: Path) -> None:
    stand_in()
    with pytest.raises(MediaError, match=r"model\.bin") as error:
        FasterWhisper(model=str(tmp_path)).check()
    assert error.value.code == "SPEECH_MISSING"


def test_a_named_model_that_is_not_there_is_noticed_before_any_work(stand_in: Callable[..., None]) -> None:
    stand_in(finds="raise LookupError('cannot find the files in the local cache at /root/.cache/secret')")
    with pytest.raises(MediaError, match="the model absent is not there") as error:
        FasterWhisper(model="absent").check()
    assert (error.value.code, error.value.retryable) == ("SPEECH_MISSING", False)
    assert "download_model('absent')" in error.value.message
    assert "/root" not in error.value.message
    FasterWhisper(model="absent", download=True).check()  # it may be fetched


def test_half_a_model_is_none(stand_in: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    stand_in(finds=f"return {str(tmp_path / 'snapshot')!r}")
    with pytest.raises(MediaError, match="the model half is not there"):
        FasterWhisper(model="half").check()
    (tmp_path / "snapshot" / "model.bin").write_bytes(b"weights")
    FasterWhisper(model="half").check()


def test_a_name_that_nobody_knows_is_told_with_those_that_are_known(stand_in: Callable[..., None]) -> None:
    stand_in(finds="raise ValueError('Invalid model size, expected one of: tiny, base')")
    with pytest.raises(MediaError, match=r"there is no model tinny: .*tiny, base"):
        FasterWhisper(model="tinny").check()


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MediaError, match=r"pip install 'holdfast\[speech\]'") as error:
        FasterWhisper().check()
    assert (error.value.code, error.value.retryable) == ("SPEECH_MISSING", False)


def test_a_file_that_the_library_gives_up_on_fails_for_good(stand_in: Callable[..., None], tone: Path) -> None:
    stand_in("raise ValueError('cannot decode this')")
    error = refused(FasterWhisper(), tone)
    assert (error.code, error.retryable) == ("SPEECH_FAILED", False)


def test_a_crash_costs_an_attempt_and_no_worker(stand_in: Callable[..., None], tone: Path) -> None:
    stand_in("os.kill(os.getpid(), 11)")
    error = refused(FasterWhisper(), tone)
    assert (error.code, error.retryable) == ("INTERNAL_TRANSIENT", True)


def test_half_of_what_is_said_is_no_success(stand_in: Callable[..., None], tone: Path) -> None:
    stand_in("""
        def segments():
            yield SimpleNamespace(start=0.0, end=2.5, text="one")
            sys.stdout.flush()
            os._exit(0)
    """)
    assert refused(FasterWhisper(), tone).code == "INTERNAL_TRANSIENT"


def test_a_stop_ends_it_at_once(stand_in: Callable[..., None], tone: Path) -> None:
    stand_in("time.sleep(300)")
    until = time.monotonic() + 0.5
    with pytest.raises(Stopped, match="canceled"):
        FasterWhisper().transcribe(
            tone, language=None, on_progress=lambda _: None, stop=lambda: "canceled" if time.monotonic() > until else None
        )
    assert time.monotonic() - until < 5


def test_one_that_takes_too_long_is_ended(stand_in: Callable[..., None], tone: Path) -> None:
    stand_in("time.sleep(300)")
    error = refused(FasterWhisper(timeout=0.5), tone)
    assert (error.code, error.retryable) == ("INTERNAL_TRANSIENT", True)


def test_another_model_is_another_recipe() -> None:
    assert FasterWhisper(model="small").recipe != FasterWhisper(model="base").recipe
    assert FasterWhisper(threads=2).recipe == FasterWhisper(threads=4).recipe


def test_the_real_package_runs_from_file_to_subtitles(tone: Path, tmp_path: Path) -> None:
    """With a model that knows nothing: what it hears is nonsense, and every name and number that passes is the library's."""
    model = FasterWhisper(model=str(tiny.build(tmp_path / "model")), device="cpu", compute="int8", beam=1, skip_silence=False)
    shares: list[float] = []
    said = transcribe(model, tone, tmp_path / "captions.vtt", language="en", on_progress=shares.append)
    assert said.language == "en"
    assert said.segments
    assert all(one.end >= one.start >= 0 for one in said.segments)
    assert shares[-1] == 1.0
    assert webvtt.parse((tmp_path / "captions.vtt").read_text()).language == "en"


def test_the_real_package_finds_a_model_in_its_cache_and_misses_one_that_is_not_there(tmp_path: Path) -> None:
    """Laid out as the hub does it: a branch names a commit, and a folder of that name holds the files."""
    repository = tmp_path / "models--Systran--faster-whisper-tiny"
    with pytest.raises(MediaError, match="the model tiny is not there"):
        FasterWhisper(model="tiny", cache=tmp_path).check()
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    tiny.build(repository / "snapshots" / ("0" * 40))
    FasterWhisper(model="tiny", cache=tmp_path).check()
    with pytest.raises(MediaError, match="there is no model tinny: "):
        FasterWhisper(model="tinny", cache=tmp_path).check()


def test_the_real_package_without_a_model_says_what_to_do(tone: Path, tmp_path: Path) -> None:
    error = refused(FasterWhisper(model="tiny", cache=tmp_path), tone)
    assert error.code == "SPEECH_MISSING"
    assert "download=True" in error.message
