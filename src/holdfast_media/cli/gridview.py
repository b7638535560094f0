"""The quality x chunk grid on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast_media.cli.common import counted, harmless
from holdfast_media.library.grid import CellState
from holdfast_media.library.remaining import in_words, remaining

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from holdfast_media.library import Version
    from holdfast_media.library.grid import Cell, Grid, Row

FILLING: Final = "▁▂▃▄▅▆▇█"
LOOKS: Final = {
    CellState.WAITING: ("·", "dim"),
    CellState.RUNNING: ("▁", "cyan"),
    CellState.DONE: ("█", "green"),
    CellState.REDONE: ("█", "yellow"),
    CellState.FAILED: ("✗", "bold red"),
    CellState.SKIPPED: ("-", "dim"),
}
LOST: Final = ("▄", "bold yellow")
"""Whose worker died, and nobody has it yet: a dot in amber would hardly be seen."""
ORDER: Final = (
    CellState.FAILED,
    CellState.RUNNING,
    CellState.WAITING,
    CellState.REDONE,
    CellState.SKIPPED,
    CellState.DONE,
)
"""What a mark shows that stands for several cells: the first of these that one of them is."""
LEGEND: Final = "· waiting  ▄ running  █ done  "


def drawn(title: str, grid: Grid, *, width: int, version: Version | None = None) -> RenderableType:
    """Return the view of one video; of which `version` it is says how long it will take yet."""
    head = Text(f"{harmless(title)}  {grid.percent:.0f} %  {_encodes(grid)}", style="bold")
    if version is not None and (left := _left(grid, version)):
        head.append(f"  {left}", style="not bold dim")
    lines: list[RenderableType] = [head]
    if not grid.rows:
        lines.append(Text(f"  {_doing(grid)}", style="dim"))
        return Group(*lines)
    table = Table.grid(padding=(0, 1))
    for row in grid.rows:
        table.add_row(
            Text(f"  {harmless(row.name)}"),
            _cells(row.cells, max(10, width - 30)),
            Text(f"{row.percent:3.0f} %"),
            _package(row),
        )
    lines.append(table)
    if grid.audio is not None:
        mark, style = _mark(grid.audio)
        lines.append(Text.assemble("  sound ", (mark, style)))
    return Group(*lines)


def legend() -> Text:
    """Return what the marks mean."""
    text = Text(LEGEND, style="dim")
    text.append("▄ its worker died  ", style=LOST[1])
    text.append("█ redone", style="yellow")
    text.append("  ✗ failed", style="red")
    return text


def account(grid: Grid) -> str:
    """Return the same in words: it changes when more is done, and not with every percent."""
    rows = [
        f"{row.name} {sum(cell.state in (CellState.DONE, CellState.REDONE) for cell in row.cells)}/{len(row.cells)}"
        for row in grid.rows
    ]
    return f"{_encodes(grid)} ({', '.join(rows)})" if rows else _encodes(grid) or _doing(grid)


def _left(grid: Grid, version: Version) -> str:
    """Return in what time all chunks of a version will be done, in words; empty: nobody can say."""
    seconds = remaining(grid, version, datetime.now(UTC)) if version.active else None
    return "" if seconds is None else in_words(seconds)


def _encodes(grid: Grid) -> str:
    done = grid.count(CellState.DONE, CellState.REDONE)
    redone, failed = grid.redone, grid.count(CellState.FAILED)
    parts = [f"{done}/{counted(len(grid.cells), 'encode')}"] if grid.cells else []
    if redone:
        parts.append(f"{counted(redone, 'chunk')} redone")
    if failed:
        parts.append(f"{failed} failed")
    return ", ".join(parts)


def _doing(grid: Grid) -> str:
    if grid.prepare is None or grid.prepare.state is CellState.WAITING:
        return "waiting for a worker"
    if grid.prepare.state is CellState.RUNNING:
        return "looking at the source"
    if grid.prepare.state in (CellState.DONE, CellState.REDONE) and grid.audio is not None:
        return f"sound alone: {grid.audio.state}"
    return grid.prepare.message or grid.prepare.state


def _cells(cells: Sequence[Cell], room: int) -> Text:
    """Return a mark for each cell; where there is not room for all, each mark stands for several."""
    text = Text()
    share = -(-len(cells) // room)
    for start in range(0, len(cells), share):
        some = cells[start : start + share]
        worst = min(some, key=lambda cell: ORDER.index(cell.state))
        text.append(*_mark(worst))
    return text


def _mark(cell: Cell) -> tuple[str, str]:
    lost = cell.lost and not cell.ended
    mark, style = LOST if lost else LOOKS[cell.state]
    if cell.state is CellState.RUNNING:
        mark = FILLING[min(len(FILLING) - 1, int(cell.percent / 100 * len(FILLING)))]
    return mark, style


def _package(row: Row) -> Text:
    if row.package is None:
        return Text("")
    if row.package.state in (CellState.DONE, CellState.REDONE):
        return Text("plays", style="green")
    return Text("failed", style="bold red") if row.package.state is CellState.FAILED else Text("")
