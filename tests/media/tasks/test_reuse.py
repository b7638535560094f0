"""What is there, intact and of the same recipe is used again; what is not is made again; what others use is left alone."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import State
from holdfast_media import VersionState, VideoState
from holdfast_media.errors import INTERNAL_TRANSIENT, OUTPUT_MISMATCH, SPEECH_FAILED, MediaError
from holdfast_media.source import check as check_source
from holdfast_media.speech.transcript import Segment, Transcript
from holdfast_media.tasks import finalizing, preparing, tidying
from holdfast_media.tasks.context import MARKER
from holdfast_media.tasks.work import VersionPlan
from tests.media.tasks.films import film, frames, ladder
from tests.media.tasks.making import made_on
from tests.media.tasks.studio import Encoder, Studio, failing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from holdfast_media.library import Video


def plan_of(video: Video) -> VersionPlan:
    assert video.newest is not None
    return msgspec.convert(video.newest.plan, VersionPlan)


async def test_a_retranscode_with_the_same_settings_encodes_nothing_but_what_is_damaged(
    studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(monkeypatch)
    video = await studio.media.library.add(silent)
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
        assert len(encoder.asked) == 4
        encoder.calls.clear()
        again = await studio.ended(await studio.media.library.retranscode(video.id))
        assert (again.state, again.error, encoder.asked) == (VideoState.READY, None, [])
        assert again.newest is not None
        assert (again.newest.state, again.newest.jobs.encode) == (VersionState.READY, {})
        assert {one.result and one.result["encoder"] for one in again.newest.qualities} == {"libx264"}

        await studio.idle()
        folder = studio.folder / "media" / plan_of(video).making_of("180p").folder
        segment = max(folder.glob("*.m4s"))
        segment.write_bytes(segment.read_bytes()[:-9] + b"\0" * 9)  # of the same size
        third = await studio.ended(await studio.media.library.retranscode(video.id))
        await studio.idle()
    assert (third.state, third.error) == (VideoState.READY, None)
    assert sorted(encoder.asked) == [("180p", 0), ("180p", 1)]
    assert len(frames(studio.master(video))) == 40


async def test_a_retry_cuts_as_the_try_before_it_whatever_the_settings_say_by_then(
    tmp_path: Path, films: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(monkeypatch, failing("180p"))
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, chunk_seconds=None)
    video = await studio.media.library.add(film(tmp_path / "short.mp4", seconds=12, sound=False))
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
    assert video.state is VideoState.FAILED
    assert [chunk.seconds for chunk in plan_of(video).plan.chunks] == [6, 6]  # a tenth, and no less than this
    await studio.close()

    later = made_on(studio.url, tmp_path, films, chunk_seconds=4)
    encoder.instead, done = (lambda *_: None), set(encoder.asked) - {("180p", 1)}
    encoder.calls.clear()
    await later.media.library.retry(video.id)
    async with later.worker():
        video = await later.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert {("180p", 1)} <= set(encoder.asked) <= {(name, chunk) for name in ("180p", "90p") for chunk in (0, 1)} - done
    await later.close()


async def test_tidying_takes_nothing_that_a_version_which_began_meanwhile_uses(
    tmp_path: Path, films: Path, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, keep_replaced=0)
    other = ladder(tmp_path / "other.toml", ("144p", 144, True))
    looked, go_on = threading.Event(), threading.Event()
    needs = tidying._Kept.needs

    def slow(self: Any, key: str, home: str) -> bool:
        needed = needs(self, key, home)
        if not needed and "180p-" in key:
            looked.set()
            go_on.wait(60)
        return needed

    library = studio.media.library
    video = await library.add(silent)
    async with studio.worker(concurrency=3):
        await studio.ended(video)
        await studio.idle()
        monkeypatch.setattr(tidying._Kept, "needs", slow)
        await studio.ended(await library.retranscode(video.id, ladder=str(other)))
        await studio.until(looked.is_set)  # what the first version had is about to go
        again = await library.retranscode(video.id, ladder=str(films / "ladder.toml"))
        await studio.until(lambda: _waits_or_ended(studio, again))
        go_on.set()
        video = await studio.ended(again)
        await studio.idle()
    assert (video.state, video.error) == (VideoState.READY, None)
    assert "180p-" in studio.master(video).read_text()
    assert len(frames(studio.master(video))) == 40
    await studio.close()


async def _waits_or_ended(studio: Studio, video: Video) -> bool:
    if await studio._ended(video.id):
        return True
    assert video.newest is not None
    views = await studio.media.library.looking.jobs([video.newest.jobs.prepare])
    return views[0] is not None and views[0].state is State.SCHEDULED


async def test_what_another_version_plays_is_not_dropped_because_this_one_is_bad(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(*_: object, **__: object) -> None:
        raise MediaError(OUTPUT_MISMATCH, "a frame is missing.")

    video = await studio.media.library.add(film(studio.folder / "short.mp4", seconds=4))
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
        before = plan_of(video)
        monkeypatch.setattr(finalizing, "verify", bad)
        again = await studio.ended(await studio.media.library.retranscode(video.id, qualities=["90p"], fresh=True))
        await studio.idle()
    assert again.newest is not None
    assert (again.state, again.newest.code) == (VideoState.READY, OUTPUT_MISMATCH)
    media = studio.folder / "media"
    assert before.audio_folder is not None
    played = {*(one.folder for one in before.making), before.audio_folder}
    assert all((media / folder / MARKER).exists() for folder in played)
    made = plan_of(again).making_of("90p").folder
    assert made not in played
    assert not (media / made / MARKER).exists()  # so that a retry makes it again


async def test_what_was_taken_over_from_a_try_before_is_dropped_when_it_is_bad(
    studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(*_: object, **__: object) -> None:
        raise MediaError(OUTPUT_MISMATCH, "a frame is missing.")

    encoder = Encoder(monkeypatch, failing("180p"))
    monkeypatch.setattr(finalizing, "verify", bad)
    async with studio.worker():
        video = await studio.ended(await studio.media.library.add(silent))
        await studio.idle()
        encoder.instead = lambda *_: None
        again = await studio.ended(await studio.media.library.retry(video.id))
    assert again.newest is not None
    assert again.newest.code == OUTPUT_MISMATCH
    plan = plan_of(again)
    assert [one.rendition.name for one in plan.taken] == ["90p"]
    assert not any((studio.folder / "media" / folder / MARKER).exists() for folder in plan.folders)


async def test_what_was_probed_counts_for_the_same_bytes_alone(
    studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = studio.folder / "film.mp4"
    shutil.copyfile(silent, source)
    tries: list[int] = []

    def check(*args: Any, **options: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:  # the first attempt dies, and before the next one somebody replaces the file
            film(source, seconds=2, sound=False)
            raise MediaError(INTERNAL_TRANSIENT, "no luck.")
        return check_source(*args, **options)

    monkeypatch.setattr(preparing, "check", check)
    async with studio.worker():
        video = await studio.ended(await studio.media.library.add(source))
    assert (video.state, video.error) == (VideoState.READY, None)
    assert video.newest is not None
    assert video.newest.result is not None
    assert (video.newest.result["frames"], len(frames(studio.master(video)))) == (20, 20)


# --- subtitles ------------------------------------------------------------------------------------------------------------


class Listener:
    """Writes down always the same."""

    recipe = "listener 1"

    def __init__(self) -> None:
        self.asked = 0

    def check(self) -> None:
        """It works everywhere."""

    def transcribe(
        self, source: Path, *, language: str | None, on_progress: Callable[[float], None], stop: Callable[[], str | None]
    ) -> Transcript:
        del source, on_progress, stop
        self.asked += 1
        return Transcript((Segment(0.0, 1.5, "Hello."),), language or "en")


async def test_subtitles_outlive_a_retranscode_of_the_same_source(tmp_path: Path, films: Path) -> None:
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, keep_replaced=0)
    studio.media.transcriber = listener = Listener()
    video = await studio.media.library.add(film(tmp_path / "short.mp4", seconds=2), transcribe=True)
    async with studio.worker():
        video = await studio.ended(video)
        await studio.idle()
        await studio.ended(await studio.media.library.retranscode(video.id, qualities=["90p"], fresh=True))
        again = await studio.ended(await studio.media.library.retranscode(video.id))
        await studio.idle()
    assert again.newest is not None
    assert again.newest.result is not None
    assert "Hello." in (tmp_path / "media" / again.newest.result["captions"]).read_text()
    assert listener.asked == 1
    await studio.close()


async def test_whoever_asks_for_subtitles_where_nobody_writes_them_is_told(studio: Studio) -> None:
    video = await studio.media.library.add(film(studio.folder / "short.mp4", seconds=2), transcribe=True)
    async with studio.worker():
        video = await studio.ended(video)
    assert video.state is VideoState.READY
    assert video.newest is not None
    result = video.newest.result
    assert result is not None
    assert (result["captions"], result["failed"], result["code"]) == (None, ["transcribe"], "NO_TRANSCRIBER")
    assert "Media(transcriber=…)" in result["message"]


class Confused:
    """Gives up, with words that name files of this machine."""

    recipe = "confused 1"

    def check(self) -> None:
        """It can work here."""

    def transcribe(self, source: Path, **_: Any) -> Transcript:
        said = f"cannot read {source} beside /home/ana/.cache/models"
        raise MediaError(SPEECH_FAILED, said, detail=f"Traceback: {said}", said_by="speech recognition")


async def test_what_the_transcriber_said_is_told_as_its_own_and_without_paths(studio: Studio) -> None:
    studio.media.transcriber = Confused()
    spaced = studio.folder / "my films"
    spaced.mkdir()
    video = await studio.media.library.add(film(spaced / "a b.mp4", seconds=2), transcribe=True)
    async with studio.worker():
        video = await studio.ended(video)
    assert video.newest is not None
    assert video.newest.result is not None
    assert video.newest.jobs.transcribe is not None
    handle = studio.app.job(video.newest.jobs.transcribe)
    log = "\n".join(line.message for line in await handle.logs())
    assert "the end of what speech recognition said:\nTraceback: cannot read <source> beside <path>" in log
    report = await handle.report()
    told = f"{log} {report} {video.newest.result['message']}"
    assert "cannot read <source> beside <path>" in video.newest.result["message"]
    assert "/home/ana" not in told
    assert str(spaced) not in told
