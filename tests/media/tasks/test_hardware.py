"""Encoders in hardware: found by workers, published as capabilities, preferred by the jobs that encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast_media.ffmpeg import encoders
from tests.media.worlds import media_on

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def nvenc(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have trials find nvenc and libx264; returns which families were tried."""
    tried: list[str] = []

    def trial(encoder: encoders.Encoder, ffmpeg: Path) -> bool:
        del ffmpeg
        tried.append(encoder.family)
        return encoder.family in {"nvenc", "x264"}

    monkeypatch.setattr(encoders, "_trials", encoders._Trials())
    monkeypatch.setattr(encoders, "_encodes_a_frame", trial)
    return tried


@pytest.mark.parametrize(
    ("encoder", "published", "preferred"),
    [("auto", ("hardware", "nvenc"), ("hardware",)), ("nvenc", ("hardware", "nvenc"), ("nvenc",)), ("x264", (), ())],
)
async def test_what_a_trial_finds_is_what_a_worker_publishes_and_chunks_prefer(
    encoder: str, published: tuple[str, ...], preferred: tuple[str, ...], nvenc: list[str], tmp_path: Path
) -> None:
    app = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    media = media_on(app, tmp_path, encoder=encoder)
    assert media.tasks.encode.options_declared.prefers == preferred
    async with app.worker(concurrency=1) as worker:
        assert worker.worker.capabilities == published
        assert bool(nvenc) == (encoder != "x264")
    await media.close()
    await app.close()


async def test_a_worker_without_an_ffmpeg_starts_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    media = media_on(app, tmp_path, ffmpeg="no-such-ffmpeg")
    async with app.worker(concurrency=1) as worker:
        assert worker.worker.capabilities == ()
    assert "FFMPEG_MISSING" in caplog.text
    await media.close()
    await app.close()
