"""The demonstration with a film, as a person runs it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from holdfast_media.cli.demo import Screen, verdict, where_to_watch
from holdfast_media.demo.account import Account
from holdfast_media.demo.course import victim
from holdfast_media.demo.place import Place, fitting, made_place
from holdfast_media.library.grid import Cell, CellState, Grid, Row

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "holdfast", "media", "demo", *options]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def test_a_killed_worker_costs_one_chunk_and_no_frame(tmp_path: Path) -> None:
    ended = demo(tmp_path, "--json", "--keep", "kept")
    assert ended.returncode == 0, ended.stderr
    account = json.loads(ended.stdout)
    assert account["adds_up"]
    assert account["killed"] in {"ada", "bob"}
    assert account["killed_at"] >= 40
    assert {account["killed"], account["taken_over_by"]} == {"ada", "bob"}
    assert account["lost"] == 0
    assert account["redone"] <= 1, "none, where the kill came before the chunk was begun or when it had just been stored"
    assert account["encodes"] == 3 * account["chunks"]
    frames = account["source_frames"]
    assert 12 * 30 <= frames <= 40 * 30
    assert account["frames"] == {"360p": frames, "240p": frames, "144p": frames}
    assert (tmp_path / "kept" / "film.mp4").exists()
    assert Place(tmp_path / "kept").master(account["video"]).exists()


def test_a_slow_machine_gets_a_shorter_film_of_whole_chunks() -> None:
    assert fitting(0.5) == fitting(1.0) == 40
    assert fitting(3.5) == 28
    assert fitting(60.0) == 12


def test_the_account_is_told_whole() -> None:
    account = Account(
        video="0123",
        seconds=41.2,
        killed="ada",
        chunks=10,
        done=10,
        redone=1,
        encodes=20,
        source_frames=1200,
        frames={"360p": 1200, "240p": 1200},
        killed_at=40.2,
        taken_over_after=4.5,
        taken_over_by="bob",
    )
    assert verdict(account).splitlines() == [
        "10 chunks, 1 redone, 0 lost, frames 1200/1200",
        "each chunk in 2 qualities: 20 encodes",
        "ada was killed in the midst of a chunk; bob took it over 4.5 s later",
        "decoded: 360p 1200, 240p 1200 of 1200 frames",
        "it adds up, in 41.2 s",
    ]


def test_on_a_terminal_the_grid_says_who_is_at_what_and_stays_at_the_end() -> None:
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system=None)
    dead = Cell(job_id="d", state=CellState.RUNNING, percent=40, worker="ada", lost=True)
    bob = Cell(job_id="b", state=CellState.RUNNING, percent=40, worker="bob")
    with Live(console=console, auto_refresh=False, transient=True) as live:
        screen = Screen(console, live)
        screen.show(grid(2, dead, bob, waiting=1), "ada")
        seen = console.file.getvalue()  # type: ignore[attr-defined]
        assert "ada  ✗ killed" in seen
        assert "bob  360p, chunk 4 of 5" in seen
        screen.show(grid(5, waiting=0), "ada")
        screen.hear(
            Account(video="v", seconds=9, killed="ada", chunks=5, done=5, redone=1, encodes=5, source_frames=9, frames={"a": 9})
        )
    end = console.file.getvalue().rpartition("The demonstration")[2]  # type: ignore[attr-defined]
    assert "360p █████ 100 %" in end
    assert "5 chunks, 1 redone, 0 lost, frames 9/9" in end


def test_a_film_that_is_too_short_is_refused(tmp_path: Path) -> None:
    ended = demo(tmp_path, "--seconds", "3")
    assert ended.returncode == 2
    assert "--seconds must be 12 or more" in ended.stderr


def grid(done: int, *running: Cell, waiting: int) -> Grid:
    cells = [Cell(job_id=f"done {number}", state=CellState.DONE, percent=100) for number in range(done)]
    cells += [*running, *(Cell(job_id=f"waiting {number}", state=CellState.WAITING) for number in range(waiting))]
    return Grid(version_id="v", state="processing", rows=(Row(name="360p", required=True, cells=tuple(cells)),))


def test_a_worker_is_killed_at_two_fifths_whatever_its_encoder_has_told_so_far() -> None:
    ada = Cell(job_id="a", state=CellState.RUNNING, percent=0, worker="ada")
    bob = Cell(job_id="b", state=CellState.RUNNING, percent=0, worker="bob")
    assert victim(grid(11, ada, bob, waiting=17), {"a": 0.0, "b": 0.0}, now=5.0) is None, "not before its time"
    assert victim(grid(12, ada, bob, waiting=16), {"a": 4.0, "b": 4.9}, now=5.0) is ada, "the one in the midst of it"
    assert victim(grid(12, ada, bob, waiting=16), {"a": 4.9, "b": 5.0}, now=5.0) is None, "nobody is"
    assert victim(grid(15, ada, bob, waiting=13), {"a": 4.9, "b": 5.0}, now=5.0) is ada, "before it is too late, anybody"


def test_it_says_where_the_result_is_and_leaves_it_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    account = Account(
        video="0123", seconds=1, killed="ada", chunks=1, done=1, redone=0, encodes=1, source_frames=1, frames={"360p": 1}
    )
    place = Place(tmp_path / "a place")
    said = where_to_watch(place, account)
    assert f"media serve --storage '{tmp_path}/a place/media' --workers 0 --open" in said
    assert f"mpv '{tmp_path}/a place/media/videos/0123/master.m3u8'" in said
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///other.db")
    assert f"--url 'sqlite:///{tmp_path}/a place/media/.holdfast.db'" in where_to_watch(place, account)
    with made_place(None) as place:
        pass
    assert place.folder.is_dir()
    place.folder.rmdir()
    with made_place(None, leave=False) as place:
        pass
    assert not place.folder.exists()
