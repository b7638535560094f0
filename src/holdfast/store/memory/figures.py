"""Counts and times of attempts, and the attempts that ended badly."""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.core.figures import with_whole
from holdfast.store.memory.handle import Handle
from holdfast.store.port import FailureView, FigureView, Grain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.figures import Figure


class Figures(Handle):
    """The figures section of the port."""

    async def measure(self, figures: Sequence[Figure]) -> None:
        """Add figures to those of this minute, of this hour and of all time."""
        now = self.environment.now()
        for figure in with_whole(figures):
            for grain in Grain:
                place = (grain, grain.begin(now), figure.key)
                known = self.data.figures.get(place)
                self.data.figures[place] = figure if known is None else known.plus(figure)

    async def figures(self, grain: Grain, *, since: datetime | None = None, whole: bool = False) -> list[FigureView]:
        """Return the figures of this grain, oldest first, from the one on that `since` falls into."""
        first = None if since is None else grain.begin(since)
        found = [
            (at or _ALWAYS, key, FigureView(at=at, figure=figure))
            for (of, at, key), figure in self.data.figures.items()
            if of is grain and (first is None or at is None or at >= first) and (not figure.task) is whole
        ]
        return [view for *_, view in sorted(found, key=lambda one: one[:2])]

    async def failures(self, *, since: datetime, limit: int, after: FailureView | None = None) -> list[FailureView]:
        """Return attempts that ended badly since then, newest first."""
        found = [
            FailureView(
                job_id=job_id,
                task=record.job.task,
                queue=record.job.queue,
                key=None if record.job.unique is None else record.job.unique.key,
                attempt=number,
                at=attempt.ended_at,
                event=attempt.event,
                error=attempt.error,
            )
            for job_id, record in self.data.jobs.items()
            for number, attempt in enumerate(record.attempts, start=1)
            if attempt.error is not None
            and attempt.event is not None
            and attempt.ended_at is not None
            and attempt.ended_at >= since
        ]
        place = attrgetter("at", "job_id", "attempt")
        behind = (one for one in found if after is None or place(one) < place(after))
        return nlargest(max(0, limit), behind, key=place)


_ALWAYS = datetime.min.replace(tzinfo=UTC)
