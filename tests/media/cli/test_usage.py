"""What makes no sense is refused before anything begins, with the exit code for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.media.tasks.films import film

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.media.cli.commanding import Done


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--chunk", "0"), "chunk_seconds (--chunk-seconds) must be more than 0, not 0"),
        (("--chunk=-1",), "must be a duration"),
        (("--ladder", "nope.toml"), "there is no ladder nope.toml: the file does not exist"),
    ],
)
def test_what_cannot_be_made_is_refused(cli: Callable[..., Done], here: Path, options: tuple[str, ...], said: str) -> None:
    film(here / "film.mp4", seconds=1, sound=False)
    refused = cli("transcode", "film.mp4", *options)
    assert (refused.code, said in refused.err, "Error" in refused.err) == (2, True, False), refused.err
    assert not list(here.glob("media/videos/*"))
