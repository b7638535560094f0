"""What cannot be published any more is not worked on, and nobody forgets what was begun."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast import State
from holdfast_media import VideoState
from holdfast_media.errors import ENCODE_FAILED, MediaError, Stopped
from tests.media.tasks.films import film, ladder
from tests.media.tasks.studio import Encoder, Studio, failing

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


async def test_of_a_quality_that_failed_no_further_chunk_is_encoded(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch, failing("180p", at=0))
    video = await studio.media.library.add(studio.film)
    async with studio.worker(concurrency=1):
        video = await studio.ended(video)
        await studio.idle()
    assert video.state is VideoState.FAILED
    assert ("180p", 2) not in encoder.asked  # the one before it may have been claimed while the first one was settled
    assert video.newest is not None
    views = await studio.media.library.looking.jobs(video.newest.jobs.encode["180p"])
    assert (views[0] and views[0].state, views[2] and views[2].state) == (State.FAILED, State.CANCELED)


async def test_the_other_qualities_are_given_up_when_a_required_one_has_failed(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ladder(studio.folder / "both.toml", ("180p", 180, True), ("90p", 90, True))
    working = threading.Event()

    def instead(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del chunk
        if name == "90p":
            raise MediaError(ENCODE_FAILED, "the encoder gave up.")
        working.set()
        _until_stopped(stop)

    encoder = Encoder(monkeypatch, instead)
    video = await studio.media.library.add(film(studio.folder / "short.mp4", seconds=4, sound=False), ladder=str(both))
    async with studio.worker():
        await studio.until(working.is_set)
        newest = (await studio.media.library.get(video.id)).newest
        assert newest is not None
        await studio.until(lambda: _all_ended(studio, [newest.jobs.package["90p"]]))
        await studio.media.library.sweep()
        video = await studio.ended(video)
    assert set(encoder.stopped) == {"canceled"}
    assert str(video.error).startswith("ENCODE_FAILED: 90p: the encoder gave up. (job ")


async def test_a_retry_stops_what_runs_of_the_try_before_and_a_delete_still_finds_it(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def instead(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del name, chunk
        begun.set()
        _until_stopped(stop)

    Encoder(monkeypatch, instead)
    library = studio.media.library
    video = await library.add(film(studio.folder / "short.mp4", seconds=4, sound=False))
    async with studio.worker(concurrency=1):
        await studio.until(begun.is_set)
        before = (await library.get(video.id)).newest
        assert before is not None
        assert before.jobs.finalize is not None
        await studio.app.fail(before.jobs.finalize, "by hand")
        video = await studio.ended(video)
        retried = (await library.retry(video.id)).newest
        assert retried is not None
        assert set(before.jobs.waiting_first) <= set(retried.jobs.waiting_first)  # for whoever deletes it now
        await studio.until(lambda: _all_ended(studio, before.jobs.waiting_first))
        await library.delete(video.id)
        await studio.idle()


def _until_stopped(stop: Callable[[], str | None]) -> None:
    while (reason := stop()) is None:
        threading.Event().wait(0.02)
    raise Stopped(reason)


async def _all_ended(studio: Studio, ids: list[str]) -> bool:
    views = await studio.media.library.looking.jobs(ids)
    return all(view is not None and view.state in {State.SUCCEEDED, State.FAILED, State.CANCELED} for view in views)
