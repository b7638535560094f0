"""What a handle remembers about an index of times, such as when jobs are due: marks that let it read from where it left off.

Nothing is ever entered with a time that has passed, so that times can have marks as places do (see `marks`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from holdfast.store.postgres.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.store.postgres.lanes import Row

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Due:
    """The marks over one index of times."""

    def __init__(self) -> None:
        self._marks: Marks[datetime] = Marks(LONG_AGO)
        self._life: str | None = None

    def forget(self) -> None:
        """Start anew."""
        self._marks = Marks(LONG_AGO)

    @property
    def hint(self) -> datetime:
        """From where on to take what is due."""
        return self._marks.hint

    def took(self, last: datetime) -> None:
        """Say that what was due before `last` was taken."""
        self._marks.took(last)

    async def look(self, ask: Callable[[datetime], Awaitable[Row]]) -> float | None:
        """Look for the first time from the base on and return in how many seconds it comes; `None`: there is none.

        `ask` runs a statement for a base and returns the bounds of its snapshot (xmin, xnext, now, life) and `first`.
        """
        while True:
            marks, reached = self._marks, self._marks.reached
            row = await ask(marks.base)
            if marks is not self._marks:
                continue  # forgotten while the look was under way
            if row["life"] != self._life or row["now"] < reached:
                # another life of the server, or its clock went back: start anew
                self._life, self._marks = row["life"], Marks(LONG_AGO)
                continue
            marks.looked(row["first"], reached=reached, xmin=row["xmin"], xnext=row["xnext"])
            marks.took(row["now"] if row["first"] is None else min(row["now"], row["first"]))
            return None if row["first"] is None else (row["first"] - row["now"]).total_seconds()
