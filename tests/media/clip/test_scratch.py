"""Folders of jobs and attempts."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast import BadSetting
from holdfast_media.clip.scratch import own, scratch, sweep
from holdfast_media.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def test_each_user_has_a_scratch_folder_of_his_own() -> None:
    assert Settings().scratch.name == f"holdfast-media-{os.getuid()}"


def test_a_scratch_folder_is_nobody_elses_business(tmp_path: Path) -> None:
    root = tmp_path / "scratch"
    with scratch(root, uuid4(), 1):
        assert oct(root.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("level", ["root", "job"])
def test_a_folder_that_somebody_else_has_put_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """As anybody can in /tmp, before the first worker of this user comes."""
    job, everybodys = uuid4(), tmp_path / "tmp"
    theirs = everybodys / "scratch" / (str(job) if level == "job" else "")
    theirs.mkdir(parents=True)
    theirs.parent.chmod(0o1777)
    _give_away(theirs, monkeypatch)
    with pytest.raises(BadSetting, match="HOLDFAST_MEDIA_SCRATCH"), scratch(everybodys / "scratch", job, 1):
        pass
    assert list(theirs.iterdir()) == []


def test_a_link_that_somebody_else_has_put_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everybodys, mine = tmp_path / "tmp", tmp_path / "mine"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    mine.mkdir()
    (everybodys / "scratch").symlink_to(mine)
    _give_away(everybodys / "scratch", monkeypatch)
    with pytest.raises(BadSetting):
        own(everybodys / "scratch")


def test_a_folder_in_a_place_of_ones_own_may_be_anybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As volumes of containers are."""
    _give_away(tmp_path, monkeypatch)
    own(tmp_path)


def _give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() == 0:
        os.chown(path, 12_345, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12_345)


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
