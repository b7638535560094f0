"""Two marks over a queue-like index, so that dead rows left behind cost nothing and late rows are never missed.

A claim that starts at the beginning of an index walks every dead entry that vacuum could not remove yet. A claim that starts
behind the last row it took misses rows whose transaction drew its number early and committed late. So there are two marks:

- the *hint* serves claims: behind the last row taken;
- the *base* serves looks, plain reads that run once a second and on every notification: no row below it can ever appear again.

The base may move up to a number once every transaction that could still write below it has ended. Each look pairs the number
reached so far with `xnext`, a transaction id above all handed out so far; a later look whose `xmin` has come to it proves it,
because a number is always drawn after its transaction got its id. What the look finds lowers the hint.

Where nothing may be passed, in a `fifo` lane, claims start at the base too, as long as that is not far below the hint.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic, Protocol, TypeVar


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Ordered)

MOST_PAIRS: Final = 100
"""Under a long writing transaction pairs would pile up; beyond this many the newest is replaced, which loses nothing."""


class Marks(Generic[K]):
    """The marks of one lane (or of the schedule, or of the leases)."""

    __slots__ = ("_pairs", "_reached", "base", "hint")

    def __init__(self, start: K) -> None:
        self.hint = start
        self.base = start
        self._reached = start
        self._pairs: deque[tuple[K, int]] = deque()

    def took(self, behind: K) -> None:
        """Say that everything visible below `behind` was taken."""
        self.hint = max(self.hint, behind)
        self._reached = max(self._reached, behind)

    def looked(self, first: K | None, *, reached: K, xmin: int, xnext: int) -> None:
        """Take in a look: the first row it saw from the base on, and the bounds of its snapshot.

        `reached` must be what `self.reached` was before the look was sent: a number taken while the look was on its
        way may have been drawn after its snapshot.
        """
        proved = self.base
        while self._pairs and self._pairs[0][1] <= xmin:
            proved = self._pairs.popleft()[0]
        if first is not None and first < proved:
            proved = first
        self.base = max(self.base, proved)
        if first is not None and first < self.hint:
            self.hint = first
        newest = self._pairs[-1][0] if self._pairs else self.base
        if newest < reached:
            if len(self._pairs) >= MOST_PAIRS:
                self._pairs.pop()
            self._pairs.append((reached, xnext))

    @property
    def reached(self) -> K:
        """How far rows were taken, at the most."""
        return self._reached
