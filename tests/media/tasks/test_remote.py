"""Encoders that reach nothing but a server: they encode, and the workers beside the database do the rest."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast_media import VideoState
from holdfast_media.storage import storage_from
from holdfast_media.tasks import encoding
from holdfast_media.tasks.artifacts import read_marker
from holdfast_media.tasks.granting import grants
from tests.media.tasks.films import frames
from tests.media.tasks.making import made_on
from tests.media.transfer.served import serving
from tests.media.worlds import media_on

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
async def test_a_remote_worker_encodes_what_a_local_one_prepares_and_publishes(
    tmp_path: Path, films: Path, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, together=together)
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
    await studio.close()


@pytest.mark.parametrize("how", ["never came", "was damaged"])
async def test_what_a_remote_worker_calls_done_counts_only_when_it_is_there(
    tmp_path: Path, films: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, together=True)
    settings, real = studio.media.settings, encoding.encode
    done: list[str] = []
    one_by_one = threading.Lock()

    def encode(context: Any, work: Any, before: Any = None) -> Any:
        made = real(context, work, before)
        path = tmp_path / "media" / work.key
        with one_by_one:
            if not done and how == "never came":
                context.storage.delete(work.key)
            elif not done:
                path.write_bytes(path.read_bytes()[:-1] + b"?")
            done.append(work.key)
        return made

    monkeypatch.setattr(encoding, "encode", encode)
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
    assert done.count(done[0]) == 2
    assert video.newest is not None
    assert video.newest.result is not None
    assert (video.newest.result["encodes"], video.newest.result["redone"]) == (6, 1)
    assert {cell.worker for cell in (await studio.media.grid(video.newest)).cells} == {"far"}
    assert len(frames(studio.master(video))) == 60
    await studio.close()


@pytest.mark.parametrize("name", ["../index.m3u8", "/etc/passwd", "..", ".hidden", "a/b.m4s", ""])
def test_no_name_that_a_machine_elsewhere_wrote_down_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    facts = {
        "name": "audio",
        "playlist": "index.m3u8",
        "bytes": 1,
        "segments": 1,
        "frames": 0,
        "seconds": 1.0,
        "peak_bandwidth": 1,
        "average_bandwidth": 1,
        "codecs": "mp4a.40.2",
    }
    storage = storage_from(str(tmp_path / "media"))
    for wrong in (facts | {"name": name}, facts | {"playlist": name}, facts):
        files = [name] if wrong is facts else ["index.m3u8"]
        marker = {"facts": wrong | {"files": files}, "sizes": dict.fromkeys(files, 1)}
        (tmp_path / "marker").write_bytes(msgspec.json.encode(marker))
        storage.put("videos/1/audio-2/package.json", tmp_path / "marker", overwrite=True)
        assert read_marker(storage, "videos/1/audio-2/") is None
    (tmp_path / "marker").write_bytes(
        msgspec.json.encode({"facts": facts | {"files": ["index.m3u8"]}, "sizes": {"index.m3u8": 1}})
    )
    storage.put("videos/1/audio-2/package.json", tmp_path / "marker", overwrite=True)
    assert read_marker(storage, "videos/1/audio-2/") is not None


def test_a_job_may_use_what_its_args_name_and_no_more() -> None:
    work = {"origin": {"ref": {"key": "sources/a"}}, "key": "videos/1/chunks/x.mp4", "folder": "videos/1/audio-2/"}
    twins = [{"key": "videos/1/chunks/t.mp4", "note": "videos/1/chunks/t.json"}]
    encode = grants("media.encode", {"work": work | {"twins": twins}})
    assert encode.may_write("videos/1/chunks/t.mp4")
    assert encode.may_write("videos/1/chunks/t.json")
    assert (encode.may_read("sources/a"), encode.may_write("sources/a")) == (True, False)
    assert (encode.may_write("videos/1/chunks/x.mp4"), encode.may_write("videos/1/chunks/y.mp4")) == (True, False)
    assert not encode.may_write("videos/1/audio-2/index.m3u8")
    assert grants("media.audio", {"work": work}).may_write("videos/1/audio-2/index.m3u8")
    assert not grants("media.tidy", {"video_id": "1"}).may_read("videos/1/master.m3u8")
