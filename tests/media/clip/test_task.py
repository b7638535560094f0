"""Clips as jobs: made once, found again, resumed, and cleaned up after."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import JobCanceled, JobFailed, Retry, State
from holdfast_media import room
from holdfast_media.clip import artifacts, cutting, fetching
from holdfast_media.clip import task as clip_task
from holdfast_media.clip.recipe import Manifest
from holdfast_media.clip.resolving import resolve
from holdfast_media.clip.scratch import scratch
from holdfast_media.errors import MediaError
from holdfast_media.speech.transcript import Segment, Transcript
from holdfast_media.speech.webvtt import parse
from holdfast_media.storage import storage_from
from holdfast_media.storage.local import LocalStorage
from tests.media.clip import films
from tests.media.clip.conftest import Studio, build
from tests.media.clip.servers import Site, serving
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.storage import Stored


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Counts what is really cut."""
    made: list[float] = []
    real = cutting.cut

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args[3])
        return real(*args, **kwargs)

    monkeypatch.setattr(clip_task, "cut", counted)
    return made


async def test_a_clip_is_published_with_what_it_holds(studio: Studio, film: Path) -> None:
    handle = await studio.task.enqueue(str(film), 1.3, 3.3)
    async with studio.app.worker(poll=0.05):
        result = await handle.result(timeout=60)
    assert films.numbers(studio.file_of(result)) == list(range(39, 99))
    assert (result.start, result.end, result.frames, result.reused) == (1.3, 3.3, 60, False)
    stored = studio.storage.head(result.key)
    assert stored is not None
    assert (stored.size, stored.sha256) == (result.size, result.sha256)
    report = await handle.report()
    assert [stage.name for stage in report.stages] == ["resolve", "clip", "upload", "finalize"]
    assert [part.name for part in report.parts] == ["resolve", "clip", "upload"]
    assert studio.left() == []
    assert (await handle.view()).progress == 100


async def test_two_who_ask_at_once_get_one_job_and_one_cut(studio: Studio, film: Path, cuts: list[float]) -> None:
    handles = [await studio.task.enqueue(str(film), start, 3.0) for start in (1.0, 2.0) for _ in range(2)]
    assert len({handle.id for handle in handles}) == 2
    async with studio.app.worker(poll=0.05):
        results = await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    assert sorted(cuts) == [1.0, 2.0]
    assert len({result.key for result in results}) == 2
    assert len(studio.media()) == 2


async def test_two_jobs_for_one_clip_publish_it_once(studio: Studio, film: Path, tmp_path: Path) -> None:
    """The same bytes under two names have two jobs; what they make has one address."""
    other = tmp_path / "copy.mp4"
    shutil.copy(film, other)
    handles = [await studio.task.enqueue(str(path), 1.0, 2.0) for path in (film, other)]
    async with studio.app.worker(poll=0.05):
        first, second = await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    assert (first.key, first.sha256) == (second.key, second.sha256)
    assert len(studio.media()) == 1


async def test_an_intact_clip_is_found_and_not_cut_again(studio: Studio, film: Path, cuts: list[float]) -> None:
    first = await studio.clip(str(film), 1.0, 2.0)
    again = await studio.clip(str(film), 1.0, 2.0)
    assert again.reused
    assert not first.reused
    assert (again.sha256, again.start, again.end, again.frames) == (first.sha256, first.start, first.end, first.frames)
    assert len(cuts) == 1


@pytest.mark.parametrize("harm", ["one bit", "gone", "a broken description"])
async def test_a_clip_that_is_not_intact_is_made_anew(studio: Studio, film: Path, cuts: list[float], harm: str) -> None:
    first = await studio.clip(str(film), 1.0, 2.0)
    path = studio.file_of(first)
    description = path.with_name("clip.json")
    match harm:
        case "one bit":
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        case "gone":
            path.unlink()
        case _:
            description.write_bytes(b"{")
    again = await studio.clip(str(film), 1.0, 2.0)
    assert not again.reused
    assert len(cuts) == 2
    assert films.numbers(studio.file_of(again)) == list(range(30, 60))
    assert studio.storage.check(again.key, sha256=again.sha256)


@pytest.mark.parametrize("right", [True, False])
def test_a_description_that_names_another_file_is_not_believed(tmp_path: Path, *, right: bool) -> None:
    """Whoever writes one must not get another file given out as a clip, or removed as a damaged one."""
    storage, path = storage_from(str(tmp_path / "storage")), tmp_path / "other"
    path.write_bytes(b"other")
    other = storage.put("clips/bb/bb/clip.mp4", path)
    assert other.sha256 is not None
    made = cutting.Cut(start=1.0, end=2.0, key_frame=None, frames=30, container="mp4", encoder="libx264")
    false = Manifest(cut=made, key=other.key, size=other.size, sha256=other.sha256 if right else "0" * 64)
    path.write_bytes(msgspec.json.encode(false))
    storage.put("clips/aa/aa/clip.json", path)
    assert artifacts.find(storage, "clips/aa/aa") is None
    assert storage.check(other.key, sha256=other.sha256)


class Forgetful(LocalStorage):
    """Keeps no SHA-256, as servers do that keep no metadata; only what was just put is known."""

    def bind(self, *_: Any, **__: Any) -> Forgetful:
        return self

    def head(self, key: str) -> Stored | None:
        found = super().head(key)
        return None if found is None else replace(found, sha256=None)

    def check(self, key: str, *, sha256: str | None = None) -> bool:
        return sha256 is not None and super().check(key, sha256=sha256)


async def test_a_storage_that_keeps_no_sums_has_its_clips_checked_too(tmp_path: Path, film: Path, cuts: list[float]) -> None:
    studio = build(tmp_path, kept_in=Forgetful(tmp_path / "storage"), transcriber=Echo())
    first = await studio.clip(str(film), 1.0, 2.0)
    again = await studio.clip(str(film), 1.0, 2.0, asr=True)
    assert (first.reused, again.reused, again.sha256) == (False, True, first.sha256)
    assert again.captions is not None
    assert len(cuts) == 1
    path, folder = studio.file_of(first), first.key.rpartition("/")[0]
    shutil.copy(path, tmp_path / "same.mp4")
    same = artifacts.publish(studio.storage, first.key, tmp_path / "same.mp4", before_publish=lambda: None)
    assert (same.created, same.sha256) == (False, first.sha256), "there since an attempt was killed before it described it"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert artifacts.find(studio.storage, folder) is None
    assert studio.media() == []
    await studio.app.close()


async def test_a_source_that_was_replaced_is_another_clip(studio: Studio, film: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.mp4"
    shutil.copy(film, source)
    first = await studio.clip(str(source), 0.0, 1.0)
    films.make(source, seconds=2)
    second = await studio.clip(str(source), 0.0, 1.0)
    assert first.key != second.key
    assert not second.reused


async def test_a_fast_clip_states_its_key_frame(studio: Studio, film: Path) -> None:
    result = await studio.clip(str(film), 3.0, 4.0, fast=True)
    assert (result.key_frame, result.start, result.encoder) == (2.5, 2.5, "copy")
    assert films.numbers(studio.file_of(result)) == list(range(75, round(result.end * films.RATE)))
    assert (await studio.clip(str(film), 3.0, 4.0, fast=True)).key_frame == 2.5, "also when it is found"


# --- retries --------------------------------------------------------------------------------------------------------------


class Failing(LocalStorage):
    """Does not take the first clips it is given."""

    def __init__(self, folder: Path, failures: int, fails_with: Callable[[], Exception]) -> None:
        super().__init__(folder)
        self.failures, self.fails_with = failures, fails_with

    def bind(self, *_: Any, **__: Any) -> Failing:
        return self

    def put(self, key: str, *args: Any, **kwargs: Any) -> Any:
        if not key.endswith(".json") and self.failures:
            self.failures -= 1
            raise self.fails_with()
        return super().put(key, *args, **kwargs)


async def test_an_upload_that_failed_is_repeated_without_cutting_again(tmp_path: Path, film: Path, cuts: list[float]) -> None:
    storage = Failing(tmp_path / "storage", 2, lambda: MediaError("STORAGE_UPLOAD_FAILED", "the storage is away"))
    studio = build(tmp_path, kept_in=storage)
    handle = await studio.task.enqueue(str(film), 1.0, 2.0)
    async with studio.app.worker(poll=0.05):
        await handle.result(timeout=60)
    report = await handle.report()
    assert len(cuts) == 1
    assert [attempt.error.code for attempt in report.attempts if attempt.error] == ["STORAGE_UPLOAD_FAILED"] * 2
    assert studio.left() == []
    await studio.app.close()


async def test_a_source_that_was_replaced_between_two_attempts_is_cut_again(
    tmp_path: Path, film: Path, other_film: Path, cuts: list[float]
) -> None:
    source = tmp_path / "source.mp4"
    shutil.copy(film, source)

    def replaced() -> MediaError:
        shutil.copy(other_film, source)
        return MediaError("STORAGE_UPLOAD_FAILED", "the storage is away")

    studio = build(tmp_path, kept_in=Failing(tmp_path / "storage", 1, replaced))
    result = await studio.clip(str(source), 1.0, 2.0)
    assert films.numbers(studio.file_of(result)) == list(range(15, 30))
    assert len(cuts) == 2
    again = await studio.clip(str(source), 1.0, 2.0)
    assert (again.key, again.reused) == (result.key, True)
    await studio.app.close()


async def test_an_upload_that_keeps_failing_fails_the_clip_and_leaves_nothing(tmp_path: Path, film: Path) -> None:
    storage = Failing(tmp_path / "storage", 99, lambda: OSError(5, "Input/output error"))
    studio = build(tmp_path, kept_in=storage)
    with pytest.raises(JobFailed) as failed:
        await studio.clip(str(film), 1.0, 2.0)
    assert failed.value.code == "RETRIES_EXHAUSTED"
    assert "STORAGE_UPLOAD_FAILED" in str(failed.value)
    assert studio.left() == []
    await studio.app.close()


async def test_an_output_without_a_byte_is_tried_again(tmp_path: Path, film: Path) -> None:
    program = tmp_path / "ffmpeg"
    real = films.program()
    program.write_text(
        f'#!/bin/sh\nif [ ! -e "{tmp_path}/once" ]; then\n: > "{tmp_path}/once"\nfor last; do :; done\n: > "${{last#file:}}"\n'
        "exit 0\nfi\n"
        f'exec "{real}" "$@"\n'
    )
    program.chmod(0o755)
    studio = build(tmp_path, ffmpeg=program)
    handle = await studio.task.enqueue(str(film), 1.0, 2.0)
    async with studio.app.worker(poll=0.05):
        result = await handle.result(timeout=60)
    report = await handle.report()
    assert result.frames == 30
    assert [attempt.error.code for attempt in report.attempts if attempt.error] == ["INTERNAL_TRANSIENT"]
    assert "OUTPUT_EMPTY" in str(report)
    await studio.app.close()


async def test_a_cut_that_stands_still_is_killed_and_tried_again(tmp_path: Path, film: Path) -> None:
    program = tmp_path / "ffmpeg"
    hangs = f'echo "waiting for nothing" >&2; echo $$ > "{tmp_path}/pid"; exec sleep 600'
    program.write_text(f'#!/bin/sh\nif mkdir "{tmp_path}/once" 2>/dev/null; then {hangs}; fi\nexec "{films.program()}" "$@"\n')
    program.chmod(0o755)
    studio = build(tmp_path, ffmpeg=program, stall_after=3.0)
    handle = await studio.task.enqueue(str(film), 1.0, 2.0)
    async with studio.app.worker(poll=0.05):
        result = await handle.result(timeout=60)
    assert films.numbers(studio.file_of(result)) == list(range(30, 60))
    (failed,) = [attempt.error for attempt in (await handle.report()).attempts if attempt.error]
    assert failed.code == "INTERNAL_TRANSIENT"
    assert failed.message.startswith("ENCODE_STALLED: ffmpeg wrote nothing for ")
    assert "waiting for nothing" in "\n".join(line.message for line in await handle.logs())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert studio.left() == []
    await studio.app.close()


async def test_what_is_decoded_before_the_clip_begins_is_no_standstill(tmp_path: Path) -> None:
    """From a key frame far before it ffmpeg writes nothing for as long as that takes."""
    far = films.make(tmp_path / "far.mp4", "-g", "1000", seconds=20, sound=False)
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\nsleep 4\nexec "{films.program()}" "$@"\n')
    program.chmod(0o755)
    studio = build(tmp_path, ffmpeg=program, stall_after=3.0, retry=Retry(max_attempts=1))
    assert (await studio.clip(str(far), 19.0, 20.0)).frames == 30
    await studio.app.close()


async def test_a_disk_without_room_for_the_clip_is_told_before_it_is_cut(
    tmp_path: Path, film: Path, cuts: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([10**6])
    monkeypatch.setattr(room, "free_bytes", lambda _: next(free, 10**12))
    studio = build(tmp_path)
    handle = await studio.task.enqueue(str(film), 1.0, 2.0)
    async with studio.app.worker(poll=0.05):
        await handle.result(timeout=60)
    (failed,) = [attempt.error for attempt in (await handle.report()).attempts if attempt.error]
    assert failed.code == "INTERNAL_TRANSIENT"
    assert "DISK_FULL: 1 MB are free in the scratch folder, and 256 MB are needed" in str(failed)
    assert len(cuts) == 1
    await studio.app.close()


@pytest.mark.parametrize("etag", ['"one"', None])
async def test_so_is_one_without_room_for_the_source_before_that_is_fetched(
    tmp_path: Path, film: Path, monkeypatch: pytest.MonkeyPatch, etag: str | None
) -> None:
    content, fetched = content_of(film), list[int]()
    free = iter([256 * 10**6 + len(content) - 1])
    monkeypatch.setattr(room, "free_bytes", lambda _: next(free, 10**12))
    real = fetching.Download.into

    def counted(self: fetching.Download, *args: Any, **kwargs: Any) -> None:
        fetched.append(1)
        real(self, *args, **kwargs)

    monkeypatch.setattr(fetching.Download, "into", counted)
    with serving(Site(content=content, etag=etag)) as site:
        studio = build(tmp_path, networks=("127.0.0.0/8",))
        handle = await studio.task.enqueue(site.url, 1.0, 2.0)
        async with studio.app.worker(poll=0.05):
            await handle.result(timeout=60)
        (failed,) = [attempt.error for attempt in (await handle.report()).attempts if attempt.error]
        assert "DISK_FULL: 256 MB are free in the scratch folder" in str(failed)
        assert len(fetched) == 1
        await studio.app.close()


async def test_a_clip_that_takes_too_long_fails_with_its_code(tmp_path: Path, film: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    studio = build(tmp_path, ffmpeg=program, clip_timeout=0.3)
    with pytest.raises(JobFailed, match="CLIP_TIMEOUT"):
        await studio.clip(str(film), 1.0, 2.0)
    assert studio.left() == []
    await studio.app.close()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("/nowhere/film.mp4", 0.0, 1.0), "INPUT_MISSING"),
        (("film.mp4", 0.0, 1.0), "BAD_SOURCE"),
        (("/dev/zero", 0.0, 1.0), "BAD_SOURCE"),
        (("/", 0.0, 1.0), "BAD_SOURCE"),
        (("file://elsewhere/film.mp4", 0.0, 1.0), "BAD_SOURCE"),
        (("FILM", 2.0, 1.0), "BAD_RANGE"),
        (("FILM", -1.0, 1.0), "BAD_RANGE"),
        (("FILM", 100.0, 101.0), "BAD_RANGE"),
        (("http://127.0.0.1:9/film.mp4", 0.0, 1.0), "ADDRESS_REFUSED"),
    ],
)
async def test_what_cannot_be_cut_fails_at_once(studio: Studio, film: Path, args: tuple[str, float, float], code: str) -> None:
    handle = await studio.task.enqueue(args[0].replace("FILM", str(film)), *args[1:])
    async with studio.app.worker(poll=0.05):
        with pytest.raises(JobFailed) as failed:
            await handle.result(timeout=60)
    assert failed.value.code == code
    assert len((await handle.report()).attempts) == 1
    assert studio.left() == []


async def test_sources_outside_of_their_folders_are_refused(tmp_path: Path, film: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.mp4").symlink_to(film)
    shutil.copy(film, inside / "film.mp4")
    studio = build(tmp_path, folders=(inside,))
    assert (await studio.clip(str(inside / "film.mp4"), 0.0, 0.5)).frames == 15
    for path in (film, inside / "link.mp4", inside / ".." / "outside.mp4"):
        with pytest.raises(JobFailed) as failed:
            await studio.clip(str(path), 0.0, 0.5)
        assert failed.value.code == "SOURCE_REFUSED"
    await studio.app.close()


async def test_a_canceled_clip_ends_its_encode_and_leaves_nothing(tmp_path: Path, film: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\n: > "{tmp_path}/begun"\nexec sleep 60\n')
    program.chmod(0o755)
    studio = build(tmp_path, ffmpeg=program, lease=5.0)
    handle = await studio.task.enqueue(str(film), 1.0, 2.0)
    async with studio.app.worker(poll=0.05):

        async def begun() -> bool:
            return (tmp_path / "begun").exists()

        await until(begun)
        await handle.cancel("not wanted")
        with pytest.raises(JobCanceled):
            await handle.result(timeout=30)

        async def tidy() -> bool:
            return studio.left() == []

        await until(tidy)
    await studio.app.close()


async def test_a_source_that_changes_while_it_is_cut_is_noticed(tmp_path: Path, film: Path) -> None:
    source = tmp_path / "growing.mp4"
    shutil.copy(film, source)
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\n"{films.program()}" "$@"; code=$?; printf x >> "{source}"; exit $code\n')
    program.chmod(0o755)
    studio = build(tmp_path, ffmpeg=program)
    with pytest.raises(JobFailed) as failed:
        await studio.clip(str(source), 1.0, 2.0)
    assert failed.value.code == "INPUT_CHANGED"
    assert studio.published() == []
    await studio.app.close()


# --- what is shown --------------------------------------------------------------------------------------------------------


async def said_in(studio: Studio, *args: Any) -> str:
    """Ask for a clip that fails; returns the log of its job."""
    handle = await studio.task.enqueue(*args)
    async with studio.app.worker(poll=0.05):
        with pytest.raises(JobFailed):
            await handle.result(timeout=60)
    return "\n".join(line.message for line in await handle.logs())


async def test_the_end_of_what_the_encoder_said_is_in_the_log_of_the_job(tmp_path: Path, film: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(
        f'#!/bin/sh\necho "[in#0] opened {film} for /home/ana" >&2\necho "[enc] the very end of it" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    studio = build(tmp_path, ffmpeg=program)
    log = await said_in(studio, str(film), 1.0, 2.0)
    assert "[in#0] opened <source> for <file>\n[enc] the very end of it" in log
    assert "/home" not in log
    assert str(film.parent) not in log
    await studio.app.close()


async def test_so_is_that_of_the_process_that_reads_the_source(
    tmp_path: Path, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *clip.reader*) echo "no good: {film}, /home/ana" >&2; kill -SEGV $$;; esac\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    studio = build(tmp_path)
    log = await said_in(studio, str(film), 1.0, 2.0)
    assert "no good: <source>, <path>" in log
    await studio.app.close()


async def test_no_line_and_no_error_shows_where_the_source_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hostile = tmp_path / "Kunde Geheim" / 'it\'s "x"\n[secret].mp4'
    hostile.parent.mkdir()
    hostile.write_bytes(b"\x00\x00\x00\x18ftypmp42" + b"\x00" * 3000)
    studio = build(tmp_path / "home")
    (tmp_path / "home").mkdir()
    caplog.set_level("DEBUG")
    handle = await studio.task.enqueue(str(hostile), 1.0, 2.0)
    async with studio.app.worker(poll=0.05):
        with pytest.raises(JobFailed) as failed:
            await handle.result(timeout=60)
    report = await handle.report()
    told = [str(failed.value), failed.value.traceback or "", str(report)]
    told += [line.message for line in await handle.logs()]
    told += [str(event.detail) for event in await handle.events()]
    told += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    for text in told:
        assert "Geheim" not in text
        assert "secret" not in text
    await studio.app.close()


def content_of(path: Path) -> bytes:
    return path.read_bytes()


# --- sources from elsewhere -----------------------------------------------------------------------------------------------


async def test_a_source_behind_a_server_that_cuts_connections(tmp_path: Path, film: Path) -> None:
    with serving(Site(content=content_of(film), cut_after=40_000)) as site:
        studio = build(tmp_path, networks=("127.0.0.0/8",))
        first = await studio.clip(site.url, 1.3, 3.3)
        assert films.numbers(studio.file_of(first)) == list(range(39, 99))
        assert site.sent == len(site.content)
        asked = len(site.asked)
        again = await studio.clip(site.url, 1.3, 3.3)
        assert again.reused
        assert len(site.asked) == asked + 1, "found by the ETag: not a byte is fetched again"
        assert studio.left() == []
        await studio.app.close()


async def test_a_download_goes_on_in_the_next_attempt(tmp_path: Path, film: Path) -> None:
    """The server gives a third, breaks off and is away: the attempt fails, and the next one asks for the rest."""
    content = content_of(film)
    with serving(Site(content=content, cut_after=len(content) // 3, cuts=1, refuse=1)) as site:
        studio = build(tmp_path, networks=("127.0.0.0/8",))
        handle = await studio.task.enqueue(site.url, 1.0, 2.0)
        async with studio.app.worker(poll=0.05):
            assert (await handle.result(timeout=60)).frames == 30
        report = await handle.report()
        assert [attempt.error.code for attempt in report.attempts if attempt.error] == ["UPSTREAM_FAILURE"]
        assert site.asked[-1]["range"] == f"bytes={len(content) // 3}-"
        assert studio.left() == []
        await studio.app.close()


async def test_a_source_that_changes_while_it_is_fetched_is_fetched_anew(tmp_path: Path, film: Path, other_film: Path) -> None:
    """The clip lies at an address made of the ETag: what comes under another one must not get there."""
    content, other = content_of(film), content_of(other_film)
    with serving(Site(content=content, cut_after=len(content) // 3, cuts=1)) as site:

        def change() -> None:
            site.content, site.etag = other, '"two"'

        site.on_cut = change
        studio = build(tmp_path, networks=("127.0.0.0/8",))
        handle = await studio.task.enqueue(site.url, 1.0, 2.0)
        async with studio.app.worker(poll=0.05):
            result = await handle.result(timeout=60)
        assert films.numbers(studio.file_of(result)) == list(range(15, 30))
        report = await handle.report()
        assert [attempt.error.code for attempt in report.attempts if attempt.error] == ["UPSTREAM_FAILURE"]
        site.content, site.etag = content, '"one"'
        first = await studio.clip(site.url, 1.0, 2.0)
        assert (first.reused, films.numbers(studio.file_of(first))) == (False, list(range(30, 60)))
        assert studio.left() == []
        await studio.app.close()


def test_what_was_fetched_here_is_not_taken_for_what_was_found_elsewhere(tmp_path: Path, nobody: Any) -> None:
    """Attempt 1 fetches here; attempt 2, on another machine, finds another file of the same size; attempt 3 is here again."""
    studio, found = build(tmp_path, networks=("127.0.0.0/8",)), None
    with serving(Site(content=b"one")) as site:
        for attempt, root, fetches in ((1, "here", True), (2, "elsewhere", False), (3, "here", True)):
            with (
                scratch(tmp_path / root, "job", attempt) as place,
                resolve(site.url, place, studio.settings, earlier=found, stop=nobody, on_progress=lambda _: None) as source,
            ):
                found = source.resolved
                if fetches:
                    assert source.fetch(lambda _: None).read_bytes() == site.content
            site.content, site.etag = b"two", '"two"'


async def test_a_server_that_is_down_is_asked_again_in_the_next_attempt(tmp_path: Path, film: Path) -> None:
    with serving(Site(content=content_of(film), status=503)) as site:
        studio = build(tmp_path, networks=("127.0.0.0/8",))
        handle = await studio.task.enqueue(site.url, 1.0, 2.0)
        async with studio.app.worker(poll=0.05):

            async def refused_once() -> bool:
                return bool(site.asked)

            await until(refused_once)
            site.status = 200
            assert (await handle.result(timeout=60)).frames == 30
        report = await handle.report()
        assert {attempt.error.code for attempt in report.attempts if attempt.error} <= {"UPSTREAM_FAILURE"}
        await studio.app.close()


# --- what is said ---------------------------------------------------------------------------------------------------------


class Echo:
    """Says how long the clip is that it was given."""

    recipe = "echo 1"

    def __init__(self) -> None:
        self.heard: list[str | None] = []

    def check(self) -> None:
        pass

    def transcribe(self, source: Path, *, language: str | None, on_progress: Any, stop: Any) -> Transcript:
        self.heard.append(language)
        on_progress(0.5)
        return Transcript((Segment(0.0, 1.0, f"{len(films.numbers(source))} frames <i>"),), language or "xx")


async def test_what_is_said_is_kept_beside_the_clip(tmp_path: Path, film: Path, cuts: list[float]) -> None:
    echo = Echo()
    studio = build(tmp_path, transcriber=echo)
    plain = await studio.clip(str(film), 1.0, 2.0)
    said = await studio.clip(str(film), 1.0, 2.0, asr=True)
    assert plain.captions is None
    assert said.captions is not None
    assert said.reused, "the clip was there; only what is said was missing"
    assert len(cuts) == 1
    subtitles = parse((studio.folder / said.captions).read_text())
    assert (subtitles.language, [cue.text for cue in subtitles.cues]) == ("xx", ["30 frames <i>"])
    again = await studio.clip(str(film), 1.0, 2.0, asr=True)
    assert (again.captions, again.captions_reused, again.language) == (said.captions, True, "xx")
    other = await studio.clip(str(film), 1.0, 2.0, asr=True, language="de")
    assert other.captions != said.captions
    assert echo.heard == [None, "de"]
    await studio.app.close()


async def test_without_a_transcriber_nothing_is_begun(studio: Studio, film: Path) -> None:
    with pytest.raises(JobFailed) as failed:
        await studio.clip(str(film), 1.0, 2.0, asr=True)
    assert failed.value.code == "SPEECH_MISSING"
    assert studio.published() == []


async def test_a_lost_clip_is_noticed_before_it_is_reported(
    studio: Studio, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deletes the clip between its upload and the end: the job does not say that it is there."""
    real = artifacts.describe
    lost: list[str] = []

    def lose(storage: Any, folder: str, cut: Any, stored: Any, **kwargs: Any) -> Any:
        found = real(storage, folder, cut, stored, **kwargs)
        if not lost:
            lost.append(stored.key)
            storage.delete(stored.key)
        return found

    monkeypatch.setattr(artifacts, "describe", lose)
    handle = await studio.task.enqueue(str(film), 1.0, 2.0)
    async with studio.app.worker(poll=0.05):
        result = await handle.result(timeout=60)
    assert studio.storage.check(result.key)
    assert (await handle.view()).state is State.SUCCEEDED
    assert len((await handle.report()).attempts) == 2
