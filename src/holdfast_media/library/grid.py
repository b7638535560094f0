"""The grid of a version: a cell for each quality and chunk, from the jobs themselves."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import State
from holdfast_media.library.states import QualityState, VersionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast import JobView
    from holdfast_media.library.looking import Looking
    from holdfast_media.library.records import Version


class CellState(StrEnum):
    """Where a cell stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    REDONE = "redone"
    """Done, and begun more than once for it: a worker died or failed on the way, or what it had made was lost."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not done, because it is not wanted any more."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One job: where it encodes, one chunk in one quality."""

    job_id: str
    state: CellState
    percent: float = 0.0
    attempt: int = 0
    worker: str | None = None
    lost: bool = False
    """Its worker has been silent for too long, or an attempt before has failed, as by a worker's death: another takes over."""
    reused: bool = False
    """Nothing had to be done: what it would have made was there."""
    heard_at: datetime | None = None
    """When its worker was last heard of, while it runs."""
    held_until: datetime | None = None
    """When another worker may have it, unless that one is heard of again."""
    message: str = ""
    gone: bool = False
    """Its job is not in the store any more: pruned, or deleted."""
    claimed_at: datetime | None = None
    """When its last attempt began."""
    finished_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether it stands where it stays."""
        return self.state not in (CellState.WAITING, CellState.RUNNING)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One quality: its chunks in their order, and what makes a playlist of them."""

    name: str
    required: bool
    cells: tuple[Cell, ...]
    package: Cell | None = None

    @property
    def percent(self) -> float:
        """How far it is."""
        return sum(cell.percent for cell in self.cells) / len(self.cells) if self.cells else 0.0


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs of a version."""

    version_id: str
    state: str
    rows: tuple[Row, ...] = ()
    prepare: Cell | None = None
    audio: Cell | None = None
    finalize: Cell | None = None
    together: bool = False
    """Whether the chunks of the first quality are encoded in all qualities at once."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The encodes: each chunk in each quality."""
        return tuple(cell for row in self.rows for cell in row.cells)

    @property
    def percent(self) -> float:
        """How much of the work is done; encodes are nearly all of it."""
        cells = self.cells or tuple(cell for cell in (self.audio,) if cell is not None)
        return sum(cell.percent for cell in cells) / len(cells) if cells else 0.0

    def count(self, *states: CellState) -> int:
        """Return how many encodes stand in one of these states."""
        return sum(cell.state in states for cell in self.cells)

    @property
    def columns(self) -> tuple[tuple[Cell, ...], ...]:
        """The chunks of the film, each in all qualities that are made."""
        return tuple(zip(*(row.cells for row in self.rows), strict=True))

    @property
    def redone(self) -> int:
        """How many chunks were begun again, in whichever quality: one for a killed worker, however many it made at once."""
        return sum(any(cell.state is CellState.REDONE for cell in column) for column in self.columns)


MOST_KEPT: Final = 64
"""Versions whose finished cells are remembered."""


class Grids:
    """Reads grids. Cells that are done stay as they are, so only the others are asked for again."""

    def __init__(self, looking: Looking) -> None:
        self._looking = looking
        self._done: dict[str, dict[str, Cell]] = {}

    async def read(self, version: Version) -> Grid:
        """Return the grid of a version: one question to the store for the jobs that are not known to be done."""
        jobs = version.jobs
        rows = {name: list(ids) for name, ids in jobs.encode.items()}
        single = [one for one in (jobs.prepare, jobs.audio, jobs.finalize) if one is not None]
        cells = await self._cells(version.id, [*single, *jobs.package.values(), *(one for ids in rows.values() for one in ids)])
        if jobs.together:
            cells = _along(cells, list(rows.values()))
        if any(cell.gone for cell in cells.values()):
            cells = {**cells, **_remembered(version, cells)}
        required = {quality.name: quality.required for quality in version.qualities}
        return Grid(
            version_id=version.id,
            state=version.state,
            together=jobs.together,
            prepare=cells[jobs.prepare],
            audio=None if jobs.audio is None else cells[jobs.audio],
            finalize=None if jobs.finalize is None else cells[jobs.finalize],
            rows=tuple(
                Row(
                    name=name,
                    required=required.get(name, True),
                    cells=tuple(cells[one] for one in ids),
                    package=cells[jobs.package[name]] if name in jobs.package else None,
                )
                for name, ids in rows.items()
            ),
        )

    async def _cells(self, version_id: str, ids: Sequence[str]) -> Mapping[str, Cell]:
        known = self._done.pop(version_id, {})
        self._done[version_id] = known  # the one asked for last is the last to be forgotten
        while len(self._done) > MOST_KEPT:
            del self._done[next(iter(self._done))]
        rest = [one for one in ids if one not in known]
        fresh = {one: _cell(one, view) for one, view in zip(rest, await self._looking.jobs(rest), strict=True)}
        # only these two are for good: what failed may be brought back by hand
        known.update(_kept(fresh.items()))
        return known | fresh


def _along(cells: Mapping[str, Cell], rows: Sequence[Sequence[str]]) -> Mapping[str, Cell]:
    """Return the cells as they are where the first row's jobs make all qualities: who waits for one of them moves with it."""
    first, *others = rows
    moving = {
        own: msgspec.structs.replace(cells[lead], job_id=own)
        for ids in others
        for lead, own in zip(first, ids, strict=True)
        if cells[lead].state is CellState.RUNNING and cells[own].state is CellState.WAITING
    }
    return {**cells, **moving}


def _remembered(version: Version, cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells whose jobs are gone, and of which the library knows that they were done."""
    jobs = version.jobs
    known = [] if version.plan is None else [jobs.prepare]
    ready = {quality.name for quality in version.qualities if quality.state is QualityState.READY}
    for name in ready & jobs.encode.keys():
        known += [*jobs.encode[name], jobs.package[name]]
    if version.state in (VersionState.READY, VersionState.REPLACED):
        known += [one for one in (jobs.audio, jobs.finalize) if one is not None]
    elif ready and jobs.audio is not None:  # no quality is packaged before the sound is there
        known.append(jobs.audio)
    return {
        one: msgspec.structs.replace(cells[one], state=CellState.DONE, percent=100.0, message="its job was pruned")
        for one in known
        if cells[one].gone
    }


def _kept(cells: Iterable[tuple[str, Cell]]) -> dict[str, Cell]:
    return {job_id: cell for job_id, cell in cells if cell.state in (CellState.DONE, CellState.REDONE)}


class _Result(msgspec.Struct, frozen=True):
    reused: bool = False
    begun: int | None = None


def _cell(job_id: str, view: JobView | None) -> Cell:
    if view is None:
        return Cell(job_id=job_id, state=CellState.SKIPPED, message="the job is gone", gone=True)
    error = "" if view.error is None else f"{view.error.code}: {view.error.message}"
    state, result = _STATES[view.state], _Result()
    if view.state is State.SUCCEEDED:
        result = _result(view.result)
        # attempts count that were in the midst of it: who has waited for room on a disk has not begun
        again = view.failures > 0 if result.begun is None else result.begun > 1
        state = CellState.REDONE if again and not result.reused else CellState.DONE
    percent = 100.0 if view.state is State.SUCCEEDED else (view.progress or 0.0)
    return Cell(
        job_id=job_id,
        state=state,
        percent=percent if view.state in (State.RUNNING, State.SUCCEEDED) else 0.0,
        attempt=view.attempt,
        worker=view.worker_name,
        lost=view.lapsed or (view.failures > 0 and view.state is not State.SUCCEEDED),
        reused=result.reused,
        heard_at=view.heartbeat_at,
        held_until=view.expires_at,
        claimed_at=view.claimed_at,
        finished_at=view.finished_at,
        message=error or view.message,
    )


def _result(text: str | None) -> _Result:
    if not text:
        return _Result()
    try:
        return msgspec.json.decode(text, type=_Result)
    except msgspec.MsgspecError:  # sealed, or of another task: nothing is known of it
        return _Result()


_STATES: Final = {
    State.BLOCKED: CellState.WAITING,
    State.SCHEDULED: CellState.WAITING,
    State.READY: CellState.WAITING,
    State.RUNNING: CellState.RUNNING,
    State.SUCCEEDED: CellState.DONE,
    State.FAILED: CellState.FAILED,
    State.CANCELED: CellState.SKIPPED,
}
