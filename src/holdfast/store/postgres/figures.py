"""Counts and times of attempts, and the attempts that ended badly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.figures import BUCKETS, Figure, with_whole
from holdfast.core.outcome import Error
from holdfast.core.states import Event
from holdfast.store.port import FailureView, FigureView
from holdfast.store.postgres.due import LONG_AGO
from holdfast.store.postgres.handle import Handle, most

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from asyncpg import Record

    from holdfast.store.port import Grain

_FIGURES: Final = """
SELECT at, queue, task, event, code, count, waited, ran, waits, runs FROM {schema}.figure
WHERE grain = $1 AND coalesce(at, '-infinity'::timestamptz) >= coalesce($2, '-infinity'::timestamptz)
    AND (task = '') = $3
ORDER BY at, queue COLLATE "C", task COLLATE "C", event COLLATE "C", code COLLATE "C"
"""


class Figures(Handle):
    """The figures section of the port."""

    async def measure(self, figures: Sequence[Figure]) -> None:
        """Add figures to those of this minute, of this hour and of all time."""
        if not figures:
            return
        given = with_whole(figures)
        await self._db.execute(
            self._sql("SELECT {schema}.measure($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"),
            [figure.queue for figure in given],
            [figure.task for figure in given],
            [figure.event.value for figure in given],
            [figure.code for figure in given],
            [figure.count for figure in given],
            [figure.waited for figure in given],
            [figure.ran for figure in given],
            [count for figure in given for count in figure.waits],
            [count for figure in given for count in figure.runs],
            BUCKETS,
        )

    async def figures(self, grain: Grain, *, since: datetime | None = None, whole: bool = False) -> list[FigureView]:
        """Return the figures of this grain, oldest first, from the one on that `since` falls into."""
        first = None if since is None else grain.begin(since)
        return [_figure_view(row) for row in await self._db.fetch(self._sql(_FIGURES), grain.value, first, whole)]

    async def failures(self, *, since: datetime, limit: int, after: FailureView | None = None) -> list[FailureView]:
        """Return attempts that ended badly since then, newest first."""
        behind = (None, None, None) if after is None else (after.at, after.job_id, after.attempt)
        sql = self._sql("SELECT * FROM {schema}.failures($1, $2, $3, $4, $5)")
        return [_failure(row) for row in await self._db.fetch(sql, max(since, LONG_AGO), most(limit), *behind)]


def _figure_view(row: Record) -> FigureView:
    at, queue, task, event, code, count, waited, ran, waits, runs = row
    figure = Figure(
        queue=queue,
        task=task,
        event=Event(event),
        code=code,
        count=count,
        waited=waited,
        ran=ran,
        waits=tuple(waits),
        runs=tuple(runs),
    )
    return FigureView(at=at, figure=figure)


def _failure(row: Record) -> FailureView:
    job_id, task, queue, key, attempt, at, event, code, message, traceback = row
    return FailureView(
        job_id=job_id,
        task=task,
        queue=queue,
        key=key,
        attempt=attempt,
        at=at,
        event=Event(event),
        error=Error(code, message or "", traceback or ""),
    )
