"""Counts and times of attempts, and the attempts that ended badly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.figures import Figure, with_whole
from holdfast.core.states import Event
from holdfast.store.port import FailureView, FigureView, Grain
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.values import error_of, moment, moment_or_none, stamp, uuid_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.store.sqlite.writing import Writing

_decode: Final = msgspec.json.Decoder(tuple[int, ...]).decode


def measure(writing: Writing, figures: Sequence[Figure]) -> None:
    """Add figures to those of this minute, of this hour and of all time; see the port."""
    execute, now = writing.connection.execute, moment(writing.now)
    for figure in with_whole(figures):
        for grain in Grain:
            begin = grain.begin(now)
            place = (grain.value, None if begin is None else stamp(begin), *figure.key)
            known = execute(sql("measure.known"), place).fetchone()
            total = figure if known is None else figure.plus(_figure((*figure.key, *known)))
            histograms = (_text(total.waits), _text(total.runs))
            execute(sql("measure.figure"), (*place, total.count, total.waited, total.ran, *histograms))


def figures(connection: sqlite3.Connection, grain: Grain, since: datetime | None, *, whole: bool) -> list[FigureView]:
    """Return the figures of this grain, oldest first."""
    first = None if since is None else grain.begin(since)
    values = (grain.value, _LONG_AGO if first is None else stamp(first), whole)
    rows = connection.execute(sql("figures.figures"), values)
    return [FigureView(at=moment_or_none(at), figure=_figure(rest)) for at, *rest in rows]


_LONG_AGO: Final = -(2**62)
_LAST: Final = 2**62


def failures(connection: sqlite3.Connection, since: datetime, limit: int, after: FailureView | None) -> list[FailureView]:
    """Return attempts that ended badly since then, newest first."""
    behind = (_LAST, b"", 0) if after is None else (stamp(after.at), after.job_id.bytes, after.attempt)
    return [
        FailureView(
            job_id=uuid_of(job_id),
            task=task,
            queue=queue,
            key=key,
            attempt=attempt,
            at=moment(ended_at),
            event=Event(event),
            error=error,
        )
        for job_id, task, queue, key, attempt, ended_at, event, *columns in connection.execute(
            sql("failures.attempts"), (stamp(since), *behind, max(0, limit))
        )
        if (error := error_of(*columns)) is not None
    ]


def _figure(row: Sequence[Any]) -> Figure:
    queue, task, event, code, count, waited, ran, waits, runs = row
    return Figure(
        queue=queue,
        task=task,
        event=Event(event),
        code=code,
        count=count,
        waited=waited,
        ran=ran,
        waits=_decode(waits),
        runs=_decode(runs),
    )


def _text(histogram: tuple[int, ...]) -> str:
    return msgspec.json.encode(histogram).decode()
