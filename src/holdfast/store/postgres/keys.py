"""The lanes of keys, of which a claimer sees some at a time: what it asks for, and what it makes of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.rotation import Asked, Rotation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.store.postgres.lanes import Lane, Row

MOST_REMEMBERED: Final = 500
"""So many lanes of keys that are not on offer keep their marks. Without them a look reads what vacuum has left behind."""


class KeysAsked(NamedTuple):
    """What a look asks for, in the order of `look_keys`: the known lanes of keys, from where on, how many, and what is kept."""

    counted: list[int]
    afters: list[int]
    mosts: list[int]
    scans: list[int | None]
    kept: list[int]


class Keys:
    """Which lanes of keys are on offer."""

    def __init__(self, lot: Callable[[], float]) -> None:
        self._lot = lot
        self.rotation = Rotation(lot)
        self.settled = True
        """Whether the last look was enough: not where the turns of keys begin elsewhere than it looked."""
        self._counted: set[int] = set()
        self._samples: dict[int, Lane] = {}
        """Of each lane, as jobs are counted in it, the lane of one key: others differ in nothing but the key."""
        self.left: dict[int, Lane] = {}
        """Lanes that were on offer and are not any more, with what was remembered about them."""

    def forget(self) -> None:
        """Start anew."""
        self.rotation = Rotation(self._lot)
        self._counted.clear()
        self._samples.clear()
        self.left.clear()

    def question(self, *, by_age: bool) -> KeysAsked:
        """Return what the next look asks for."""
        counted = sorted(self._counted)
        asked = [self.rotation.asks(one) for one in counted]
        scans = [self.rotation.scans(one) if by_age else None for one in counted]
        kept = [key for one in counted if not self.rotation.whole(one) for key in self.rotation.on_offer(one)]
        return KeysAsked(
            counted,
            [after for after, _ in asked],
            [most for _, most in asked],
            [None if scan is None else scan.after for scan in scans],
            kept,
        )

    def serving(self, serves: Callable[[Lane], bool]) -> list[int]:
        """Return the lanes, as jobs are counted in them, whose keys somebody may claim from."""
        return [one for one in self._counted if one in self._samples and serves(self._samples[one])]

    def looked(self, asked: KeysAsked, rows: Sequence[Row], lanes: Mapping[int, Lane]) -> None:
        """Take in which keys a look found. `lanes`: those that it saw, by their entries."""
        found: dict[int, set[int]] = {}
        old: dict[int, list[Row]] = {}
        ends: dict[tuple[int, str], int | None] = {}
        waiting: set[int] = set()
        for row in rows:
            entry, head_at, front_at, (counted, how, reached) = row[0], row[8], row[10], row[12:15]
            self._counted.add(counted)
            if entry is None:
                ends[counted, how] = reached
                continue
            self._samples[counted] = lanes[entry]
            if head_at is not None or front_at is not None:
                waiting.add(entry & ~1)
            if how == "next":
                found.setdefault(counted, set()).add(entry & ~1)
            elif how == "aged" and head_at is not None:
                old.setdefault(counted, []).append(row)
        for key, counted in self._of(asked.kept).items():
            if key not in waiting:
                self.rotation.missed(counted, key)
        before = {one: Asked(after, most) for one, after, most, *_ in zip(*asked[:3], strict=True)}
        self.settled = True
        for counted in self._counted:
            was = before.get(counted) or self.rotation.asks(counted)
            if was.most:
                keys = sorted(found.get(counted, ()))
                self.settled &= self.rotation.found(counted, keys, was, ends.get((counted, "next")))
            if (counted, "aged") in ends:
                oldest = [(row[0] & ~1, row[8]) for row in old.get(counted, ())]
                self.rotation.scanned(counted, oldest, ends[counted, "aged"])
        self._counted = {one for one in self._counted if self.rotation.on_offer(one) or not self.rotation.whole(one)}

    def _of(self, keys: Iterable[int]) -> dict[int, int]:
        wanted = set(keys)
        return {key: one for one in self._counted for key in self.rotation.on_offer(one) if key in wanted}

    def on_offer(self, *, by_age: bool) -> set[int]:
        """Return the keys to claim from."""
        return {key for one in self._counted for key in self.rotation.on_offer(one, by_age=by_age)}

    def leave(self, lanes: Iterable[Lane]) -> None:
        """Remember lanes that are not on offer any more, the last of them."""
        for lane in lanes:
            lane.head_at = lane.front_at = None
            self.left.pop(lane.entry, None)
            self.left[lane.entry] = lane
        while len(self.left) > MOST_REMEMBERED:
            del self.left[next(iter(self.left))]

    @property
    def all_on_offer(self) -> bool:
        """Whether every key that waits is on offer."""
        return all(self.rotation.whole(one) for one in self._counted)

    @property
    def few_left(self) -> bool:
        """Whether it is time to have more come on offer."""
        return any(
            not self.rotation.whole(one) and 2 * self.rotation.asks(one).most > self.rotation.most for one in self._counted
        )
