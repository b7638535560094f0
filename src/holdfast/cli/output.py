"""What goes to standard output: tables for people, tab-separated lines for pipes, JSON for programs.

A table is drawn only on a terminal. In a pipe the same cells are written untruncated, one line per row, separated by tabs and
without a header, so that `cut`, `sort` and `wc -l` mean what they say. `--json` has stable keys, ISO times and exact numbers.
"""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.spans import ago

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
INTERRUPTED: Final = 130

WIDEST: Final = 40
"""Characters up to which a column that does not shrink stays whole."""
NARROWEST: Final = 8
"""Characters that a column keeps which shrinks."""
READABLE: Final = 18
"""Characters below which a column that shrinks says too little: others make room before."""
SHORT: Final = (8, 6)
"""Digits of a short id: those of its beginning and those of its end."""
GAP: Final = 2
"""Characters between two columns."""

STYLES: Final = {
    "ready": "cyan",
    "scheduled": "blue",
    "blocked": "magenta",
    "running": "yellow",
    "succeeded": "green",
    "failed": "bold red",
    "canceled": "dim",
    "paused": "bold yellow",
    "throttled": "bold yellow",
    "retrying": "yellow",
    "expired": "bold red",
    "idle": "green",
    "active": "green",
    "busy": "yellow",
    "offline": "dim",
    "disabled": "bold yellow",
    "ok": "green",
    "warn": "bold yellow",
    "fail": "bold red",
}
"""How the words for states look; the word itself is always there too."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, and how it behaves when room is short."""

    name: str
    right: bool = False
    shrinks: bool = False
    """Is cut when room is short; the others stay whole (half a number is of no use)."""
    is_id: bool = False
    """Is written in its short form when room is short, which commands take too."""
    goes: bool = False
    """Is left out when room is short even then."""
    wraps: bool = False
    """Goes on in the next line instead of being cut."""


def interactive() -> bool:
    """Tell whether a person looks at standard output."""
    return sys.stdout.isatty()


def console() -> Console:
    """Return rich's console on standard output; loaded only when something is drawn."""
    from rich.console import Console  # noqa: PLC0415  takes longer to load than most commands take to run

    return Console(highlight=False)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Draw a table on a terminal; write tab-separated lines elsewhere. `empty` is said, on a terminal, when there are none."""
    lines = [[cell(value) for value in row] for row in rows]
    if not interactive():
        for line in lines:
            print("\t".join(line))
    elif lines:
        console().print(table(columns, lines))
    else:
        print(empty)


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str | None = None) -> RenderableType:
    """Return a table for a terminal."""
    from rich.table import Table  # noqa: PLC0415  as in `console`

    columns, lines = fitted(columns, list(rows), console().width)
    widths = _widths(columns, lines)
    room = max(NARROWEST, _room(columns, widths, console().width))
    drawn = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column, width in zip(columns, widths, strict=True):
        drawn.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            overflow="fold",
            min_width=None if column.shrinks or column.wraps else min(width, WIDEST),
        )
    for line in lines:
        cells = (cut(text, room) if column.shrinks else text for column, text in zip(columns, line, strict=True))
        drawn.add_row(*map(styled, cells))
    return drawn


def fitted(columns: Sequence[Column], lines: list[Sequence[str]], width: int) -> tuple[Sequence[Column], list[Sequence[str]]]:
    """Return the columns and cells that make room for what shrinks: ids become short, then columns go, the first ones first."""
    needed = sum(min(READABLE, size) for column, size in zip(columns, _widths(columns, lines), strict=True) if column.shrinks)

    def fits() -> bool:
        return _room(columns, _widths(columns, lines), width) >= needed

    if not fits():
        ids = {at for at, column in enumerate(columns) if column.is_id}
        lines = [[short_id(text) if at in ids else text for at, text in enumerate(line)] for line in lines]
    while not fits() and (gone := next((at for at, column in enumerate(columns) if column.goes), None)) is not None:
        columns = [column for at, column in enumerate(columns) if at != gone]
        lines = [[text for at, text in enumerate(line) if at != gone] for line in lines]
    return columns, lines


def short_id(text: str) -> str:
    """Return an id as it is written where room is short: its beginning, which is a time, and its end, which is random."""
    digits = text.replace("-", "")
    return f"{digits[: SHORT[0]]}..{digits[-SHORT[1] :]}" if len(digits) == 32 else text  # noqa: PLR2004  a UUID


def _widths(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len  # noqa: PLC0415  as in `console`

    return [max(cell_len(text) for text in (column.name, *(line[at] for line in lines))) for at, column in enumerate(columns)]


def _room(columns: Sequence[Column], widths: Sequence[int], width: int) -> int:
    """Return what the columns that stay whole leave to those that shrink."""
    taken = sum(size for column, size in zip(columns, widths, strict=True) if not column.shrinks and not column.wraps)
    return width - taken - GAP * (len(columns) - 1)


def cut(text: str, width: int) -> str:
    """Return what fits, with a sign where something is missing."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  as in `console`

    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def styled(text: str) -> RenderableType:
    """Return a text in the style of the state it names. Never read as markup: it may come from anyone."""
    from rich.text import Text  # noqa: PLC0415  as in `console`

    return Text(text, style=STYLES.get(text, ""))


def print_json(value: object) -> None:
    """Write one JSON document."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def note(text: str) -> None:
    """Say something that is not the result, on standard error."""
    print(text, file=sys.stderr)


# --- cells --------------------------------------------------------------------------------------------------------------


def cell(value: object) -> str:
    """Return a value as one line of harmless text: control characters in what jobs hold must not reach a terminal."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return moment(value)
    return harmless(str(value))


def harmless(text: str, *, keep: str = "") -> str:
    """Return a text with control characters written out, but for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        character if character in keep or unicodedata.category(character)[0] != "C" else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def moment(at: datetime) -> str:
    """Return a time: local and to the second for people, ISO in UTC elsewhere."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if interactive() else at.astimezone(UTC).isoformat()


def when(at: datetime | None, now: datetime) -> str:
    """Return a time as people like it in a list, as its age; elsewhere the time itself."""
    if at is None:
        return "-"
    return ago(at, now) if interactive() else moment(at)


def raw(text: str | None) -> msgspec.Raw | None:
    """Return stored JSON as it is, so that numbers stay exact; what is no JSON becomes a string."""
    if text is None:
        return None
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return msgspec.Raw(msgspec.json.encode(text))
    return msgspec.Raw(text.encode())


def fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Return a struct by field name, also where its stored form is an array."""
    return {name: _plain(getattr(struct, name)) for name in struct.__struct_fields__}


def _plain(value: object) -> object:
    return fields(value) if isinstance(value, msgspec.Struct) else value
