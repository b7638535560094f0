"""Encoders that reach nothing but a server: they encode, and the workers beside the database do the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Holdfast
from holdfast_media import VideoState
from holdfast_media.storage import storage_from
from holdfast_media.tasks.granting import grants
from tests.media.tasks.films import frames
from tests.media.transfer.served import serving
from tests.media.worlds import media_on

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.media.tasks.studio import Studio


async def test_a_remote_worker_encodes_what_a_local_one_prepares_and_publishes(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = studio.media.settings
    with serving(studio.media.storage, tmp_path / "uploads", url=studio.url, grants=studio.media.grants) as server:
        monkeypatch.setenv("HOLDFAST_KEY", server.key)
        far = Holdfast(server.url)
        storage = storage_from(server.url, key=server.key, cache=tmp_path / "cache")
        elsewhere = media_on(
            far, tmp_path / "elsewhere", root=None, storage=storage, ladder=settings.ladder, segment_seconds=2, retry_after=0.05
        )
        video = await studio.media.library.add(studio.film, copy=True)
        async with (
            far.worker(queues=[settings.encode_queue], name="far", poll=0.2),
            studio.app.worker(queues=[settings.queue], name="near", poll=0.2),
        ):
            video = await studio.ended(video)
        await elsewhere.close()
        await far.close()
    assert (video.state, video.error) == (VideoState.READY, None)
    assert video.newest is not None
    grid = await studio.media.grid(video.newest)
    assert {cell.worker for cell in grid.cells} == {"far"}
    assert grid.finalize is not None
    assert grid.finalize.worker == "near"
    assert len(frames(studio.master(video))) == 60


def test_a_job_may_use_what_its_args_name_and_no_more() -> None:
    work = {"origin": {"ref": {"key": "sources/a"}}, "key": "videos/1/chunks/x.mp4", "folder": "videos/1/audio-2/"}
    encode = grants("media.encode", {"work": work})
    assert (encode.may_read("sources/a"), encode.may_write("sources/a")) == (True, False)
    assert (encode.may_write("videos/1/chunks/x.mp4"), encode.may_write("videos/1/chunks/y.mp4")) == (True, False)
    assert not encode.may_write("videos/1/audio-2/index.m3u8")
    assert grants("media.audio", {"work": work}).may_write("videos/1/audio-2/index.m3u8")
    assert not grants("media.tidy", {"video_id": "1"}).may_read("videos/1/master.m3u8")
