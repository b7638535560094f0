"""The life of a title on a real S3 server: transcoded, transcoded anew, clipped, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast import Holdfast
from holdfast_media import Media, VideoState
from tests.media.storage.rclone import BUCKET
from tests.media.tasks.films import film, frames, ladder
from tests.media.tasks.studio import Studio

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast_media.storage import Storage
    from tests.media.storage.rclone import RcloneS3


async def test_a_title_is_made_made_anew_clipped_and_deleted_on_s3(s3_server: RcloneS3, s3_keys: None, tmp_path: Path) -> None:
    source = film(tmp_path / "film.mp4", seconds=4)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = Holdfast(url)
    media = Media(
        app,
        storage=f"s3://{BUCKET}/{uuid4().hex}?endpoint={s3_server.endpoint}",
        cache=tmp_path / "cache",
        scratch=tmp_path / "scratch",
        ladder=ladder(tmp_path / "ladder.toml", ("90p", 90, True), ("60p", 60, True)),
        chunk_seconds=2,
        segment_seconds=2,
        reserve=0,
    )
    studio = Studio(url, tmp_path, tmp_path, app, media)
    async with studio.worker():
        video = await studio.ended(await media.library.add(source, copy=True))
        assert (video.state, video.error) == (VideoState.READY, None)
        assert len(frames(_fetched(media.storage, video.id, tmp_path / "first"))) == 40
        await studio.idle()
        again = await studio.ended(await media.library.retranscode(video.id, qualities=["60p"], fresh=True))
        assert again.newest is not None
        assert (again.newest.number, again.error) == (2, None)
        assert len(frames(_fetched(media.storage, video.id, tmp_path / "second"))) == 40
        clip = await (await media.clip.enqueue(str(source), 1.0, 2.0)).result(timeout=studio.patience)
        assert (clip.frames, media.storage.check(clip.key)) == (10, True)
        await media.library.delete(video.id)
        await studio.idle()
    assert [one.key for one in media.storage.list(f"videos/{video.id}/")] == []
    assert media.storage.check(clip.key), "a clip is nobody's but its own"
    await studio.close()


def _fetched(storage: Storage, video_id: str, folder: Path) -> Path:
    """Bring all of a title here, as a player would that wants every quality; returns its master playlist."""
    home = f"videos/{video_id}/"
    for one in storage.list(home):
        path = folder / one.key.removeprefix(home)
        path.parent.mkdir(parents=True, exist_ok=True)
        with storage.open(one.key) as file:
            path.write_bytes(file.read())
    return folder / "master.m3u8"
