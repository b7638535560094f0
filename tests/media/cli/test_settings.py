"""Settings from arguments, the environment and a file, and what is said of those that cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadSetting, Holdfast
from holdfast.config import load as load_core
from holdfast_media import Media
from holdfast_media.settings import Settings, load
from holdfast_media.storage.http import HttpStorage


def test_an_argument_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        'url = "sqlite:///jobs.db"\n[media]\nchunk_seconds = "1m30s"\nreserve = "2GB"\nkeep-completed = false\nthreads = 3\n'
    )
    environment = {"HOLDFAST_MEDIA_THREADS": "2", "HOLDFAST_MEDIA_ENCODER": "nvenc", "HOLDFAST_URL": "elsewhere"}
    found = load({"threads": 1, "ffmpeg": None}, folder=tmp_path, environment=environment)
    assert (found.chunk_seconds, found.reserve, found.keep_completed) == (90.0, 2 * 10**9, False)
    assert (found.threads, found.encoder, found.hardware, found.ffmpeg) == (1, "nvenc", "nvenc", None)
    assert load({}, folder=tmp_path / "none", environment={}) == Settings()
    assert load_core(folder=tmp_path, environment={}).settings.url == "sqlite:///jobs.db"  # which leaves our table to us


def test_a_table_of_pyproject_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast.media]\nscratch = "/tmp/work"\n')
    assert load({}, folder=tmp_path, environment={}).scratch == Path("/tmp/work")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"chunk_second": 3}, "do you mean 'chunk_seconds'?"),
        ({"chunk_seconds": "soon"}, "chunk_seconds=: chunk_seconds must be a duration"),
        ({"chunk_seconds": 0}, "must be more than 0"),
        ({"chunk_seconds": 4}, "chunk_seconds is 4 s and segment_seconds 6 s: a chunk holds at least one segment"),
        ({"chunk_seconds": 4, "segment_seconds": 5}, "Make chunks of 5 s or more, or segments of 4 s"),
        ({"encoder": "h265"}, "must be one of auto, x264, nvenc"),
        ({"attempts": 0}, "must be a whole number from 1, not 0"),
        ({"reserve": "plenty"}, "must be a size such as 512MB"),
        ({"keep_completed": "perhaps"}, "must be true or false"),
        ({"ladder": ""}, "must be a text that is not empty"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_do(given: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=re.escape(said)):
        load(given, folder=tmp_path, environment={})


def test_a_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("media = 3\n")
    with pytest.raises(BadSetting, match=r"holdfast\.toml: media must be a table"):
        load({}, folder=tmp_path, environment={})
    (tmp_path / "holdfast.toml").write_text("media = [\n")
    with pytest.raises(BadSetting, match=r"holdfast\.toml cannot be read"):
        load({}, folder=tmp_path, environment={})


def test_root_and_storage_are_one_thing(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="not both"):
        Media(Holdfast("sqlite:///jobs.db"), root=tmp_path, storage="s3://bucket")


@pytest.mark.parametrize("said", [True, False])
def test_where_downloads_are_kept_is_a_setting_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, said: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", "hf_secret")
    monkeypatch.setenv("HOLDFAST_MEDIA_CACHE", str(tmp_path / "environment"))
    options: dict[str, Any] = {"cache": tmp_path / "said"} if said else {}
    media = Media(Holdfast("sqlite:///jobs.db"), storage="https://jobs.example.com", **options)
    assert isinstance(media.storage, HttpStorage)
    assert media.storage.cache.folder == tmp_path / ("said" if said else "environment")
    media.storage.close()
