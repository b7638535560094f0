"""Files become jobs: when they are complete, and once."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from holdfast.connect import connect
from holdfast.core.states import State
from holdfast.errors import BadSetting, StoreUnavailable
from holdfast.store.port import JobFilter, Retention
from holdfast.watch.ledger import dialect_of
from holdfast.watch.versions import PIECE, PIECES, read
from tests.support.until import until
from tests.watch.conftest import SETTLE, Scene, scene_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from holdfast.store.port import Store, Transaction
    from holdfast.watch.files import Sighting
    from holdfast.watch.versions import Version

EVERYTHING = Retention(succeeded=0.0, failed=0.0, canceled=0.0)


async def test_files_that_were_there_before_become_jobs_and_workers_hear_of_them(scene: Scene) -> None:
    (scene.folder / "a.mov").write_text("a")
    assert await scene.settled(await scene.watcher()) == ["a.mov"]
    assert scene.hints == ["default"]


async def test_a_file_that_is_written_slowly_is_not_taken_before_its_end(scene: Scene) -> None:
    watcher = await scene.watcher()
    with (scene.folder / "a.mov").open("w") as file:
        for _ in range(10):
            file.write("part")
            file.flush()
            await watcher.look()
            scene.now += SETTLE - 0.1
            await watcher.look()
            assert await scene.names() == []
    assert await scene.settled(watcher) == ["a.mov"]


async def test_a_file_of_fixed_size_that_is_still_filled_is_not_taken(scene: Scene) -> None:
    watcher = await scene.watcher()
    path = scene.folder / "a.mov"
    path.write_bytes(bytes(100))
    for second in range(1, 4):
        await watcher.look()
        scene.now += SETTLE - 0.1
        os.utime(path, (second, second))
        await watcher.look()
        assert await scene.names() == []


async def test_a_file_renamed_into_place_is_taken_at_once(scene: Scene) -> None:
    watcher = await scene.watcher()
    (scene.folder / "a.mov.part").write_text("whole")
    await watcher.look()
    (scene.folder / "a.mov.part").rename(scene.folder / "a.mov")
    await watcher.look()
    assert await scene.names() == ["a.mov"]


async def test_older_files_come_first(scene: Scene) -> None:
    for name, modified in (("b.mov", 30), ("a.mov", 20), ("c.mov", 10)):
        (scene.folder / name).write_text(name)
        os.utime(scene.folder / name, (modified, modified))
    assert await scene.settled(await scene.watcher()) == ["c.mov", "a.mov", "b.mov"]


async def test_a_restarted_watcher_takes_nothing_twice(scene: Scene) -> None:
    (scene.folder / "a.mov").write_text("a")
    for _ in range(3):
        assert await scene.settled(await scene.watcher()) == ["a.mov"]


async def test_a_file_is_not_taken_again_when_its_job_was_pruned_or_deleted(scene: Scene) -> None:
    (scene.folder / "a.mov").write_text("a")
    (scene.folder / "b.mov").write_text("b")
    await scene.settled(await scene.watcher())
    first, second = (await scene.store.find(JobFilter(), limit=10)).jobs
    await scene.store.cancel([first.id])
    await scene.store.rewind(1.0)
    assert (await scene.store.prune(EVERYTHING, limit=10)).count == 1
    await scene.store.delete([second.id])
    assert await scene.settled(await scene.watcher()) == []


async def test_replaced_content_is_a_new_piece_of_work_once_it_is_complete(scene: Scene) -> None:
    path = scene.folder / "a.mov"
    path.write_text("first")
    watcher = await scene.watcher()
    await scene.settled(watcher)
    path.write_text("second, longer")
    await watcher.look()
    assert await scene.names() == ["a.mov"]
    assert await scene.settled(watcher) == ["a.mov", "a.mov"]
    assert await scene.settled(await scene.watcher()) == ["a.mov", "a.mov"]


async def test_another_file_of_the_same_size_and_time_is_a_new_piece_of_work(scene: Scene) -> None:
    path, other = scene.folder / "a.mov", scene.folder / ".other"
    for file, text in ((path, "1st"), (other, "2nd")):
        file.write_text(text)
        os.utime(file, (1000, 1000))
    watcher = await scene.watcher()
    await scene.settled(watcher)
    other.replace(path)
    assert await scene.settled(watcher) == ["a.mov", "a.mov"]


async def test_another_file_of_the_same_number_size_and_time_is_a_new_piece_of_work(scene: Scene) -> None:
    """The number of an inode goes to the next file once it is free: written in place is how that looks."""
    path = scene.folder / "a.mov"
    watcher = await scene.watcher()
    for count, text in enumerate(("1st", "2nd", "3rd"), start=1):
        tick(path)
        path.write_text(text)
        os.utime(path, (1000, 1000))
        if text == "3rd":  # nor is it known to a watcher that has just started
            watcher = await scene.watcher()
        assert await scene.settled(watcher) == ["a.mov"] * count


def tick(path: Path) -> None:
    """Let the clock of the file system go on, as it does while a file settles."""
    probe = path.parent / ".probe"
    probe.touch()
    begun = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == begun:
        probe.touch()


async def test_a_large_file_is_told_from_another_by_parts_of_it(scene: Scene) -> None:
    path = scene.folder / "a.mov"
    watcher = await scene.watcher()
    size = 3 * PIECES * PIECE
    for count, place in enumerate((0, size // 3, size - 1), start=1):
        tick(path)
        with path.open("wb") as file:
            file.truncate(size)
            file.seek(place)
            file.write(b"x")
        os.utime(path, (1000, 1000))
        assert await scene.settled(watcher) == ["a.mov"] * count


async def test_the_same_file_under_another_number_is_not_taken_again(scene: Scene) -> None:
    """As it is seen from another host, or after another mount, of a network file system."""
    path, other = scene.folder / "a.mov", scene.folder / ".other"
    path.write_text("a film")
    modified = 1_600_000_000_123_456_789
    os.utime(path, ns=(modified, modified))
    watcher = await scene.watcher()
    await scene.settled(watcher)
    other.write_text("a film")
    os.utime(other, ns=(modified, modified // 1000 * 1000))  # a share may not keep nanoseconds
    other.replace(path)
    assert await scene.settled(watcher) == ["a.mov"]
    assert await scene.settled(await scene.watcher()) == ["a.mov"]


async def test_what_is_known_need_not_settle_and_is_read_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.folder / "a.mov").write_text("a")
    await scene.settled(await scene.watcher())
    asked: list[str] = []

    def counted(files: Mapping[str, Sighting]) -> tuple[dict[str, Version], dict[str, str]]:
        asked.extend(files)
        return read(files)

    monkeypatch.setattr("holdfast.watch.versions.read", counted)
    watcher = await scene.watcher()
    for _ in range(3):
        await watcher.look()
        assert watcher._settling.waiting == 0
    assert asked == [str(scene.folder / "a.mov")]


async def test_a_file_that_changes_while_it_is_read_waits_until_it_stays_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scene.folder / "a.mov"
    path.write_text("a")

    def changing(files: Mapping[str, Sighting]) -> tuple[dict[str, Version], dict[str, str]]:
        path.write_text("longer")
        return read(files)

    watcher = await scene.watcher()
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.watch.versions.read", changing)
        assert await scene.settled(watcher) == []
        assert scene.notes == []
    await watcher.look()
    assert await scene.names() == []
    assert await scene.settled(watcher) == ["a.mov"]


async def test_a_file_that_cannot_be_read_is_told_of_once_and_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scene.folder / "a.mov").write_text("a")
    watcher = await scene.watcher()
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.watch.versions.Path.open", _broken)
        for _ in range(3):
            assert await scene.settled(watcher) == []
    assert scene.notes == [f"left alone: {scene.folder}/a.mov: Input/output error"]
    assert await scene.settled(watcher) == ["a.mov"]


def _broken(*_: object) -> None:
    raise OSError(5, "Input/output error")


async def test_each_task_gets_each_file(scene: Scene) -> None:
    (scene.folder / "a.mov").write_text("a")
    await scene.settled(await scene.watcher(task="one"))
    assert await scene.settled(await scene.watcher(task="two")) == ["a.mov", "a.mov"]


@pytest.mark.parametrize("operation", ["enqueue", "commit"])
async def test_the_row_and_the_job_stand_or_fall_together(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    (scene.folder / "a.mov").write_text("a")
    begin = scene.store.begin

    async def cut_off() -> Transaction:
        transaction = await begin()

        async def lost(*_: object, **__: object) -> None:
            await transaction.rollback()
            raise StoreUnavailable("here", 0.0, "cut off")

        monkeypatch.setattr(transaction, operation, lost)
        return transaction

    watcher = await scene.watcher()
    monkeypatch.setattr(scene.store, "begin", cut_off)
    with pytest.raises(StoreUnavailable):
        await scene.settled(watcher)
    monkeypatch.undo()
    await watcher.look()
    assert await scene.names() == ["a.mov"]


async def test_an_outage_of_the_store_is_told_of_once_and_outlived(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.folder / "a.mov").write_text("a")
    watcher = await scene.watcher(clock=time.monotonic, settle=0.1)
    begin, refused = scene.store.begin, 0

    async def down_for_a_while() -> Transaction:
        nonlocal refused
        refused += 1
        if refused in {2, 3}:  # not the first, which reads what was taken
            raise StoreUnavailable("here", 0.0, "no answer")
        return await begin()

    monkeypatch.setattr(scene.store, "begin", down_for_a_while)
    monkeypatch.setattr("holdfast.watch.watcher.OUTAGE", (0.01, 0.01))
    stop = asyncio.Event()

    async def taken() -> bool:
        return await scene.names() == ["a.mov"] and len(scene.notes) == 2

    async with asyncio.TaskGroup() as group:
        group.create_task(watcher.run(stop))
        await until(taken)
        (scene.folder / "b.mov").write_text("b")  # heard of, long before the next periodic look

        async def both() -> bool:
            return await scene.names() == ["a.mov", "b.mov"]

        await until(both)
        stop.set()
    assert [note.partition(".")[0] for note in scene.notes] == [
        "cannot use the database at here: no answer",
        "the store answers again",
    ]


async def test_files_wait_for_room_in_a_full_queue_and_that_is_told_of_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        path = scene.folder / f"{number}.mov"
        path.write_text("film")
        os.utime(path, (number, number))
    watcher = await scene.watcher(clock=time.monotonic, settle=0.1, caps={"default": 2})
    monkeypatch.setattr("holdfast.watch.watcher.FULL", (0.01, 0.01))
    stop = asyncio.Event()

    async def taken(count: int, notes: int) -> None:
        async def holds() -> bool:
            return (len(await scene.names()), len(scene.notes)) == (count, notes)

        await until(holds)
        assert sorted(await scene.names()) == [f"{number}.mov" for number in range(count)], "the oldest come first"

    async with asyncio.TaskGroup() as group:
        group.create_task(watcher.run(stop))
        await taken(2, notes=1)
        await end_all(scene.store)
        await taken(4, notes=1)
        await end_all(scene.store)
        await taken(5, notes=2)
        stop.set()
    assert [note.partition(".")[0] for note in scene.notes] == [
        "queue 'default' is full: it takes 2 jobs that wait",
        "there was room for all files",
    ]


async def end_all(store: Store) -> None:
    """Have all jobs canceled that wait."""
    page = await store.find(JobFilter(states=frozenset({State.READY})), limit=100)
    await store.cancel([job.id for job in page.jobs])


async def test_a_folder_that_goes_away_is_told_of_once_and_waited_for(scene: Scene) -> None:
    watcher = await scene.watcher()
    scene.folder.rmdir()
    await watcher.look()
    await watcher.look()
    scene.folder.mkdir()
    await watcher.look()
    assert [note.partition(":")[0] for note in scene.notes] == [
        f"cannot look at {scene.folder}",
        f"{scene.folder} is there again",
    ]


async def test_a_trouble_is_told_of_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.folder / "a.mov").write_text("a")
    watcher = await scene.watcher()
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.watch.files.os.access", lambda _path, _mode: False)
        assert await scene.settled(watcher) == []
    assert scene.notes == [f"left alone: {scene.folder}/a.mov: it may not be read"]
    assert await scene.settled(watcher) == ["a.mov"]


async def test_on_postgres_many_take_the_same_files_at_once_and_each_becomes_one_job(folder: Path, new_postgres: str) -> None:
    for number in range(200):
        (folder / f"{number}.mov").write_text("x")
    async with scene_at(new_postgres, folder) as scene, AsyncExitStack() as stack:
        stores = [connect(new_postgres) for _ in range(3)]
        for store in stores:
            stack.push_async_callback(store.close)
            await store.open()
        watchers = await asyncio.gather(*[scene.watcher(store=store) for store in stores])  # each makes the table
        await asyncio.gather(*[watcher.look() for watcher in watchers])
        scene.now += SETTLE
        await asyncio.gather(*[watcher.look() for watcher in watchers])
        names = await scene.names()
    assert (len(names), len(set(names))) == (200, 200)


async def test_files_that_moved_to_postgres_with_their_jobs_are_not_taken_again(scene: Scene, new_postgres: str) -> None:
    (scene.folder / "a.mov").write_text("a")
    await scene.settled(await scene.watcher())
    moving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "move", scene.url, new_postgres), stdout=PIPE, stderr=PIPE
    )
    _, errors = await moving.communicate()
    assert moving.returncode == 0, errors
    async with scene_at(new_postgres, scene.folder) as moved:
        assert await moved.settled(await moved.watcher()) == ["a.mov"]


def test_a_store_behind_a_server_is_refused() -> None:
    with pytest.raises(BadSetting, match="needs the database itself"):
        dialect_of("https://jobs.example.com")
