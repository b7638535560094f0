"""What a command says while it waits for somebody who does not answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast_media.cli import working
from holdfast_media.library.grid import Cell, CellState, Grid, Row

if TYPE_CHECKING:
    import pytest

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def held(name: str, *, heard: float, left: float, state: CellState = CellState.RUNNING) -> Cell:
    return Cell(
        job_id=name,
        state=state,
        worker=name,
        heard_at=NOW - timedelta(seconds=heard),
        held_until=NOW + timedelta(seconds=left),
    )


async def said(cells: tuple[Cell, ...], capsys: pytest.CaptureFixture[str], *, looks: int = 1) -> str:
    grid = Grid(version_id="v", state="processing", rows=(Row(name="360p", required=True, cells=cells),))

    async def read(_: object) -> Grid:
        return grid

    async def now() -> datetime:
        return NOW

    media: Any = SimpleNamespace(grid=read, library=SimpleNamespace(looking=SimpleNamespace(now=now)))
    version: Any = SimpleNamespace(video_id="video")
    told: set[str] = set()
    for _ in range(looks):
        await working._tell_of_silence(media, [version], told)
    return capsys.readouterr().err


async def test_how_long_a_silent_worker_is_waited_for_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    cells = (held("gone", heard=13, left=16.2), held("well", heard=4, left=26), Cell(job_id="later", state=CellState.WAITING))
    assert await said(cells, capsys, looks=3) == (
        "waiting up to 17 s for worker gone, which is silent: then another has its work\n"
    )


async def test_who_has_ended_or_has_lost_its_work_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert not await said((held("done", heard=13, left=16, state=CellState.DONE), held("late", heard=31, left=-1)), capsys)
