"""A film becomes a playlist: all frames, on both databases, whatever is in it, and again without doing anything twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast import State
from holdfast_media import CellState, VersionState, VideoState
from holdfast_media.errors import INPUT_UNREADABLE, MediaError, Stopped
from holdfast_media.ffmpeg import find_ffmpeg
from holdfast_media.tasks import context
from holdfast_media.tasks.work import VersionPlan
from tests.media.tasks.films import film, frames, ladder
from tests.media.tasks.making import made_on
from tests.media.tasks.studio import Encoder, Studio, failing
from tests.media.worlds import url_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.postgres import PostgresServers


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_film_is_transcoded_with_all_its_frames(
    kind: str, tmp_path: Path, films: Path, postgres_servers: PostgresServers
) -> None:
    studio = made_on(url_for(kind, tmp_path, postgres_servers), tmp_path, films, pictures=True)
    video = await studio.media.library.add(studio.film, title="A film")
    async with studio.worker():
        video = await studio.ended(video)
        assert (video.state, video.error) == (VideoState.READY, None)
        await studio.idle()
    newest = video.newest
    assert newest is not None
    assert newest.result is not None
    assert (newest.state, newest.result["frames"], newest.result["encodes"]) == (VersionState.READY, 60, 6)
    assert [(one.name, one.state) for one in newest.qualities] == [("180p", "ready"), ("90p", "ready")]
    assert newest.qualities[0].result is not None
    assert newest.qualities[0].result["encoder"] == "libx264"
    assert video.facts is not None
    assert (video.facts["frames"], video.facts["width"]) == (60, 320)
    assert len(frames(studio.master(video))) == 60
    for quality in newest.qualities:
        assert quality.result is not None
        assert len(frames(studio.folder / "media" / quality.result["folder"] / "index.m3u8")) == 60
    assert (studio.folder / "media" / newest.result["poster"]).stat().st_size > 0
    assert (studio.folder / "media" / newest.result["master"]).exists()
    grid = await studio.media.grid(newest)
    assert (grid.percent, len(grid.cells), grid.count(CellState.DONE)) == (100.0, 6, 6)
    assert {cell.attempt for cell in grid.cells} == {1}
    assert all(cell.worker for cell in grid.cells)
    assert not (studio.home(video) / "chunks").exists() or not any((studio.home(video) / "chunks").glob("*.mp4"))
    assert not any((studio.folder / "scratch").iterdir())
    await studio.close()


async def test_sound_alone_and_picture_alone_are_transcoded_too(studio: Studio) -> None:
    song = await studio.media.library.add(film(studio.folder / "song.m4a", seconds=4, picture=False))
    silent = await studio.media.library.add(film(studio.folder / "silent.mp4", seconds=4, sound=False))
    async with studio.worker():
        song, silent = await studio.ended(song), await studio.ended(silent)
    assert (song.error, silent.error) == (None, None)
    assert song.newest is not None
    assert song.newest.result is not None
    assert (song.newest.qualities, song.newest.result["qualities"]) == ((), [])
    assert 3.9 < song.newest.result["seconds"] < 4.2
    assert studio.master(song).exists()
    assert len(frames(studio.master(silent))) == 40


async def test_what_is_no_film_fails_with_the_reason_and_nothing_is_left(studio: Studio) -> None:
    (studio.folder / "noise.mp4").write_bytes(b"\x07" * 5000)
    noise = await studio.media.library.add(studio.folder / "noise.mp4")
    nothing = await studio.media.library.add(studio.folder / "nothing.mp4")
    async with studio.worker():
        noise, nothing = await studio.ended(noise), await studio.ended(nothing)
    assert (noise.state, noise.newest and noise.newest.code) == (VideoState.FAILED, INPUT_UNREADABLE)
    assert str(nothing.error).startswith("INPUT_MISSING: there is no file 'nothing.mp4'")
    assert noise.newest is not None
    views = await studio.media.library.looking.jobs([noise.newest.jobs.prepare])
    assert views[0] is not None
    assert (views[0].state, views[0].attempt) == (State.FAILED, 1)  # what is wrong with the input stays wrong


async def test_a_quality_plays_before_the_others_are_there(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def wait(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del chunk, stop
        if name == "180p":
            go_on.wait(60)

    Encoder(monkeypatch, wait)
    video = await studio.media.library.add(studio.film)
    async with studio.worker(concurrency=6):
        await studio.until(studio.master(video).exists)
        early = studio.master(video).read_text()
        assert ("90p-" in early, "180p-" in early) == (True, False)
        assert len(frames(studio.master(video))) == 60
        assert (await studio.media.library.get(video.id)).state is VideoState.PROCESSING
        go_on.set()
        await studio.ended(video)
    assert "180p-" in studio.master(video).read_text()


async def test_a_required_quality_that_fails_fails_the_video_and_an_optional_one_does_not(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(monkeypatch, failing("90p"))
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        video = await studio.ended(video)
        assert video.state is VideoState.READY
        assert video.newest is not None
        assert video.newest.result is not None
        assert (video.newest.result["qualities"], video.newest.result["failed"]) == (["180p"], ["90p"])
        optional = next(one for one in video.newest.qualities if one.name == "90p")
        assert (optional.state, optional.code) == ("failed", "ENCODE_FAILED")
        assert "90p-" not in studio.master(video).read_text()

        encoder.instead = failing("180p")
        other = await studio.ended(await studio.media.library.add(studio.film))
    assert other.state is VideoState.FAILED
    assert other.error is not None
    assert other.error.startswith("ENCODE_FAILED: 180p: the encoder gave up. (job ")
    grid = await studio.media.grid(other.newest or "")
    cells = {row.name: [cell.state for cell in row.cells] for row in grid.rows}
    assert cells["180p"][1] is CellState.FAILED
    assert cells["90p"] == [CellState.DONE] * 3


async def test_a_retry_encodes_only_what_is_missing_or_broken(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch, failing("180p", at=2))
    video = await studio.media.library.add(studio.film)
    async with studio.worker(concurrency=1):
        video = await studio.ended(video)
        await studio.idle()
        assert video.state is VideoState.FAILED
        encoder.instead = lambda *_: None
        encoder.calls.clear()
        assert video.newest is not None
        plan = msgspec.convert(video.newest.plan, VersionPlan)
        broken = studio.folder / "media" / plan.making_of("180p").chunks[0]
        broken.write_bytes(broken.read_bytes()[:-100] + b"\0" * 100)
        video = await studio.ended(await studio.media.library.retry(video.id))
    assert (video.state, video.error) == (VideoState.READY, None)
    assert video.newest is not None
    assert video.newest.number == 1
    # the one that failed, and the one that was broken; of a quality that was packaged no chunk is looked at
    assert sorted(encoder.asked) == [("180p", 0), ("180p", 2)]
    results = await studio.encodes(video)
    assert [one.reused for one in results] == [False, True, False]
    assert [one.encoder for one in results] == ["libx264"] * 3  # whoever did it, and whenever
    assert len(frames(studio.master(video))) == 60


async def test_a_retranscode_plays_the_old_version_until_the_new_one_is_swapped_in(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    encoder = Encoder(monkeypatch)
    video = await studio.media.library.add(studio.film)
    other = ladder(studio.folder / "other.toml", ("144p", 144, True), ("72p", 72, True))
    async with studio.worker(concurrency=6):
        video = await studio.ended(video)
        await studio.idle()
        before = studio.master(video).read_text()
        encoder.instead = lambda name, *_: _waits(go_on) if name == "144p" else None
        again = await studio.media.library.retranscode(video.id, ladder=str(other))
        await studio.until(lambda: _plays(studio, video.id, "72p"))  # one of its qualities is there, and not shown yet
        during = await studio.media.library.get(video.id)
        assert (during.state, during.published) == (VideoState.READY, video.published)
        assert during.newest is not None
        assert during.newest.state is VersionState.PROCESSING
        assert studio.master(video).read_text() == before
        assert len(frames(studio.master(video))) == 60
        go_on.set()
        after = await studio.ended(again)
        await studio.idle()
    assert [(one.number, one.state) for one in after.versions] == [(2, VersionState.READY), (1, VersionState.REPLACED)]
    assert after.published == after.versions[0].id
    assert "144p-" in studio.master(video).read_text()
    assert "180p-" not in studio.master(video).read_text()
    assert len(frames(studio.master(video))) == 60
    # whoever is still watching the old one can go on for a while
    old = after.versions[1].result
    assert old is not None
    assert len(frames(studio.folder / "media" / old["master"])) == 60


async def _plays(studio: Studio, video_id: str, quality: str) -> bool:
    found = await studio.media.library.look(video_id)
    assert found is not None
    assert found.newest is not None
    package = found.newest.jobs.package.get(quality)
    if package is None:
        return False
    view = (await studio.media.library.looking.jobs([package]))[0]
    return view is not None and view.state is State.SUCCEEDED


def _waits(go_on: threading.Event) -> None:
    go_on.wait(60)


async def test_a_retranscode_of_some_qualities_takes_the_others_over(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch)
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
        encoder.calls.clear()
        video = await studio.ended(await studio.media.library.retranscode(video.id, qualities=["90p"], fresh=True))
        assert {name for name, _ in encoder.asked} == {"90p"}
        assert (video.state, video.error) == (VideoState.READY, None)
        text = studio.master(video).read_text()
        assert ("180p-" in text, "90p-" in text) == (True, True)
        # the same recipe, intact: nothing is encoded again
        encoder.calls.clear()
        video = await studio.ended(await studio.media.library.retranscode(video.id, qualities=["90p"]))
        assert encoder.asked == []
        # of a ladder that is given only the worker knows which of its rungs this source gives
        other = ladder(studio.folder / "other.toml", ("1080p", 1080, False), ("90p", 90, True))
        above = await studio.media.library.retranscode(video.id, qualities=["1080p"], ladder=str(other))
        above = await studio.ended(above)
    assert above.state is VideoState.READY  # the old version plays on
    assert above.newest is not None
    assert (above.newest.state, above.newest.code) == (VersionState.FAILED, "LADDER_INVALID")


async def test_a_ladder_is_what_it_was_when_it_was_asked_for_wherever_the_workers_are(
    studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = studio.folder / "here"
    here.mkdir()
    ladder(here / "own.toml", ("60p", 60, True))
    monkeypatch.chdir(here)
    video = await studio.media.library.add(silent, ladder="own.toml")
    with pytest.raises(MediaError, match="LADDER_INVALID"):
        await studio.media.library.add(silent, ladder="nowhere.toml")
    (here / "own.toml").unlink()
    monkeypatch.chdir(studio.folder)
    async with studio.worker():
        video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert video.newest is not None
    assert [one.name for one in video.newest.qualities] == ["60p"]


async def test_a_deleted_video_aborts_what_runs_and_leaves_nothing(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        if (name, chunk) != ("90p", 0):
            while (reason := stop()) is None:
                threading.Event().wait(0.05)
            raise Stopped(reason)

    encoder = Encoder(monkeypatch, endless)
    video = await studio.media.library.add(studio.film)
    async with studio.worker(concurrency=3):
        await studio.until(lambda: len(encoder.asked) >= 3)
        await studio.media.library.delete(video.id)
        await studio.idle()
        assert encoder.stopped
        assert set(encoder.stopped) == {"canceled"}
    assert not [path for path in studio.home(video).rglob("*") if path.is_file()]
    assert not any((studio.folder / "scratch").iterdir())
    views = await studio.media.library.looking.jobs(video.newest.jobs.waiting_first if video.newest else [])
    assert all(view is not None and view.state in {State.CANCELED, State.SUCCEEDED} for view in views)


async def test_an_encode_that_stands_still_is_killed_and_tried_again(tmp_path: Path, films: Path, silent: Path) -> None:
    program = tmp_path / "ffmpeg"
    hangs = f'case "$*" in *silent.mp4*) if mkdir "{tmp_path}/once" 2>/dev/null; then exec sleep 600; fi;; esac'
    program.write_text(f'#!/bin/sh\n{hangs}\nexec "{find_ffmpeg()}" "$@"\n')
    program.chmod(0o755)
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, ffmpeg=program, stall_after=3)
    video = await studio.media.library.add(silent)
    async with studio.worker():
        video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert len(frames(studio.master(video))) == 40
    assert video.newest is not None
    assert video.newest.result is not None
    assert (video.newest.result["encodes"], video.newest.result["redone"]) == (4, 1)
    failed = []
    for one in (each for ids in video.newest.jobs.encode.values() for each in ids):
        failed += [attempt.error.code for attempt in (await studio.app.job(one).report()).attempts if attempt.error]
    assert failed == ["ENCODE_STALLED"]
    await studio.close()


async def test_a_full_disk_is_told_before_work_and_tried_again(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([1000])  # the first job that works there finds no room; then somebody has made some
    monkeypatch.setattr(context, "free_bytes", lambda _: next(free, 10**12))
    encoder = Encoder(monkeypatch)
    video = await studio.media.library.add(studio.film)
    async with studio.worker(concurrency=1):
        video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert video.newest is not None
    said = []
    for one in (video.newest.jobs.audio, *(each for ids in video.newest.jobs.encode.values() for each in ids)):
        if one is not None:
            said += [line.message for line in await studio.app.job(one).logs()]
    assert any(message.startswith("DISK_FULL: ") and "Make room" in message for message in said)
    assert len(encoder.asked) == 6  # nothing was begun that would not have fitted


async def test_a_disk_that_stays_full_spends_no_attempts(studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "LONGEST_REST", 0.01)
    free = iter([1000] * (4 * studio.media.settings.attempts))  # there are four chunks
    monkeypatch.setattr(context, "free_bytes", lambda _: next(free, 10**12))
    video = await studio.media.library.add(silent)
    async with studio.worker(concurrency=1):
        video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert next(free, None) is None


async def test_what_has_waited_for_room_is_neither_lost_nor_done_again(
    studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "LONGEST_REST", 0.2)
    free = iter([10**12, 1000, 1000, 1000])  # `prepare` has room, and then there is none for a while
    monkeypatch.setattr(context, "free_bytes", lambda _: next(free, 10**12))
    seen: set[tuple[CellState, bool]] = set()
    video = await studio.media.library.add(silent)

    async def ended() -> bool:
        newest = (await studio.media.library.get(video.id)).newest
        assert newest is not None
        seen.update((cell.state, cell.lost) for cell in (await studio.media.grid(newest)).cells)
        return not newest.active

    async with studio.worker(concurrency=1):
        await studio.until(ended)
        video = await studio.ended(video)
    assert next(free, None) is None
    assert video.newest is not None
    assert video.newest.result is not None
    assert (video.state, video.newest.result["encodes"], video.newest.result["redone"]) == (VideoState.READY, 4, 0)
    assert {lost for _, lost in seen} == {False}
    grid = await studio.media.grid(video.newest)
    assert max(cell.attempt for cell in grid.cells) > 1
    assert (grid.count(CellState.DONE), grid.redone) == (4, 0)


async def test_while_there_is_no_room_the_grid_says_so(studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = threading.Event()
    monkeypatch.setattr(context, "LONGEST_REST", 0.2)
    monkeypatch.setattr(context, "free_bytes", lambda _: 10**12 if room.is_set() else 1000)
    video = await studio.media.library.add(silent)

    async def told() -> bool:
        newest = (await studio.media.library.get(video.id)).newest
        assert newest is not None
        cells = (await studio.media.grid(newest)).cells
        return any(cell.state is CellState.WAITING and cell.message.startswith("DISK_FULL: 0 MB are free") for cell in cells)

    async with studio.worker(concurrency=1):
        await studio.until(told)
        room.set()
        assert (await studio.ended(video)).state is VideoState.READY


async def test_chunks_and_packages_must_both_fit_before_the_work_begins(
    studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    real = context.Context.check_room

    def check_room(self: context.Context, needed: float, **options: bool) -> None:
        asked.append(needed)
        real(self, needed, **options)

    monkeypatch.setattr(context.Context, "check_room", check_room)
    async with studio.worker(concurrency=1):
        await studio.ended(await studio.media.library.add(silent))
    assert asked[0] >= 2 * (300 + 300) * 125 * 4  # of both qualities, all 4 s, twice


async def test_a_job_that_dies_for_good_leaves_no_video_in_limbo(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    Encoder(monkeypatch)
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        await studio.until(lambda: _planned(studio, video.id))
        newest = (await studio.media.library.get(video.id)).newest
        assert newest is not None
        assert newest.jobs.finalize is not None
        await studio.app.fail(newest.jobs.finalize, "the machine burnt down", code="FIRE")
        await studio.media.tasks.sweep.enqueue()
        await studio.until(lambda: _is(studio, video.id, VideoState.FAILED))
    assert "FIRE: media.finalize: the machine burnt down" in str((await studio.media.library.get(video.id)).error)


async def _planned(studio: Studio, video_id: str) -> bool:
    found = await studio.media.library.look(video_id)
    return found is not None and found.newest is not None and found.newest.jobs.finalize is not None


async def _is(studio: Studio, video_id: str, state: VideoState) -> bool:
    found = await studio.media.library.look(video_id)
    return found is not None and found.state is state


async def test_a_source_that_changes_on_the_way_is_not_mixed_with_what_it_was(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = studio.folder / "changing.mp4"
    source.write_bytes(studio.film.read_bytes())

    def change(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del name, chunk, stop
        film(source, seconds=5)

    encoder = Encoder(monkeypatch, change)
    video = await studio.media.library.add(source)
    async with studio.worker(concurrency=1):
        video = await studio.ended(video)
    assert video.state is VideoState.FAILED
    assert video.newest is not None
    assert video.newest.code == "INPUT_CHANGED"
    assert len(encoder.asked) == 1
    assert not list(studio.home(video).rglob("chunks/*.mp4"))  # the one that was encoded while it changed is not published
