"""What a reaper remembers about leases, so that it never reads the whole table twice.

Claims are numbered. A look reads the leases claimed since the base (see `marks`), and again those it knows that should have
lapsed by now. Leases are extended without touching any index, so there is none on `expires_at` to ask; and a table full of
dead rows that vacuum cannot remove costs nothing, because it is not read.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.store.postgres.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.postgres.lanes import Row, Snapshot

IN_TURN: Final = 500


class Known(NamedTuple):
    """A lease as it was last seen."""

    no: int
    expires_at: datetime
    lease_ms: int


class Question(NamedTuple):
    """What a look asks for, and what was remembered when it was sent."""

    base: int
    ids: list[UUID]
    reached: int
    generation: int
    last: int


class Leases:
    """The leases a reaper has seen."""

    def __init__(self) -> None:
        self._known: dict[UUID, Known] = {}
        self._marks: Marks[int] = Marks(0)
        self._life: str | None = None
        self._last = 0
        self._generation = 0

    def forget(self) -> None:
        """Start anew."""
        self._known.clear()
        self._marks = Marks(0)
        self._life = None
        self._last = 0
        self._generation += 1

    def question(self, now: datetime | None) -> Question:
        """Ask for the leases since the base, for known ones that should have lapsed, and for some others in turn.

        The turn forgets what has ended meanwhile: an entry asked for goes to the end, if it is still there.
        """
        due = [] if now is None else [job_id for job_id, known in self._known.items() if known.expires_at <= now]
        ids = list(dict.fromkeys([*due, *islice(self._known, IN_TURN)]))
        return Question(self._marks.base, ids, self._marks.reached, self._generation, self._last)

    def looked(self, question: Question, rows: Sequence[Row], snapshot: Snapshot) -> list[tuple[UUID, Known]] | None:
        """Take in a look and return the leases that have lapsed; `None` when it must be made again."""
        if question.generation != self._generation:
            return None
        if (self._life is not None and snapshot.life != self._life) or snapshot.last < question.last:
            self.forget()
            return None
        self._life = snapshot.life
        self._last = max(self._last, snapshot.last)
        # what was asked for and did not come has ended; what another look has added meanwhile was not asked for
        asked = {*question.ids, *(job_id for job_id, known in self._known.items() if known.no >= question.base)}
        for job_id in asked:
            if job_id in self._known and self._known[job_id].no < question.reached:
                del self._known[job_id]
        for job_id, number, expires_at, lease_ms in rows:
            self._known[job_id] = Known(number, expires_at, lease_ms)
        # What is below the base is known: a live lease there need not hold it down.
        self._marks.looked(None, reached=question.reached, xmin=snapshot.xmin, xnext=snapshot.xnext)
        self._marks.took(snapshot.last + 1)
        return [(job_id, known) for job_id, known in self._known.items() if known.expires_at <= snapshot.now]
