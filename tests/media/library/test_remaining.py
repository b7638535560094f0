"""How long a film will take yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast_media.library import Asked, JobIds, Version, VersionState
from holdfast_media.library.grid import Cell, CellState, Grid, Row
from holdfast_media.library.remaining import in_words, remaining

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SIZES = {"720p": (1280, 720), "360p": (640, 360)}
WAITS = Cell(job_id="w", state=CellState.WAITING)


def done(seconds: float, **fields: Any) -> Cell:
    began = NOW - timedelta(hours=5)  # nobody has worked since: that says nothing of the chunks that are left
    ended = began + timedelta(seconds=seconds)
    return Cell(job_id="d", state=CellState.DONE, percent=100, claimed_at=began, finished_at=ended, **fields)


def runs(percent: float, seconds: float) -> Cell:
    return Cell(job_id="r", state=CellState.RUNNING, percent=percent, claimed_at=NOW - timedelta(seconds=seconds))


def version() -> Version:
    renditions = [{"name": name, "width": width, "height": height} for name, (width, height) in SIZES.items()]
    return Version(
        id="v",
        video_id="7",
        number=1,
        state=VersionState.PROCESSING,
        asked=Asked(),
        jobs=JobIds(prepare="p"),
        plan={"plan": {"renditions": renditions}},
        created_at=NOW,
        updated_at=NOW,
    )


def left(*rows: tuple[Cell, ...], together: bool = False, audio: Cell | None = None) -> float | None:
    made = tuple(Row(name=name, required=True, cells=cells) for name, cells in zip(SIZES, rows, strict=False))
    grid = Grid(version_id="v", state="processing", rows=made, together=together, audio=audio)
    return remaining(grid, version(), NOW)


def test_what_is_left_is_shared_by_those_who_are_at_it() -> None:
    row = (done(100), done(140), runs(50, 60), runs(25, 30), WAITS, WAITS)
    assert left(row) == pytest.approx(120 * (0.5 + 0.75 + 1 + 1) / 2)


def test_the_last_chunk_takes_as_long_as_it_takes_however_many_others_run() -> None:
    assert left((done(100), runs(90, 90), runs(10, 10))) == pytest.approx(90)


def test_one_that_runs_tells_before_any_is_done() -> None:
    assert left((runs(20, 30), WAITS)) == pytest.approx(120 + 150)
    assert left((runs(1, 30), WAITS)) is None, "too soon to say"
    assert left((runs(20, -3), WAITS)) == 0, "a clock that is off"


def test_what_was_there_already_says_nothing_of_what_is_left() -> None:
    assert left((done(0.1, reused=True), done(100), runs(0, 0))) == pytest.approx(100)
    assert left((done(0.1, reused=True), runs(0, 0))) is None


def test_a_quality_that_has_not_begun_takes_as_long_as_its_size_says() -> None:
    assert left((WAITS, WAITS), (done(10), runs(50, 5))) == pytest.approx(5 + 2 * 20)


def test_qualities_that_come_along_cost_nothing_of_their_own() -> None:
    along = done(0.1)
    assert left((done(60), runs(50, 30), WAITS), (along, WAITS, WAITS), together=True) == pytest.approx(90)


def test_where_nobody_works_nobody_can_say() -> None:
    assert left((done(100), WAITS)) is None
    assert left((done(100), done(100))) is None
    assert left() is None
    assert left(audio=WAITS) is None


def test_sound_alone_tells_by_how_far_it_is() -> None:
    assert left(audio=runs(25, 10)) == pytest.approx(30)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "less than a minute left"),
        (59.9, "less than a minute left"),
        (60, "about 1 min left"),
        (59 * 60, "about 59 min left"),
        (59.8 * 60, "about 1 h left"),
        (62 * 60, "about 1 h left"),
        (3600 + 8 * 60, "about 1 h 10 min left"),
        (3 * 3600 - 60, "about 3 h left"),
        (26 * 3600, "about 26 h left"),
    ],
)
def test_it_is_said_no_finer_than_it_can_be_known(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
