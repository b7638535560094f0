"""What a reaper remembers about leases, so that it never reads the whole table twice.

Claims are numbered. A look reads the leases claimed since the base (see `marks`), and again those it knows that should have
lapsed by now. Leases are extended without touching any index, so there is none on `expires_at` to ask; and a table full of
dead rows that vacuum cannot remove costs nothing, because it is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.postgres.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.postgres.lanes import Row, Snapshot


class Leases:
    """The leases a reaper has seen, with the expiry it last saw."""

    def __init__(self) -> None:
        self._known: dict[UUID, datetime] = {}
        self._marks: Marks[int] = Marks(0)
        self._life: str | None = None

    def forget(self) -> None:
        """Start anew."""
        self._known.clear()
        self._marks = Marks(0)

    def question(self, now: datetime | None) -> tuple[int, list[UUID], int]:
        """Return the base, the known leases to read again (lapsed, were they not extended), and the number reached."""
        due = [] if now is None else [job_id for job_id, expires_at in self._known.items() if expires_at <= now]
        return self._marks.base, due, self._marks.reached

    def looked(self, rows: Sequence[Row], asked: Sequence[UUID], snapshot: Snapshot, reached: int) -> list[UUID] | None:
        """Take in a look and return the leases that have lapsed; `None` when it must be made again from the start."""
        if snapshot.life != self._life:
            first_time = self._life is None
            self._life = snapshot.life
            if not first_time:
                self.forget()
                return None
        for job_id in asked:
            self._known.pop(job_id, None)
        for job_id, expires_at in rows:
            self._known[job_id] = expires_at
        # What is below the base is known: a live lease there need not hold it down.
        self._marks.looked(None, reached=reached, xmin=snapshot.xmin, xmax=snapshot.xmax)
        self._marks.took(snapshot.last + 1)
        return [job_id for job_id, expires_at in self._known.items() if expires_at <= snapshot.now]
