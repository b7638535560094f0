"""Folders of jobs and attempts."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast_media.clip.scratch import scratch, sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_an_attempt_begins_empty_and_leaves_nothing(tmp_path: Path) -> None:
    job = uuid4()
    (tmp_path / str(job) / "1").mkdir(parents=True)
    (tmp_path / str(job) / "1" / "old").touch()
    with suppress(RuntimeError), scratch(tmp_path, job, 1) as place:
        assert list(place.folder.iterdir()) == []
        place.work("clip.mp4").write_bytes(b"half")
        raise RuntimeError
    assert not (tmp_path / str(job) / "1").exists()


def test_what_is_finished_outlives_its_attempt(tmp_path: Path) -> None:
    job = uuid4()
    with scratch(tmp_path, job, 1) as place:
        place.work("clip.mp4").write_bytes(b"whole")
        place.finish(place.work("clip.mp4"), "final.mp4")
        assert oct((tmp_path / str(job)).stat().st_mode & 0o777) == "0o700", "others have no business there"
    with scratch(tmp_path, job, 2) as place:
        assert (place.done / "final.mp4").read_bytes() == b"whole"
        place.forget()
    assert not (tmp_path / str(job)).exists()


def test_what_a_killed_attempt_was_working_on_is_found_newest_first(tmp_path: Path) -> None:
    job = uuid4()
    for number in (1, 2):
        folder = tmp_path / str(job) / str(number)
        folder.mkdir(parents=True)
        (folder / "source.part").write_text(str(number))
        os.utime(folder / "source.part", (number, number))
    with scratch(tmp_path, job, 3) as place:
        place.work("source.part").touch()
        assert [path.read_text() for path in place.left_by_others("source.part")] == ["2", "1"]


def test_a_stale_attempt_does_not_remove_what_the_holder_works_on(tmp_path: Path) -> None:
    job = uuid4()
    with scratch(tmp_path, job, 1) as stale, scratch(tmp_path, job, 2) as holder:
        holder.work("clip.mp4").touch()
        stale.forget()
        assert holder.work("clip.mp4").exists()
        holder.forget()
    assert not (tmp_path / str(job)).exists()


def test_only_old_folders_of_jobs_are_swept(tmp_path: Path) -> None:
    old, busy, young, own = (str(uuid4()) for _ in range(4))
    for name in (old, busy, young, own, "films", "0" * 36):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "file").touch()
    elsewhere = tmp_path / str(uuid4())
    elsewhere.symlink_to(tmp_path / "films")
    past = time.time() - 1000
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        if young not in path.parts:
            os.utime(path, (past, past), follow_symlinks=False)
    (tmp_path / busy / "1" / "new").touch()
    assert sweep(tmp_path, 500, but=own) == [old]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([busy, young, own, "films", "0" * 36, elsewhere.name])
    assert sweep(tmp_path / "nowhere", 500) == []
