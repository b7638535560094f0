"""Which files count."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.watch.files import Rules, Scan, partial, scan

if TYPE_CHECKING:
    import pytest


def names(found: Scan) -> list[str]:
    return sorted(Path(path).name for path in found.files)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(name)


def test_names_of_unfinished_files_are_left_alone(folder: Path) -> None:
    put(folder, "a.mov", "b.mov.part", "c.tmp", "D.TMP", ".e.mov", "f.crdownload", "g.mov~", "tmp.mov")
    assert names(scan(folder, Rules())) == ["a.mov", "tmp.mov"]
    assert partial(".hidden")


def test_patterns_are_those_of_a_shell_and_any_may_match(folder: Path) -> None:
    put(folder, "a.mov", "b.MOV", "c.mp4", "d.txt", "[1].mov")
    assert names(scan(folder, Rules(patterns=("*.mov", "*.mp4")))) == ["[1].mov", "a.mov", "c.mp4"]
    assert names(scan(folder, Rules(patterns=("?.txt",)))) == ["d.txt"]


def test_folders_below_are_looked_at_when_that_is_asked_for(folder: Path) -> None:
    put(folder, "a.mov", "one/b.mov", "one/two/c.mov", ".hidden/d.mov")
    assert names(scan(folder, Rules())) == ["a.mov"]
    assert names(scan(folder, Rules(recursive=True))) == ["a.mov", "b.mov", "c.mov"]


def test_links_are_followed_only_when_that_is_asked_for_and_never_in_circles(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.mov", "one/b.mov")
    put(tmp_path, "secret.mov", "outside/c.mov")
    (folder / "link.mov").symlink_to(tmp_path / "secret.mov")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "one" / "back").symlink_to(folder)
    (folder / "gone.mov").symlink_to(tmp_path / "nowhere")
    (folder / "again.mov").symlink_to(folder / "a.mov")
    (folder / "once_more").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "circle").symlink_to(tmp_path / "outside")
    assert names(scan(folder, Rules(recursive=True))) == ["a.mov", "b.mov"]
    found = scan(folder, Rules(recursive=True, follow_links=True))
    assert names(found) == ["a.mov", "b.mov", "c.mov", "link.mov"]


def test_what_is_no_file_is_passed_over(folder: Path) -> None:
    put(folder, "a.mov")
    os.mkfifo(folder / "pipe.mov")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket.mov"))
        assert names(scan(folder, Rules())) == ["a.mov"]


def test_a_file_that_vanishes_during_the_look_does_no_harm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "a.mov", "b.mov")
    scandir = os.scandir

    def scanned_late(path: str) -> list[os.DirEntry[str]]:
        entries = sorted(scandir(path), key=lambda entry: entry.name)
        (folder / "a.mov").unlink()
        return entries

    monkeypatch.setattr("holdfast.watch.files.os.scandir", scanned_late)
    found = scan(folder, Rules())
    assert names(found) == ["b.mov"]
    assert found.troubles == {}


def test_what_may_not_be_read_is_told_of_and_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "a.mov", "b.mov", "closed/c.mov")
    scandir, closed = os.scandir, str(folder / "closed")

    def refused(path: str) -> object:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr("holdfast.watch.files.os.scandir", refused)  # who runs the tests may be allowed everything
    monkeypatch.setattr("holdfast.watch.files.os.access", lambda path, _mode: not path.endswith("a.mov"))
    found = scan(folder, Rules(recursive=True))
    assert names(found) == ["b.mov"]
    assert found.troubles == {str(folder / "a.mov"): "it may not be read", closed: "Permission denied"}


def test_a_name_that_no_store_can_keep_is_told_of(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.mov")).write_text("x")
    found = scan(folder, Rules())
    assert (found.files, len(found.troubles)) == ({}, 1)
    assert "cannot be kept" in next(iter(found.troubles.values()))


def test_a_folder_that_is_gone_is_said_to_be(folder: Path) -> None:
    folder.rmdir()
    assert scan(folder, Rules()).missing == "No such file or directory"
