"""What the pages show of videos: addresses of files, the words of a grid, sizes and lengths. Nothing here asks anybody."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from holdfast_media.library import QualityState, VersionState
from holdfast_media.library.grid import CellState
from holdfast_media.library.remaining import in_words, remaining
from holdfast_media.tasks import layout
from holdfast_media.words import length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from holdfast_media.library import Version, Video
    from holdfast_media.library.grid import Cell, Grid, Row

LOST: Final = "taken over"
"""The word of a cell whose worker is gone, or that another has begun before."""
WORDS: Final = (
    CellState.DONE,
    CellState.REDONE,
    CellState.RUNNING,
    LOST,
    CellState.WAITING,
    CellState.FAILED,
    CellState.SKIPPED,
)
"""What a cell may be, in the order of the legend."""
ICONS: Final = {
    CellState.DONE: "succeeded",
    CellState.REDONE: "retrying",
    CellState.RUNNING: "running",
    LOST: "retrying",
    CellState.WAITING: "pending",
    CellState.FAILED: "failed",
    CellState.SKIPPED: "skipped",
}
LOOKS: Final = {
    "pending": ("pending", "pending"),
    "processing": ("running", "running"),
    "ready": ("succeeded", "succeeded"),
    "failed": ("failed", "failed"),
    "canceled": ("canceled", "canceled"),
    "replaced": ("gone", "gone"),
}
"""The class and the icon of a state of a video, a version or a quality."""
MEANINGS: Final = {
    CellState.DONE: "encoded by the first who tried",
    CellState.REDONE: "done, and begun more than once",
    CellState.RUNNING: "being encoded",
    LOST: "its worker is gone: another one goes on, or will",
    CellState.WAITING: "nobody has begun yet",
    CellState.FAILED: "given up",
    CellState.SKIPPED: "not wanted any more",
}


LONGEST_ROW: Final = 30
"""Chunks that are shown one by one. Of a longer film, those beside each other that stand alike are shown as one: nobody looks
at thousands of cells, and every open page would be sent all of them each second."""
ALONE: Final = frozenset({CellState.RUNNING, LOST})
"""What is always shown by itself."""
SHARES: Final = 10
"""How finely the width of a cell that stands for several says how many they are."""


@dataclass(frozen=True, slots=True)
class ShownCell:
    """One cell of the grid; of a long film it may stand for several."""

    word: str
    kind: str
    """The word as the name of a class."""
    icon: str
    percent: int
    tip: str
    job_id: str
    """Empty: its job is gone."""
    first: int = 0
    """The number of the first chunk that it stands for, counted from one; 0: it stands for one job."""
    count: int = 1
    share: int = 0
    """How much of its row that is, in tenths."""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One quality of the grid."""

    name: str
    required: bool
    done: int
    chunks: int
    percent: float
    cells: tuple[ShownCell, ...]
    package: ShownCell | None


@dataclass(frozen=True, slots=True)
class ShownGrid:
    """The grid of a version, in words."""

    percent: float
    stages: tuple[tuple[str, ShownCell], ...]
    rows: tuple[ShownRow, ...]
    legend: tuple[tuple[str, str, str, str, int], ...]
    """Word, class, icon, meaning, and how many encodes it is."""
    chunks: int
    instead: str
    """What is said where there are no rows."""
    stretch: Stretch | None = None
    """What is shown of the chunks; `None`: all of them."""
    left: str = ""
    """In what time all chunks will be done, as far as can be said."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some chunks of a long film, shown one by one."""

    first: int
    last: int
    of: int

    @property
    def earlier(self) -> int:
        """Where the stretch before this one begins; 0: there is none."""
        return max(1, self.first - LONGEST_ROW) if self.first > 1 else 0

    @property
    def later(self) -> int:
        """Where the stretch after this one begins; 0: there is none."""
        return self.last + 1 if self.last < self.of else 0


def shown_grid(grid: Grid, version: Version, *, first: int = 0, now: datetime) -> ShownGrid:
    """Return a grid as the page draws it; `first`: a stretch of a long film from this chunk on, each by itself."""
    times = _times(version)
    chunks = max((len(row.cells) for row in grid.rows), default=0)
    stretch = Stretch(first, min(first + LONGEST_ROW - 1, chunks), chunks) if 0 < first <= chunks > LONGEST_ROW else None
    rows = tuple(
        ShownRow(
            name=row.name,
            required=row.required,
            done=sum(cell.state in (CellState.DONE, CellState.REDONE) for cell in row.cells),
            chunks=len(row.cells),
            percent=row.percent,
            cells=tuple(_shown_cells(row, times, stretch)),
            package=None if row.package is None else shown_cell(row.package, f"{row.name}, playlist"),
        )
        for row in grid.rows
    )
    counts = Counter(_word(cell) for row in grid.rows for cell in row.cells)
    stages = (("Look at the source", grid.prepare), ("Sound", grid.audio), ("Check and publish", grid.finalize))
    seconds = remaining(grid, version, now) if version.active else None
    return ShownGrid(
        percent=100.0 if grid.state in (VersionState.READY, VersionState.REPLACED) else min(grid.percent, 99.0),
        stages=tuple((name, shown_cell(cell, name)) for name, cell in stages if cell is not None),
        rows=rows,
        legend=tuple((word, _kind(word), ICONS[word], MEANINGS[word], counts[word]) for word in WORDS),
        chunks=sum(counts.values()),
        instead="" if rows else _instead(version),
        stretch=stretch,
        left="" if seconds is None else in_words(seconds),
    )


def _shown_cells(row: Row, times: Sequence[tuple[float, float]], stretch: Stretch | None) -> Iterator[ShownCell]:
    """Yield the cells of a row: all, those of a stretch, or of a long film one for each run that stands alike."""
    if stretch is not None or len(row.cells) <= LONGEST_ROW:
        begin, end = (0, len(row.cells)) if stretch is None else (stretch.first - 1, stretch.last)
        for at in range(begin, min(end, len(row.cells))):
            yield shown_cell(row.cells[at], f"{row.name}, chunk {at + 1}{_between(times, at, at)}")
        return
    for (word, _), run in groupby(enumerate(row.cells), key=_alike):
        (begin, one), *others = run
        last = begin + len(others)
        if not others:
            yield shown_cell(one, f"{row.name}, chunk {begin + 1}{_between(times, begin, begin)}")
            continue
        tip = f"{row.name}, chunks {begin + 1} to {last + 1}{_between(times, begin, last)}: {word}"
        count = last - begin + 1
        share = max(1, round(SHARES * count / len(row.cells)))
        yield ShownCell(word, _kind(word), ICONS[word], 0, tip, "", first=begin + 1, count=count, share=share)


def _alike(numbered: tuple[int, Cell]) -> tuple[str, int]:
    """Return what cells beside each other have in common that are shown as one."""
    number, cell = numbered
    word = _word(cell)
    return word, number if word in ALONE else -1


def _between(times: Sequence[tuple[float, float]], first: int, last: int) -> str:
    return f" ({length(times[first][0])} to {length(times[last][1])})" if last < len(times) else ""


def _word(cell: Cell) -> str:
    return LOST if cell.lost and not cell.ended else cell.state.value


def _instead(version: Version) -> str:
    """Return why a grid has no rows."""
    if version.plan is None:
        return "The chunks appear here as soon as the source was looked at." if version.active else ""
    if version.qualities:
        return "Nothing is encoded: every quality was there already."
    return "There is no picture: the sound is encoded in one piece."


def shown_cell(cell: Cell, name: str) -> ShownCell:
    """Return a cell with its word, and what is said when it is pointed at."""
    word = _word(cell)
    parts = [f"{name}: {word}"]
    if cell.state is CellState.RUNNING:
        parts[0] += f", {cell.percent:.0f} %"
    if cell.reused:
        parts[0] += ", it was there already"
    if cell.attempt:
        parts.append(f"attempt {cell.attempt}")
    if cell.worker:
        parts.append(f"worker {cell.worker}")
    if cell.message:
        parts.append(cell.message[:300])
    job_id = "" if cell.gone else cell.job_id
    return ShownCell(word, _kind(word), ICONS[word], round(cell.percent), "; ".join(parts), job_id)


def _kind(word: str) -> str:
    return word.replace(" ", "-")


def _times(version: Version) -> list[tuple[float, float]]:
    """Return when each chunk begins and ends, in seconds of the film."""
    chunks = ((version.plan or {}).get("plan") or {}).get("chunks") or []
    return [(one["start"], one["start"] + one["seconds"]) for one in chunks]


# --- addresses ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Playing:
    """What the player is given: keys of the storage, relative to the video's own."""

    version: int
    master: str
    qualities: tuple[tuple[str, str], ...]
    """Name and folder, the best first."""
    poster: str | None = None
    track: str | None = None
    captions: str | None = None
    picture: bool = True
    """Whether there is something to be seen."""
    sound: bool = True
    """Whether there is something to be heard."""


def playing(video: Video) -> Playing | None:
    """Return what of a video can be watched now; `None`: nothing yet."""
    version = video.plays or next((one for one in video.versions if one.active), None)
    if version is None:
        return None
    ready = tuple(
        (one.name, _within(video, one.result["folder"]).rstrip("/"))
        for one in version.qualities
        if one.state is QualityState.READY and one.result is not None
    )
    published = version.id == video.published
    if not published and not ready:
        return None
    poster, track = pictures_of(version)
    said = (version.result or {}).get("captions")
    # what is published has a list of its own that does not change; before that, there is the one that grows
    master = layout.version_master(video.id, version.number) if published else layout.stable_master(video.id)
    plan: dict[str, Any] = version.plan or {}
    return Playing(
        version.number,
        _within(video, master),
        ready,
        poster,
        track,
        captions=_within(video, said) if said else None,
        picture=bool(version.qualities),
        sound=bool(plan.get("audio_folder")),
    )


def pictures_of(version: Version) -> tuple[str | None, str | None]:
    """Return where the poster and the track of sprites of a version are, below its video."""
    plan: dict[str, Any] = version.plan or {}
    folder, pictures = plan.get("pictures_folder"), plan.get("pictures")
    if not folder or not pictures:
        return None, None
    below = folder.removeprefix(layout.home(version.video_id))
    return below + pictures["poster"], below + pictures["track"]


def poster_of(versions: Sequence[Version]) -> str | None:
    """Return the poster of the newest version that has one."""
    return next((found for one in versions if (found := pictures_of(one)[0]) is not None), None)


def _within(video: Video, key: str) -> str:
    return key.removeprefix(layout.home(video.id))


# --- figures --------------------------------------------------------------------------------------------------------------
