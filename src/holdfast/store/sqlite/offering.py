"""Which lanes a claim looks at, each with its first job: every one without a key in which something waits, and keys in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.fairness import Head
from holdfast.core.job import RETRIES
from holdfast.core.needs import needs_of, suits
from holdfast.core.rotation import AGED
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.limiting import names_of_lane
from holdfast.store.sqlite.packing import listed
from holdfast.store.sqlite.values import moment, names_of, names_text

if TYPE_CHECKING:
    from holdfast.core.limits import LimitName, Room
    from holdfast.core.needs import Needs
    from holdfast.core.rotation import Rotation
    from holdfast.store.port import ClaimRequest
    from holdfast.store.sqlite.limiting import Rooms
    from holdfast.store.sqlite.writing import Writing

_NO_HEAD: Final = Head(0, 0, moment(0))
"""Stands for a fifo lane whose first job is of a task this worker does not know."""

MOST_KNOWN: Final = 10_000
"""Of so many keys it is remembered what their lanes stand for, which never changes."""


class KeyLane(NamedTuple):
    """What the lane of a key stands for."""

    needs: Needs
    names: tuple[LimitName, ...]
    """Of the limits that may hold for it."""


class Offering:
    """The lanes that one claim may take from."""

    def __init__(
        self, writing: Writing, request: ClaimRequest, rooms: Rooms, rotation: Rotation, known: dict[int, KeyLane]
    ) -> None:
        self._writing = writing
        self._request = request
        self._rooms = rooms
        self._rotation = rotation
        self._known = known
        self._found: dict[int, tuple[int, Head]] = {}
        self._of: dict[int, int] = {}
        """The lane of each key that is on offer."""
        self.over: dict[int, list[Room]] = {}
        """The limits over each lane."""
        self.filled: set[int] = set()
        """Lanes and fronts that hold anything."""
        self.full: set[int] = set()
        """Keys that are on offer, and under a limit that has no room."""
        self.turning: set[int] = set()
        """The lanes whose keys come on offer in turn, as jobs are counted in them."""

    def heads(self, *, keys: bool, by_age: bool) -> list[Head]:
        """Return the lanes this worker may claim from, each with its first job. `keys`: some wait."""
        execute = self._writing.connection.execute
        tasks = names_text(tuple(sorted(self._request.tasks))) or "[]"
        if keys:
            self._add(sorted(execute(sql("claim.plain_heads"), (tasks,)).fetchall()))
            self._add_keys(tasks, by_age=by_age)
        else:
            self._add(execute(sql("claim.heads"), (tasks,)).fetchall())
        # jobs of one enqueue are ready at the same moment: among those the place decides, for `order` keeps ties as they are
        return [head for _, head in sorted(self._found.values()) if head is not _NO_HEAD]

    def took(self, head: Head, jobs: int) -> None:
        """Take note of what was taken of a lane; nothing: it was asked in vain."""
        if (lane := self._of.get(key := head.lane & ~RETRIES)) is None:
            return
        if jobs:
            self._rotation.took(lane, key, jobs, head.weight or 1.0)
        else:
            self._rotation.missed(lane, key)

    def _add(self, rows: list[tuple[int, int, int, str, str, int, str]]) -> None:
        """Take in the first jobs of lanes and fronts.

        Fronts have negative numbers and so come first: where there is one, it holds the lane's head.
        """
        for place, seq, ready_at, queue, task, priority, requires in rows:
            self.filled.add(place)
            number = abs(place)
            known = self._known.get(number & ~RETRIES)
            needs = needs_of(names_of(requires)) if known is None else known.needs
            if number in self._found or not self._serves(queue, needs, ready_at):
                continue
            head = Head(number, priority, moment(ready_at), queue, bool(number & RETRIES), self._rooms.weight(needs))
            self._found[number] = (seq, head if task or self._knows(place, seq) else _NO_HEAD)
            if number not in self.over:
                self.over[number] = self._rooms.over(names_of_lane(queue, task, requires, fifo=not task))

    def _serves(self, queue: str, needs: Needs, ready_at: int) -> bool:
        request = self._request
        return (request.queues is None or queue in request.queues) and suits(
            needs, request.capabilities, request.idle, (self._writing.now - ready_at) / 1e6
        )

    def _knows(self, place: int, seq: int) -> bool:
        (task,) = self._writing.connection.execute(sql("claim.head_task"), (place, seq)).fetchone()
        return task in self._request.tasks

    def _add_keys(self, tasks: str, *, by_age: bool) -> None:
        """Take in the first jobs of keys that are on offer."""
        execute, request = self._writing.connection.execute, self._request
        for lane, queue, requires in execute(sql("claim.lanes_of_keys"), (tasks,)).fetchall():
            if (request.queues is None or queue in request.queues) and needs_of(
                names_of(requires)
            ).required <= request.capabilities:
                self.turning.add(lane)
                self._turn(lane, by_age=by_age)
                self._of |= dict.fromkeys(self._rotation.on_offer(lane, by_age=by_age), lane)
        self._leave_out_full()
        free = [key for key in self._of if key not in self.full]
        places = sorted(sign * (key | retries) for key in free for sign in (-1, 1) for retries in (0, RETRIES))
        self._add(execute(sql("claim.heads_at"), (listed(places),)).fetchall())
        self._leave_out(places)

    def _turn(self, lane: int, *, by_age: bool) -> None:
        """Have the next keys of a lane come on offer."""
        execute, rotation = self._writing.connection.execute, self._rotation
        known = False
        while not known and (asked := rotation.asks(lane)).most:
            known = rotation.found(lane, [key for (key,) in execute(sql("claim.keys"), (lane, *asked))], asked)
        if by_age and (scan := rotation.scans(lane)) is not None:
            oldest = [(key, moment(since)) for key, since in execute(sql("claim.oldest_keys"), (lane, *scan, AGED))]
            reached = execute(sql("claim.last_key"), (lane, *scan)).fetchone()
            rotation.scanned(lane, oldest, None if reached is None else reached[0])

    def _leave_out_full(self) -> None:
        """Look no further at keys without room: where limits are tight that is most of them."""
        if self._rooms.none:
            return
        if missing := [key for key in self._of if key not in self._known]:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            for key, queue, task, requires in self._writing.connection.execute(sql("claim.lanes_at"), (listed(missing),)):
                needs = needs_of(names_of(requires))
                self._known[key] = KeyLane(needs, names_of_lane(queue, task, requires, fifo=False))
        self._rooms.know(self._known[key].names[-1] for key in self._of)
        for key in self._of:
            over = self._rooms.over(self._known[key].names)
            self.over[key] = self.over[key | RETRIES] = over
            for room in over:
                if room.full:
                    self.full.add(key)

    def _leave_out(self, places: list[int]) -> None:
        """Forget keys in which nothing waits; those that this worker has to leave to others wait for their next turn."""
        holding = {abs(place) & ~RETRIES for place in self.filled.intersection(places)}
        empty = [key for key in self._of if key not in holding and key not in self.full]
        if empty:
            self._writing.connection.executemany(sql("claim.forget_key"), [(self._of[key], key) for key in empty])
        for key, lane in self._of.items():
            if key not in self._found and key | RETRIES not in self._found:
                self._rotation.missed(lane, key)
