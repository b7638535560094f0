"""How long workers take to come up, as it was seen lately."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.fleet.crew import Member

LATELY: Final = 8
"""Starts that are remembered: what they take changes with the app and with what else the machine does."""


class StartTimes:
    """Notes when each worker was first seen up: from the start of its process to the look that saw it."""

    def __init__(self) -> None:
        self._lately: deque[float] = deque(maxlen=LATELY)
        self._seen: set[int] = set()

    def note(self, members: Iterable[Member], up: Collection[int], now: float) -> None:
        """Note which of these workers are up by now, by their processes."""
        there = {member.process_id: member.started_at for member in members}
        for process in there.keys() & set(up) - self._seen:
            self._lately.append(now - there[process])
        self._seen = there.keys() & (self._seen | set(up))  # a process id may come again

    @property
    def seconds(self) -> float | None:
        """What a start takes on average; `None` before there was one."""
        return sum(self._lately) / len(self._lately) if self._lately else None
