"""What a command says to type next: it works as it is, in the same folder."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from holdfast_media.cli.common import Common, command
from tests.media.tasks.films import film, ladder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.media.cli.commanding import Done

PLACES = [
    pytest.param((), id="nothing"),
    pytest.param(("--storage", "my films"), id="storage"),
    pytest.param(("--url", "sqlite:///own.db"), id="url"),
    pytest.param(("--storage", "my films", "--url", "sqlite:///own.db"), id="both"),
]


def advised(said: str, name: str) -> list[str]:
    """Return the words of the command that was printed, after `holdfast media`."""
    found = re.search(rf"holdfast media {name} .*", said)
    assert found is not None, said
    return shlex.split(found[0])[2:]


@pytest.mark.parametrize("place", PLACES)
def test_the_retry_that_a_failure_suggests_finds_the_library(
    cli: Callable[..., Done], here: Path, place: tuple[str, ...]
) -> None:
    (here / "film.mp4").write_bytes(b"no film")
    failed = cli("transcode", "film.mp4", "--ladder", "small.toml", *place)
    again = advised(failed.err, "retry")
    watched = cli("watch", again[1], *place)
    assert (watched.code, advised(watched.err, "retry")) == (1, again)
    film(here / "film.mp4", seconds=2, sound=False)
    mended = cli(*again)
    assert (mended.code, "ready  film: 90p" in mended.out) == (0, True), mended.err


@pytest.mark.parametrize("place", PLACES)
def test_what_was_left_to_others_is_watched_and_given_up_by_what_is_suggested(
    cli: Callable[..., Done], here: Path, place: tuple[str, ...]
) -> None:
    film(here / "film.mp4", seconds=2, sound=False)
    ladder(here / "two.toml", ("120p", 120, True), ("60p", 60, True))
    video_id = cli("transcode", "film.mp4", "--ladder", "small.toml", "--json", *place).json[0]["id"]
    left = cli("retranscode", video_id, "--ladder", "two.toml", "--detach", *place)
    seen = cli(*advised(left.err, "watch"), "--once")
    assert (seen.code, "pending" in seen.out) == (0, True), seen.err
    other = cli("transcode", "film.mp4", "--ladder", "small.toml", "--chunk-seconds", "2", *place)
    assert other.code == 2
    done = cli(*advised(other.err, "retranscode"))
    assert (done.code, "ready  film: 90p" in done.out) == (0, True), done.err


def test_a_library_that_is_not_there_is_begun_where_it_was_looked_for(cli: Callable[..., Done]) -> None:
    missing = cli("ls", "--storage", "elsewhere")
    assert (missing.code, "Begin with: holdfast media transcode FILE --storage elsewhere" in missing.err) == (2, True)


def test_a_password_is_not_printed() -> None:
    said = command(Common(url="postgresql://shop:secret@db/shop"), "ls")
    assert said == "holdfast media ls --url 'postgresql://shop:***@db/shop'"
