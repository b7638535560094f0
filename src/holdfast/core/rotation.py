"""Which of the keys of a lane a claim looks at: all of them where they are few, else some of them in turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

OFFERED: Final = 100
"""So many keys of a lane are on offer at a time, at most: what a claim does is bounded by it, however many keys wait."""
SCANNED: Final = 1000
"""So many keys of a lane are passed over at a time, in search of those whose jobs have waited longest."""
AGED: Final = 4
"""So many of those are remembered: the first of them may be held back by its limit."""
NUMBERS: Final = 2**63
"""The numbers of keys lie below, spread evenly: they come of a hash."""


class Asked(NamedTuple):
    """Which keys of a lane to read: of those with numbers above `after` the first `most`, in their order."""

    after: int
    most: int


class Lap(NamedTuple):
    """How far the keys of a lane have come on offer."""

    rounds: int
    after: int


class Rotation:
    """Has the keys of a lane come on offer in turn, by their numbers.

    A key stays on offer until it has had its turn: as many jobs were taken as its weight says, or none could be, because a
    limit holds them back or nothing waits there any more. Then the next takes its place. So each comes on offer in its turn,
    and among those on offer `Shares` lets none wait for long. Where no more wait than may be on offer, all of them are, and
    none leaves.

    Besides, keys whose jobs have waited longest are looked for, some at a time, and are on offer in turns that go by age.

    A lane is told by the number that its jobs are counted under, a key by the one they are claimed from. It is each claimer's
    own account, which begins at a number drawn by lot: over a fleet the turns add up, also where each makes but one claim.
    """

    def __init__(self, lot: Callable[[], float], offered: int = OFFERED, scanned: int = SCANNED) -> None:
        self._lot = lot
        self.most = offered
        self._scanned = scanned
        self._lanes: dict[int, _Offer] = {}

    def asks(self, lane: int) -> Asked:
        """Return which keys to read; none (`most` is 0) while enough are on offer."""
        offer = self._lanes.get(lane)
        if offer is None or not offer.after:
            return Asked(0, self.most + 1)  # one more than may be on offer: are those all?
        return Asked(offer.after, self.most - len(offer.keys))

    def found(self, lane: int, keys: Sequence[int], asked: Asked, reached: int | None = None) -> bool:
        """Take in keys that were read; False when others are to be read instead, because here its turns begin elsewhere.

        `reached`: how far was looked, where that was not to the end and too few were found.
        """
        offer = self._lanes.setdefault(lane, _Offer())
        at_end = reached is None and len(keys) < asked.most
        offer.whole = at_end and not asked.after
        if offer.whole:
            offer.keys, offer.aged = dict.fromkeys(keys, 0), {}
            return True
        if not offer.begun:
            offer.begun = True
            if begin := int(self._lot() * NUMBERS):
                offer.keys, offer.after, offer.scanned = {}, begin, begin
                return False
        for key in keys:
            if key not in offer.keys and len(offer.keys) >= self.most:
                return True
            offer.keys.setdefault(key, 0)
            offer.after = key
        if reached is not None:
            offer.after = reached
        if at_end:
            offer.after, offer.rounds = 0, offer.rounds + 1
        return True

    def on_offer(self, lane: int, *, by_age: bool = False) -> list[int]:
        """Return the keys of a lane to claim from, in no order."""
        offer = self._lanes.get(lane)
        if offer is None:
            return []
        return list(offer.keys | offer.aged) if by_age else list(offer.keys)

    def whole(self, lane: int) -> bool:
        """Tell whether all keys of a lane that wait are on offer."""
        return lane not in self._lanes or self._lanes[lane].whole

    def took(self, lane: int, key: int, jobs: int, weight: float) -> None:
        """Take note of what a claim took of a key."""
        offer = self._lanes.get(lane)
        if offer is not None and not offer.whole:
            offer.aged.pop(key, None)
            if key in offer.keys:
                offer.keys[key] += jobs
                if offer.keys[key] >= weight:
                    del offer.keys[key]

    def missed(self, lane: int, key: int) -> None:
        """Take note that nothing could be taken of a key that was asked: others have their turn before it is asked again."""
        offer = self._lanes.get(lane)
        if offer is not None and not offer.whole:
            offer.aged.pop(key, None)
            offer.keys.pop(key, None)

    def scans(self, lane: int) -> Asked | None:
        """Return among which keys to look for the oldest; `None` where all are on offer."""
        offer = self._lanes.get(lane)
        return None if offer is None or offer.whole else Asked(offer.scanned, self._scanned)

    def scanned(self, lane: int, oldest: Iterable[tuple[int, datetime]], reached: int | None) -> None:
        """Take in since when those wait that were found to be oldest. `reached`: how far was looked; `None`: to the end."""
        offer = self._lanes.setdefault(lane, _Offer())
        offer.scanned = reached or 0
        known = offer.aged | dict(oldest)
        offer.aged = dict(sorted(known.items(), key=lambda one: one[1])[:AGED])

    def laps(self, lanes: Iterable[int]) -> dict[int, Lap]:
        """Return how far the keys of lanes have come on offer, of those that have more than are on offer at once."""
        return {
            lane: Lap(offer.rounds, offer.after)
            for lane in lanes
            if (offer := self._lanes.get(lane)) is not None and not offer.whole
        }

    def went_round(self, begun: Mapping[int, Lap]) -> bool:
        """Tell whether every key has been on offer since then: who has taken nothing till now need not go on asking."""
        return all(lap >= Lap(begun[lane].rounds + 1, begun[lane].after) for lane, lap in self.laps(begun).items())


@dataclass(slots=True)
class _Offer:
    """The keys of one lane."""

    keys: dict[int, int] = field(default_factory=dict)
    """Those on offer, and how many jobs each has given meanwhile."""
    after: int = 0
    """The last that came on offer; 0: the next is the first."""
    rounds: int = 0
    whole: bool = True
    begun: bool = False
    """Whether more keys than may be on offer were seen before."""
    aged: dict[int, datetime] = field(default_factory=dict)
    scanned: int = 0
