"""The grid as a terminal shows it."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console

from holdfast_media.cli import gridview
from holdfast_media.library import Asked, JobIds, Version, VersionState
from holdfast_media.library.grid import Cell, CellState, Grid, Row


def cell(state: CellState, percent: float = 0.0, *, lost: bool = False) -> Cell:
    return Cell(job_id="x", state=state, percent=percent, lost=lost)


def shown(grid: Grid, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(gridview.drawn("A film\x1b[31m", grid, width=width))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_each_chunk_is_a_mark_and_what_is_untrusted_stays_text() -> None:
    cells = (
        cell(CellState.DONE, 100),
        cell(CellState.REDONE, 100),
        cell(CellState.RUNNING, 50),
        cell(CellState.RUNNING, 99, lost=True),
        cell(CellState.WAITING),
        cell(CellState.FAILED),
        cell(CellState.SKIPPED),
    )
    rows = (Row(name="720p", required=True, cells=cells, package=cell(CellState.DONE)),)
    text = shown(Grid(version_id="v", state="processing", rows=rows, audio=cell(CellState.RUNNING, 100)))
    assert "██▅█·✗-" in text
    assert "2/7 encodes, 1 chunk redone, 1 failed" in text
    assert "plays" in text
    assert "\x1b" not in text
    assert "redone" in gridview.legend().plain


def test_a_chunk_that_was_begun_again_counts_once_for_all_its_qualities() -> None:
    made = (cell(CellState.REDONE, 100), cell(CellState.DONE, 100))
    rows = tuple(Row(name=name, required=True, cells=made) for name in ("720p", "360p"))
    text = shown(Grid(version_id="v", state="processing", rows=rows))
    assert "4/4 encodes, 1 chunk redone" in text


def test_a_film_with_many_chunks_fits_the_terminal_and_shows_the_worst() -> None:
    cells = tuple(cell(CellState.FAILED if number == 500 else CellState.DONE, 100) for number in range(1000))
    text = shown(Grid(version_id="v", state="processing", rows=(Row(name="1080p", required=True, cells=cells),)), width=60)
    assert max(len(line) for line in text.splitlines()) <= 60
    assert text.count("✗") == 1


def test_before_there_is_a_plan_it_says_what_is_going_on() -> None:
    assert "waiting for a worker" in shown(Grid(version_id="v", state="pending", prepare=cell(CellState.WAITING)))
    assert "looking at the source" in shown(Grid(version_id="v", state="processing", prepare=cell(CellState.RUNNING)))


def test_how_long_it_will_take_yet_is_said() -> None:
    now = datetime.now(UTC)
    runs = Cell(job_id="x", state=CellState.RUNNING, percent=50, claimed_at=now - timedelta(minutes=10))
    made = Version(
        id="v",
        video_id="7",
        number=1,
        state=VersionState.PROCESSING,
        asked=Asked(),
        jobs=JobIds(prepare="p"),
        created_at=now,
        updated_at=now,
    )
    grid = Grid(version_id="v", state="processing", rows=(Row(name="720p", required=True, cells=(runs,)),))
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(gridview.drawn("A film", grid, width=80, version=made))
    assert "A film  50 %  0/1 encode  about 10 min left" in console.file.getvalue()  # type: ignore[attr-defined]


def test_sound_alone_says_how_far_it_is() -> None:
    grid = Grid(
        version_id="v", state="processing", prepare=cell(CellState.DONE, 100), audio=cell(CellState.RUNNING, 40), rows=()
    )
    assert "40 %" in shown(grid)
    assert "sound alone: running" in shown(grid)
    assert gridview.account(grid) == "sound alone: running"
