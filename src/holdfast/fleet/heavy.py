"""Workers that take too much memory as soon as they are up: for how long none is replaced because of that, and what is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.spans import span
from holdfast.fleet.memory import MEGABYTE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.fleet.crew import Member

YOUNG: Final = 10.0
"""Seconds after it came up within which a worker that takes too much tells that its successor would, too."""
FIRST_PAUSE: Final = 5.0
"""Seconds for which none is replaced then; doubled with every young one that follows."""
LONGEST_PAUSE: Final = 1800.0


class Heavy:
    """Finds who is to be replaced for its memory, and rests ever longer where a new worker would take as much."""

    def __init__(self, most: int) -> None:
        self.said = ""
        """Which worker takes too much and is not replaced, and what to do about it; empty while there is none."""
        self._most = most
        self._pauses = 0
        self._noted_at = 0.0
        self._until = 0.0

    def choose(self, weights: Mapping[Member, int], now: float) -> Member | None:
        """Return the heaviest of those that take too much, unless there is a rest; `weights` are of all that are up."""
        heavy = sorted((one for one, weight in weights.items() if weight > self._most), key=lambda one: -weights[one])
        later = [one for one in weights if one.started_at >= self._noted_at]  # what came before the rest says nothing new
        if not heavy:
            self.said = ""
        if any(one not in heavy and not _is_young(one, now) for one in later):
            self._pauses, self._until, self.said = 0, 0.0, ""
        if young := next((one for one in heavy if one in later and _is_young(one, now)), None):
            self._rest(young, weights[young], now)
        return heavy[0] if heavy and now >= self._until else None

    def _rest(self, young: Member, weight: int, now: float) -> None:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._pauses, 30))
        self._pauses, self._noted_at, self._until = self._pauses + 1, now, now + pause
        self.said = (
            f"{young.name} takes {weight // MEGABYTE:,} MB as soon as it is up and max_memory is "
            f"{self._most // MEGABYTE:,} MB, another would take as much: none is replaced for {span(pause)}; raise max_memory, "
            "or have the app load less"
        )


def _is_young(member: Member, now: float) -> bool:
    return member.up_at is not None and now - member.up_at < YOUNG
