"""All qualities of a chunk at once: the source is decoded once, and each quality still has jobs and a fate of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from holdfast_media import CellState, VideoState
from holdfast_media.errors import ENCODE_KILLED, MediaError
from tests.media.tasks.films import frames
from tests.media.tasks.making import made_on
from tests.media.tasks.studio import Encoder, failing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from holdfast_media.library import Quality, Video
    from tests.media.tasks.studio import Studio


@pytest_asyncio.fixture
async def together(tmp_path: Path, films: Path) -> AsyncIterator[Studio]:
    made = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, together=True)
    yield made
    await made.close()


async def test_a_chunk_is_decoded_once_for_all_qualities(together: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch)
    video = await made(together)
    assert encoder.calls == [(("180p", "90p"), number) for number in range(3)]
    assert video.newest is not None
    assert video.newest.result is not None
    counts = {name: video.newest.result[name] for name in ("chunks", "encodes", "reused", "redone", "frames")}
    assert counts == {"chunks": 3, "encodes": 6, "reused": 0, "redone": 0, "frames": 60}
    for quality in video.newest.qualities:
        assert quality.result is not None
        assert quality.result["encoder"] == "libx264"
        assert len(frames(together.folder / "media" / quality.result["folder"] / "index.m3u8")) == 60
    grid = await together.media.grid(video.newest)
    assert grid.count(CellState.DONE) == 6


async def test_how_it_is_made_makes_no_other_chunks(together: Studio, studio: Studio) -> None:
    """Their names are their recipes: so what was made in one way is used again in the other."""
    names = [
        [key.rpartition("/")[2] for one in (video.newest.plan or {})["making"] for key in one["chunks"]]
        for video in (await made(together), await made(studio))
        if video.newest is not None
    ]
    assert len(set(names[0])) == 6
    assert names[0] == names[1]


async def test_a_quality_that_fails_takes_no_other_with_it(together: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch, failing("90p"))
    video = await made(together)
    assert video.state is VideoState.READY
    assert {one.name: one.state for one in _qualities(video)} == {"180p": "ready", "90p": "failed"}
    # of the chunk where it fails the job for all makes its own, and the other is left to its own job
    assert (("180p",), 1) in encoder.calls
    assert (("90p",), 1) in encoder.calls
    assert len(frames(together.master(video))) == 60


async def test_an_attempt_that_is_lost_counts_once_for_all_that_it_was_making(
    together: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = [1]

    def die(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del stop
        if name == "90p" and chunk in deaths:
            deaths.remove(chunk)
            deaths.append(-chunk)
            raise MediaError(ENCODE_KILLED, "ffmpeg was killed.")
        if name == "180p" and -chunk in deaths:  # neither does it do better alone
            deaths.remove(-chunk)
            raise MediaError(ENCODE_KILLED, "ffmpeg was killed.")

    encoder = Encoder(monkeypatch, die)
    video = await made(together)
    assert encoder.calls.count((("180p", "90p"), 1)) == 2
    assert video.newest is not None
    assert video.newest.result is not None
    # one chunk was begun again; the grid shows each quality of it
    assert (video.newest.result["redone"], video.newest.result["reused"]) == (1, 0)
    grid = await together.media.grid(video.newest)
    assert [[cell.state for cell in row.cells] for row in grid.rows] == [[CellState.DONE, CellState.REDONE, CellState.DONE]] * 2
    assert grid.redone == 1


async def test_only_what_is_missing_is_encoded_again(together: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch, failing("180p"))
    video = await made(together)
    assert video.state is VideoState.FAILED
    encoder.instead, encoder.calls = lambda *_: None, []
    await together.media.library.retry(video.id)
    async with together.worker():
        video = await together.ended(video)
    assert video.state is VideoState.READY
    made_again = [name for names, _ in encoder.calls for name in names]
    assert "180p" in made_again
    assert (("180p", "90p"), 0) not in encoder.calls
    assert len(frames(together.master(video))) == 60


async def test_the_grid_shows_all_qualities_of_a_chunk_move(together: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[list[CellState]]] = []
    video = await together.media.library.add(together.film)

    def look(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del stop
        if (name, chunk) == ("90p", 0):
            library = together.media.library
            version = library.blocking(library.get(video.id)).newest
            assert version is not None
            grid = library.blocking(together.media.grid(version))
            seen.append([[cell.state for cell in row.cells[:1]] for row in grid.rows])

    Encoder(monkeypatch, look)
    async with together.worker(concurrency=1):
        await together.ended(video)
    assert seen == [[[CellState.RUNNING], [CellState.RUNNING]]]


async def made(studio: Studio) -> Video:
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        return await studio.ended(video)


def _qualities(video: Video) -> tuple[Quality, ...]:
    assert video.newest is not None
    return video.newest.qualities
