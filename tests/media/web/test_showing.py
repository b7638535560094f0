"""What the pages say: words of cells, what can be played, which files belong to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast_media.library import Asked, JobIds, Quality, QualityState, SourceRef, Version, VersionState, Video, VideoState
from holdfast_media.library.grid import Cell, CellState, Grid, Row
from holdfast_media.web.files import allowed
from holdfast_media.web.showing import LOST, playing, shown_cell, shown_grid

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOME = "videos/7/"


def quality(name: str, state: QualityState = QualityState.READY) -> Quality:
    result = {"folder": f"{HOME}{name}-abc/"} if state is QualityState.READY else None
    return Quality(name=name, state=state, required=True, facts={}, result=result)


def version(number: int, state: VersionState, *qualities: Quality, **fields: Any) -> Version:
    plan = {
        "audio_folder": f"{HOME}audio-abc/",
        "pictures_folder": f"{HOME}pictures-abc/",
        "pictures": {"poster": "poster.jpg", "track": "sprites.vtt"},
        "plan": {"chunks": [{"start": 0, "seconds": 60.0}, {"start": 60, "seconds": 3.5}]},
    }
    return Version(
        id=f"version {number}",
        video_id="7",
        number=number,
        state=state,
        asked=Asked(),
        jobs=JobIds(prepare="p"),
        plan=plan,
        created_at=NOW,
        updated_at=NOW,
        qualities=qualities,
        **fields,
    )


def video(*versions: Version, published: str | None = None) -> Video:
    state = VideoState.PROCESSING if published is None else VideoState.READY
    return Video(
        id="7",
        title="x",
        state=state,
        source=SourceRef(path="/a"),
        published=published,
        created_at=NOW,
        updated_at=NOW,
        versions=versions,
    )


@pytest.mark.parametrize(
    ("cell", "word", "tip"),
    [
        (Cell(job_id="1", state=CellState.WAITING), "waiting", "x: waiting"),
        (
            Cell(job_id="1", state=CellState.RUNNING, percent=41.6, attempt=1, worker="w"),
            "running",
            "x: running, 42 %; attempt 1; worker w",
        ),
        (
            Cell(job_id="1", state=CellState.RUNNING, percent=5, attempt=2, worker="w", lost=True),
            LOST,
            "x: taken over, 5 %; attempt 2; worker w",
        ),
        (Cell(job_id="1", state=CellState.WAITING, attempt=2, lost=True), LOST, "x: taken over; attempt 2"),
        (Cell(job_id="1", state=CellState.REDONE, percent=100, attempt=2), "redone", "x: redone; attempt 2"),
        (Cell(job_id="1", state=CellState.DONE, attempt=1, reused=True), "done", "x: done, it was there already; attempt 1"),
        (
            Cell(job_id="1", state=CellState.FAILED, attempt=3, lost=True, message="E: <b>"),
            "failed",
            "x: failed; attempt 3; E: <b>",
        ),
        (Cell(job_id="1", state=CellState.SKIPPED), "skipped", "x: skipped"),
    ],
)
def test_a_cell_says_where_it_stands_who_has_it_and_why(cell: Cell, word: str, tip: str) -> None:
    shown = shown_cell(cell, "x")
    assert (shown.word, shown.tip) == (word, tip)


def test_a_grid_counts_every_chunk_and_is_whole_only_when_it_is_published() -> None:
    done, runs = (
        Cell(job_id="1", state=CellState.DONE, percent=100, attempt=1),
        Cell(job_id="2", state=CellState.RUNNING, percent=99.9, attempt=1),
    )
    row = Row(name="720p", required=True, cells=(done, runs))
    grid = shown_grid(Grid(version_id="1", state="processing", rows=(row,)), version(1, VersionState.PROCESSING), now=NOW)
    assert (grid.percent, grid.chunks) == (99.0, 2)
    assert {word: count for word, _, _, _, count in grid.legend if count} == {"done": 1, "running": 1}
    assert [cell.tip.partition(":")[0] for cell in grid.rows[0].cells] == ["720p, chunk 1 (0", "720p, chunk 2 (1"]
    assert grid.rows[0].cells[1].tip.startswith("720p, chunk 2 (1:00 to 1:04): running")
    assert shown_grid(Grid(version_id="1", state="ready", rows=(row,)), version(1, VersionState.READY), now=NOW).percent == 100


def test_a_version_that_is_being_made_says_how_long_it_will_take_yet() -> None:
    runs = Cell(job_id="2", state=CellState.RUNNING, percent=50, claimed_at=NOW - timedelta(minutes=10))
    grid = Grid(version_id="1", state="processing", rows=(Row(name="720p", required=True, cells=(runs, runs)),))
    assert shown_grid(grid, version(1, VersionState.PROCESSING), now=NOW).left == "about 10 min left"
    assert shown_grid(grid, version(1, VersionState.FAILED), now=NOW).left == ""


def of_hours(chunks: int, *states: tuple[CellState, int]) -> Grid:
    """Return a grid of so many chunks that stand like this, one after the other."""
    cells = [Cell(job_id=str(len(states)), state=state, attempt=1) for state, count in states for _ in range(count)]
    assert len(cells) == chunks
    return Grid(version_id="1", state="processing", rows=(Row(name="720p", required=True, cells=tuple(cells)),))


def test_chunks_of_a_long_film_that_stand_alike_are_one_cell() -> None:
    done, runs, waits = CellState.DONE, CellState.RUNNING, CellState.WAITING
    grid = of_hours(180, (done, 60), (CellState.REDONE, 1), (done, 1), (runs, 2), (waits, 116))
    making = version(1, VersionState.PROCESSING)
    shown = shown_grid(grid, making, now=NOW)
    (row,) = shown.rows
    assert [(cell.word, cell.first, cell.count, cell.share) for cell in row.cells] == [
        ("done", 1, 60, 3),
        ("redone", 0, 1, 0),
        ("done", 0, 1, 0),
        ("running", 0, 1, 0),
        ("running", 0, 1, 0),
        ("waiting", 65, 116, 6),
    ]
    assert row.cells[0].tip == "720p, chunks 1 to 60: done"
    assert (row.done, row.chunks, shown.stretch) == (62, 180, None)
    assert {word: count for word, _, _, _, count in shown.legend if count} == {
        "done": 61,
        "redone": 1,
        "running": 2,
        "waiting": 116,
    }


def test_a_stretch_of_a_long_film_is_shown_chunk_by_chunk() -> None:
    grid, making = of_hours(70, (CellState.DONE, 70)), version(1, VersionState.PROCESSING)
    shown = shown_grid(grid, making, first=31, now=NOW)
    assert [cell.tip.partition(":")[0] for cell in shown.rows[0].cells] == [f"720p, chunk {number}" for number in range(31, 61)]
    assert shown.stretch is not None
    assert (shown.stretch.earlier, shown.stretch.later) == (1, 61)
    last = shown_grid(grid, making, first=61, now=NOW).stretch
    assert last is not None
    assert (last.last, last.earlier, last.later) == (70, 31, 0)
    for beyond in (0, 71, 9_999_999):
        assert shown_grid(grid, making, first=beyond, now=NOW).stretch is None
    short = of_hours(30, (CellState.DONE, 30))
    assert len(shown_grid(short, making, first=3, now=NOW).rows[0].cells) == 30, "a short film is shown whole"


def test_the_first_quality_that_is_there_plays_from_the_list_that_grows() -> None:
    waiting = version(1, VersionState.PROCESSING, quality("720p", QualityState.PENDING), quality("360p", QualityState.PENDING))
    assert playing(video(waiting)) is None
    first = version(1, VersionState.PROCESSING, quality("720p", QualityState.PENDING), quality("360p"))
    found = playing(video(first))
    assert found is not None
    assert (found.master, found.qualities) == ("master.m3u8", (("360p", "360p-abc"),))
    assert (found.poster, found.track) == ("pictures-abc/poster.jpg", "pictures-abc/sprites.vtt")


def test_what_is_published_plays_while_another_version_is_made() -> None:
    old = version(1, VersionState.READY, quality("720p"), result={"captions": f"{HOME}captions-1.vtt"})
    new = version(2, VersionState.PROCESSING, quality("720p"))
    found = playing(video(new, old, published=old.id))
    assert found is not None
    assert (found.version, found.master, found.captions) == (1, "v1/master.m3u8", "captions-1.vtt")


def test_only_what_can_be_watched_may_be_had() -> None:
    ready = version(3, VersionState.READY, quality("720p"))
    making = version(4, VersionState.PROCESSING, quality("360p"), quality("240p", QualityState.PENDING))
    broken = version(2, VersionState.FAILED, quality("480p"))
    canceled = version(1, VersionState.CANCELED, quality("144p"))
    may = allowed(video(making, ready, broken, canceled, published=ready.id))
    yes = (
        "720p-abc/index.m3u8",
        "360p-abc/init.mp4",
        "audio-abc/0001.m4s",
        "pictures-abc/poster.jpg",
        "master.m3u8",
        "v3/master.m3u8",
    )
    no = (
        "240p-abc/index.m3u8",
        "480p-abc/index.m3u8",
        "144p-abc/a.m4s",
        "720p-abc/package.json",
        "720p-abc/x/a.m4s",
        "v2/master.m3u8",
    )
    assert [name for name in yes if not may.covers(f"{HOME}{name}")] == []
    assert [name for name in no if may.covers(f"{HOME}{name}")] == []
    assert not allowed(None).covers(f"{HOME}master.m3u8")
