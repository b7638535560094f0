"""Titles that are made anew, tried again and gone on with on the command line: which qualities, by whom, what is said."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from holdfast_media.cli import working
from tests.media.tasks.films import film, ladder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.media.cli.commanding import Done


@pytest.fixture
def two(here: Path) -> Path:
    """A film of one chunk, and a ladder of two qualities that no setting knows."""
    film(here / "film.mp4", seconds=2, sound=False)
    return ladder(here / "two.toml", ("120p", 120, True), ("60p", 60, True))


def newest(done: Done) -> dict[str, Any]:
    version: dict[str, Any] = done.json[0]["versions"][0]
    return version


def names(done: Done) -> list[str]:
    return [one["name"] for one in newest(done)["qualities"]]


def test_a_title_is_made_anew_in_its_own_qualities_by_this_command(cli: Callable[..., Done], two: Path) -> None:
    made = cli("transcode", "film.mp4", "--ladder", two.name, "--json")
    assert (made.code, names(made)) == (0, ["120p", "60p"])
    video_id = made.json[0]["id"]
    some = cli("retranscode", video_id, "60p", "--fresh")
    assert some.code == 0, some.err
    assert "ready  film: 120p, 60p; 0:02, 1 chunk (" in some.out
    everything = cli("retranscode", video_id, "--json")
    assert (everything.code, newest(everything)["number"], names(everything)) == (0, 3, ["120p", "60p"])
    again = cli("transcode", "film.mp4", "--json")
    assert newest(again)["number"] == 3, "nothing was said, so nothing is different"
    unknown = cli("retranscode", video_id, "480p")
    assert (unknown.code, "has no quality 480p: there are 120p, 60p" in unknown.err) == (2, True)


def test_what_was_left_to_others_is_joined_and_nothing_is_to_be_deleted_for_it(cli: Callable[..., Done], two: Path) -> None:
    video_id = cli("transcode", "film.mp4", "--ladder", "small.toml", "--json").json[0]["id"]
    left = cli("retranscode", video_id, "--ladder", two.name, "--detach")
    assert (left.code, "version 2 is pending" in left.out) == (0, True)
    assert "holdfast media serve" in left.err
    assert "version 2 is pending" in cli("ls").out
    other = cli("transcode", "film.mp4", "--ladder", "small.toml")
    assert other.code == 2
    assert f"holdfast media retranscode {video_id} --ladder small.toml --replace" in other.err
    assert "media delete" not in other.err
    busy = cli("retranscode", video_id, "--ladder", "small.toml")
    assert (busy.code, "--replace" in busy.err) == (1, True)
    joined = cli("transcode", "film.mp4", "--json")
    assert (joined.code, newest(joined)["number"], names(joined)) == (0, 2, ["120p", "60p"])


def test_the_same_command_goes_on_with_what_it_began(cli: Callable[..., Done], two: Path) -> None:
    video_id = cli("transcode", "film.mp4", "--ladder", two.name, "--json").json[0]["id"]
    assert cli("retranscode", video_id, "60p", "--fresh", "--detach").code == 0
    joined = cli("retranscode", video_id, "60p", "--fresh", "--json")
    assert (joined.code, newest(joined)["number"], newest(joined)["state"]) == (0, 2, "ready")
    assert "version 2 is being made already" in joined.err


def test_how_it_was_to_be_encoded_is_kept_by_the_commands_that_go_on(cli: Callable[..., Done], two: Path, here: Path) -> None:
    (here / "broken.mp4").write_bytes(b"no film")
    failed = cli("transcode", "broken.mp4", "--ladder", two.name, "--no-together", "--encoder", "x264")
    again = failed.err.partition("To try again: holdfast media ")[2].split()
    assert again[2:] == ["--encoder", "x264", "--no-together"]
    shutil.copy(here / "film.mp4", here / "broken.mp4")
    mended = cli(*again, "--json")
    assert (mended.code, newest(mended)["jobs"].get("together", False)) == (0, False), mended.err
    anew = cli("retranscode", again[1], "--fresh", "--json")
    assert newest(anew)["jobs"]["together"]
    apart = cli("retranscode", again[1], "--fresh", "--no-together", "--encoder", "x264", "--json")
    assert not newest(apart)["jobs"].get("together", False)
    assert cli("retranscode", again[1], "--ladder", "small.toml", "--detach").code == 0
    busy = cli("transcode", "broken.mp4", "--ladder", two.name, "--no-together")
    assert f"retranscode {again[1]} --ladder {two.name} --no-together --replace" in busy.err


def test_a_retry_is_done_by_the_command_and_its_end_is_told(cli: Callable[..., Done], here: Path) -> None:
    (here / "film.mp4").write_bytes(b"no film")
    failed = cli("transcode", "film.mp4", "--ladder", "small.toml")
    video_id = failed.out.split()[0]
    assert f"To try again: holdfast media retry {video_id}" in failed.err
    assert ".." not in failed.err
    assert cli("retry", video_id).code == 1
    film(here / "film.mp4", seconds=2, sound=False)
    assert cli("retry", video_id, "--detach").code == 0
    mended = cli("retry", video_id)  # it is under way: this goes on with it
    assert (mended.code, "ready  film: 90p" in mended.out) == (0, True)
    refused = cli("retry", video_id)
    assert (refused.code, "only a failed one can be retried" in refused.err) == (1, True)


def test_whoever_reads_from_a_pipe_is_told_now_and_then_how_far_it_is(
    cli: Callable[..., Done], two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "TELL_EVERY", 0.0)
    monkeypatch.setattr(working, "LOOK_EVERY", 0.02)
    done = cli("transcode", "film.mp4", "--ladder", two.name)
    assert done.code == 0
    assert "processing  " in done.err
    assert "/2 encodes (120p " in done.err
    assert "processing" not in done.out  # which is for the result
