"""What is left over goes, and what somebody needs stays."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest

from holdfast_media import VideoState
from holdfast_media.tasks import layout
from tests.media.tasks.making import made_on
from tests.media.tasks.studio import Encoder, Studio, failing

if TYPE_CHECKING:
    from pathlib import Path


def files(studio: Studio, video_id: str) -> set[str]:
    home = studio.folder / "media" / "videos" / video_id
    return {path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file() and not path.name.startswith(".")}


async def test_replaced_files_go_once_their_time_is_over_and_the_source_stays(tmp_path: Path, films: Path) -> None:
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, keep_replaced=0, ladder=films / "ladder.toml")
    video = await studio.media.library.add(studio.film, copy=True)
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
        before = files(studio, video.id)
        assert {one.partition("-")[0] for one in before} == {"master.m3u8", "v1", "180p", "90p", "audio", "source"}
        await studio.media.library.retranscode(video.id, qualities=["90p"], fresh=True)
        await studio.ended(video)
        await studio.idle()
    after = files(studio, video.id)
    assert len(after) == len(before)
    assert {one for one in after if one.startswith("180p")} == {one for one in before if one.startswith("180p")}
    assert not {one for one in after if one.startswith("90p")} & before
    assert "v1" not in after
    await studio.close()


@pytest.mark.parametrize("keeps", [True, False])
async def test_completed_chunks_outlive_a_failure_only_where_that_is_wanted(
    tmp_path: Path, films: Path, monkeypatch: pytest.MonkeyPatch, *, keeps: bool
) -> None:
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, keep_completed=keeps)
    Encoder(monkeypatch, failing("180p"))
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        video = await studio.ended(video)
        assert video.state is VideoState.FAILED
        await studio.idle()
    assert ("chunks" in files(studio, video.id)) is keeps
    await studio.close()


@pytest.mark.parametrize("cleans", [True, False])
async def test_what_a_failed_attempt_leaves_is_removed_unless_somebody_wants_to_look(
    tmp_path: Path, films: Path, monkeypatch: pytest.MonkeyPatch, *, cleans: bool
) -> None:
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, cleanup_partial_on_failure=cleans)
    Encoder(monkeypatch, failing("180p"))
    video = await studio.media.library.add(studio.film)
    scratch = tmp_path / "scratch"
    async with studio.worker():
        await studio.ended(video)
        await studio.idle()
        assert len(list(scratch.iterdir())) == (0 if cleans else 1)
        for folder in scratch.iterdir():  # nobody has touched it for days
            for path in (*folder.rglob("*"), folder):
                os.utime(path, (time.time() - 10**6,) * 2)
    # one that only encodes, as on a machine of its own: the job that sweeps may never come here
    async with studio.app.worker(concurrency=1, queues=[studio.media.settings.encode_queue]):
        await studio.until(lambda: not list(scratch.iterdir()))
    await studio.close()


async def test_the_sweep_takes_what_a_deleted_video_left_when_its_own_tidying_was_lost(studio: Studio) -> None:
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
    deleted = await studio.media.library.delete(video.id)
    async with studio.media.library.database.transaction() as on:
        await on.execute("UPDATE media_video SET deleted_at = '2020-01-01T00:00:00.000000Z' WHERE id = ?", deleted.id)
    for view in (await studio.app.chains(task="media.tidy", states=["ready"])).chains:
        await studio.app.chain(view.id).delete()
    assert files(studio, video.id)
    async with studio.worker():
        await (await studio.media.tasks.sweep.enqueue()).result(timeout=60)
        await studio.idle()
    assert not files(studio, video.id)


async def test_what_is_published_for_a_deleted_video_by_whoever_was_late_goes_too(studio: Studio) -> None:
    library = studio.media.library
    video = await library.add(studio.folder / "nothing.mp4")
    late = studio.folder / "late.mp4"
    late.write_bytes(b"of somebody who had lost the lease")

    async def swept() -> bool:
        async with library.database.reading() as on:
            return bool(await on.execute("SELECT 1 FROM media_video WHERE swept_at IS NOT NULL"))

    async with studio.worker():
        await studio.ended(video)
        await library.delete(video.id)
        await studio.idle()
        studio.media.storage.put(layout.chunk(video.id, "late"), late)
        assert not await swept()  # it was deleted a moment ago
        async with library.database.transaction() as on:
            await on.execute("UPDATE media_video SET deleted_at = '2020-01-01T00:00:00.000000Z' WHERE id = ?", video.id)
        await (await studio.media.tasks.sweep.enqueue()).result(timeout=60)
        await studio.idle()
        assert (files(studio, video.id), await swept()) == (set(), True)

        # and later still: looked for once a day
        studio.media.storage.put(layout.chunk(video.id, "later"), late)
        async with library.database.transaction() as on:
            await on.execute("DELETE FROM media_meta WHERE name = 'orphans'")
        await (await studio.media.tasks.sweep.enqueue()).result(timeout=60)
        await studio.idle()
    assert not files(studio, video.id)


async def test_a_stable_master_that_was_lost_is_put_back(studio: Studio) -> None:
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
        before = studio.master(video).read_text()
        assert studio.media.storage.delete(layout.stable_master(video.id))
        await asyncio.gather(*[(await studio.media.tasks.tidy.enqueue(video.id)).result(timeout=60) for _ in range(3)])
    assert studio.master(video).read_text() == before


def test_folders_are_found_from_wherever_a_master_lies() -> None:
    text = '#EXT-X-MEDIA:URI="audio/index.m3u8"\n#EXT-X-STREAM-INF\n720p/index.m3u8\n'
    folders = {"720p": "videos/1/720p-ab/", "audio": "videos/1/audio-cd/"}
    near = layout.pointed(text, folders, base="videos/1/")
    assert near == '#EXT-X-MEDIA:URI="audio-cd/index.m3u8"\n#EXT-X-STREAM-INF\n720p-ab/index.m3u8\n'
    far = layout.pointed(text, folders, base="videos/1/v2/")
    assert far == '#EXT-X-MEDIA:URI="../audio-cd/index.m3u8"\n#EXT-X-STREAM-INF\n../720p-ab/index.m3u8\n'
