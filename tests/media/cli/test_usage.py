"""What makes no sense is refused before anything begins, with the exit code for that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.media.tasks.films import film

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.media.cli.commanding import Done


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--chunk", "0"), "chunk_seconds (--chunk-seconds) must be more than 0, not 0"),
        (("--chunk=-1",), "must be a duration"),
        (("--chunk-seconds", "1"), "chunk_seconds (--chunk-seconds) is 1 s and segment_seconds 2 s: a chunk holds at least"),
        (("--ladder", "nope.toml"), "there is no ladder nope.toml: the file does not exist"),
    ],
)
def test_what_cannot_be_made_is_refused(cli: Callable[..., Done], here: Path, options: tuple[str, ...], said: str) -> None:
    film(here / "film.mp4", seconds=1, sound=False)
    refused = cli("transcode", "film.mp4", *options)
    assert (refused.code, said in refused.err, "Error" in refused.err) == (2, True, False), refused.err
    assert not list(here.glob("media/videos/*"))
    assert not cli("ls").out, "something was stored"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("transcode", "film.mp4", "--out", "afile"), "afile is a file, not a folder"),
        (("transcode", "film.mp4", "--out", "afile", "--url", "sqlite:///jobs.db"), "afile is a file, not a folder"),
        (("transcode", "film.mp4", "--out", "afile/deeper"), "afile is a file, not a folder"),
        (("transcode", "film.mp4", "--out", "/proc/nope"), "/proc/nope: No such file or directory"),
        (("clip", "film.mp4", "--storage", "afile"), "afile is a file, not a folder"),
        (("clip", "film.mp4", "--storage", "/proc/nope"), "/proc/nope: No such file or directory"),
        (("serve", "--root", "afile"), "afile is a file, not a folder"),
        (("serve", "--root", "/proc/nope"), "/proc/nope: No such file or directory"),
        (("ls", "--out", "afile"), "afile is a file, not a folder"),
        (("demo", "--keep", "afile"), "afile is a file, not a folder"),
    ],
)
def test_a_folder_that_is_none_is_refused(cli: Callable[..., Done], here: Path, words: tuple[str, ...], said: str) -> None:
    film(here / "film.mp4", seconds=1, sound=False)
    (here / "afile").write_text("mine")
    refused = cli(*words)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: ")
    assert said in refused.err
    assert "Fix: " in refused.err
    assert not (here / "jobs.db").exists()


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_list_of_nothing_is_not_asked_for(cli: Callable[..., Done], limit: str) -> None:
    refused = cli("ls", f"--limit={limit}")
    assert (refused.code, refused.err) == (2, f"error: --limit must be 1 or more, not {limit}\n")


def test_where_it_is_kept_has_one_name_in_every_command(cli: Callable[..., Done], here: Path) -> None:
    film(here / "film.mp4", seconds=1, sound=False)
    kept = ("--storage", "kept")
    made = cli("transcode", "film.mp4", "--ladder", "small.toml", "--json", *kept)
    assert made.code == 0, made.err
    video_id = made.json[0]["id"]
    for words in (("ls",), ("show", video_id), ("watch", video_id), ("retranscode", video_id, "--fresh"), ("delete", video_id)):
        assert video_id in cli(*words, *kept).out
    assert cli("ls", "--out", "kept").out == cli("ls", *kept).out, "what it was called before"
    assert "there is no file or folder nope" in cli("serve", "nope", *kept).err
    assert cli("clip", "film.mp4", "--end", "0.5", *kept).code == 0
    assert len(list((here / "kept" / "clips").rglob("clip.mp4"))) == 1


@pytest.mark.parametrize("words", [("transcode",), ("clip",), ("serve",)])
def test_a_name_that_no_file_can_have_is_told_as_any_mistake(
    cli: Callable[..., Done], here: Path, words: tuple[str, ...]
) -> None:
    refused = cli(*words, "x" * 300)
    assert refused.code in {1, 2}
    assert refused.err.startswith("error: ")
    assert "File name too long" in refused.err


@pytest.mark.parametrize("words", [("transcode", "film.mp4"), ("clip", "film.mp4")])
def test_so_is_a_scratch_folder_that_cannot_be_made(
    cli: Callable[..., Done], here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    film(here / "film.mp4", seconds=1, sound=False)
    (here / "afile").write_text("mine")
    monkeypatch.setenv("HOLDFAST_MEDIA_SCRATCH", str(here / "afile"))
    refused = cli(*words)
    assert refused.code == 1
    assert f"error: {here / 'afile'}: File exists" in refused.err


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("afile", "afile is a file, not a folder"),
        ("afile/deeper", "afile is a file, not a folder"),
        ("locked", "nothing may be written into "),
        ("/proc/nope", "/proc/nope: No such file or directory"),
    ],
)
def test_a_server_whose_scratch_folder_is_none_does_not_begin(
    cli: Callable[..., Done], here: Path, monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    (here / "afile").write_text("mine")
    (here / "locked").mkdir()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked" and may(path, mode))  # root may all
    monkeypatch.setenv("HOLDFAST_MEDIA_SCRATCH", str(here / place))
    refused = cli("serve", "--port", "0")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: ")
    assert said in refused.err
    assert "Fix: name another folder: HOLDFAST_MEDIA_SCRATCH" in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize("place", ["afile", "afile/deeper"])
def test_the_doctor_says_that_a_folder_is_none(cli: Callable[..., Done], here: Path, place: str) -> None:
    (here / "afile").write_text("mine")
    found = {line["name"]: line for line in cli("doctor", "--out", place, "--json").json}
    assert (found["storage"]["level"], found["storage"]["text"]) == ("fail", f"{here / 'afile'} is a file, not a folder")
