"""What a claimer remembers about the lanes: their marks, their heads as last seen, and when to look again."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from holdfast.core.fairness import Head, Shares, by_age, first_turn, order
from holdfast.core.job import RETRIES
from holdfast.core.limits import LimitKind, LimitName, LimitRule, limit_id
from holdfast.core.needs import needs_of, suits
from holdfast.store.postgres.keys import Keys, KeysAsked
from holdfast.store.postgres.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.needs import Needs
    from holdfast.core.rotation import Lap
    from holdfast.store.port import ClaimRequest

Row: TypeAlias = Any
"""A record of the driver, or a slice of one."""

FRONTS: Final = 0
"""Stands for the fronts of all lanes, where lanes are numbered."""

LOOK_EVERY: Final = 1.0
LOOK_SHARE: Final = 100
LOOK_AT_LEAST_EVERY: Final = 5.0
"""A look that takes long (a long writing transaction keeps the base down) is repeated no sooner than 100 times its duration,
but not put off for longer than this: lanes that nobody has seen yet wait for it."""


MOST_PASSED: Final = 20_000
MOST_PASSED_IN_FRONT: Final = 2_000
"""Beyond so many, a `fifo` lane is claimed from as any other: while a writing transaction stays open so long, what commits late
or was given back is found by the next look, not by the next claim. Else each claim would walk over all of them."""

SPARE_LANES: Final = 8
"""So many lanes more than are needed at first glance are named: some are empty, or in somebody else's hands."""


MOST_RUNNING: Final = 10_000
"""Of so many jobs it is remembered which key they belong to. Of those that are beyond, room is found as of others' jobs."""


LIMITED_LANES: Final = 100
"""So many lanes that limits hold for are named in one statement of a claim."""


@dataclass(slots=True)
class Lane:
    """One lane of `ready`, as this claimer knows it."""

    entry: int
    queue: str
    priority: int
    needs: Needs
    tasks: set[str] = field(default_factory=set)
    fifo: bool = False
    limited: bool = False
    """Limits hold for it, or may: it is claimed from in turns with others who do."""
    quota: int = 0
    """How many jobs the claim that is under way takes from it before other keys were asked."""
    wide: bool = False
    """Of one that belongs to a key: a limit of its queue or task is over it too."""
    held_until: float = 0.0
    """By the monotonic clock: until then it is not worth asking, as a limit holds its jobs back, unless room is told of."""
    marks: Marks[int] = field(default_factory=lambda: Marks(0))
    head_at: datetime | None = None
    """Since when its oldest job waits, as last seen; `None`: believed to be empty."""
    front_at: datetime | None = None
    """The same for its front."""
    front_place: int = 0
    """The first place of its front, as last seen."""
    passed: int = 0
    """Jobs claimed here since the base was last moved: dead rows, perhaps, which lie between base and hint."""
    passed_in_front: int = 0
    """Jobs claimed from its front, ever: nothing says when their rows are gone."""
    counted: int = 0
    """The lane that its jobs are counted in, of one that belongs to a key."""
    _limits: tuple[int | None, ...] | None = None

    @property
    def keyed(self) -> bool:
        """Whether it belongs to the key of a limit."""
        return self.needs.limit is not None

    @property
    def key(self) -> int:
        """What it has in common with the retries beside it."""
        return self.entry & ~RETRIES

    def limits(self) -> tuple[int | None, ...]:
        """Return the limits that may hold for it: of its queue, its task, all keys of its scope, its key."""
        if self._limits is None:  # they never change, and are asked for with every claim
            self._limits = self._find_limits()
        return self._limits

    def _find_limits(self) -> tuple[int | None, ...]:
        task = None if self.fifo else limit_id(LimitName(LimitKind.TASK, min(self.tasks)))
        of_queue = limit_id(LimitName(LimitKind.QUEUE, self.queue))
        if (key := self.needs.limit) is None:
            return of_queue, task, None, None
        return of_queue, task, limit_id(LimitName(LimitKind.KEY, key.scope)), limit_id(key.name)

    @property
    def retries(self) -> bool:
        """Whether it holds jobs that have failed before."""
        return bool(self.entry & RETRIES)

    def serves(self, request: ClaimRequest, now: datetime | None) -> bool:
        """Tell whether a worker may claim from it."""
        return (
            (request.queues is None or self.queue in request.queues)
            and suits(self.needs, request.capabilities, request.idle, self._waited(now))
            and not self.tasks.isdisjoint(request.tasks)
        )

    def _waited(self, now: datetime | None) -> float:
        oldest = self.oldest() if self.needs.preferred else None
        return 0.0 if oldest is None or now is None else (now - oldest).total_seconds()

    def numbers(self) -> tuple[int, ...]:
        """Return what to claim from: its front, where something is believed to be, then itself.

        In a `fifo` lane nothing may pass what another claimer has just given back: its front is looked into anyway.
        """
        return (self.entry,) if self.front_at is None and not self._in_strict_order else (-self.entry, self.entry)

    def starts(self) -> tuple[int, ...]:
        """Return from where on to claim, for each of `numbers`.

        In a `fifo` lane nothing may pass what has committed late: claims start where nothing can appear any more.
        """
        if self._in_strict_order:
            return (0, self.marks.base)
        return (self.marks.hint,) if self.front_at is None else (self.front_place, self.marks.hint)

    @property
    def _in_strict_order(self) -> bool:
        """Whether its claims walk over all that vacuum may not have removed yet; they do so as long as that is not much."""
        return self.fifo and self.passed < MOST_PASSED and self.passed_in_front < MOST_PASSED_IN_FRONT

    def oldest(self) -> datetime | None:
        """Return since when its oldest job waits."""
        if self.front_at is None or (self.head_at is not None and self.head_at <= self.front_at):
            return self.head_at
        return self.front_at


class Snapshot(NamedTuple):
    """The bounds of the snapshot a look saw, and which server life it belongs to."""

    xmin: int
    xnext: int
    now: datetime
    life: str
    """Changes when the server restarts, fails over or a test rewinds it: then nothing remembered holds."""
    last: int
    """The last number drawn from the sequence in question, read after the snapshot was taken."""


class Question(NamedTuple):
    """What a look asks for, and what was remembered when it was sent."""

    lanes: list[int]
    bases: list[int]
    fronts: int
    reached: dict[int, int]
    generation: int
    clock: datetime | None
    last: int
    keys: KeysAsked


class Lanes:
    """All known lanes."""

    def __init__(self, lot: Callable[[], float]) -> None:
        self._lanes: dict[int, Lane] = {}
        self._fronts: Marks[int] = Marks(0)
        self._life: str | None = None
        self._next_look = 0.0
        self._turn = first_turn(lot())
        self._clock: datetime | None = None
        self._last = 0
        self._generation = 0
        self._weights: dict[LimitName, float] = {}
        """What people have set for queues and single keys."""
        self.shares = Shares(lot)
        self._keys = Keys(lot)
        self._running: dict[UUID, int] = {}
        """Jobs that were claimed here and belong to a key, which is the one that has room when they end."""

    def forget(self) -> None:
        """Start anew: the connection was lost, so that another server may have taken over."""
        self._lanes.clear()
        self._keys.forget()
        self._fronts = Marks(0)
        self._next_look = 0.0
        self._life = self._clock = None
        self._last = 0
        self._generation += 1

    def look_soon(self) -> None:
        """Look before the next claim: something became ready by this very store."""
        self._next_look = 0.0

    def look_due(self, monotonic: float) -> bool:
        """Tell whether it is time to look."""
        return monotonic >= self._next_look or self._keys.few_left or (by_age(self._turn) and not self.knows_all)

    @property
    def settled(self) -> bool:
        """Whether the last look was enough; see `Keys`."""
        return self._keys.settled

    @property
    def knows_all(self) -> bool:
        """Whether no more keys wait than a look sees."""
        return self._keys.all_on_offer

    def question(self) -> Question:
        """Return what a look asks for."""
        lanes = [*self._lanes.values(), *self._keys.left.values()]
        return Question(
            [lane.entry for lane in lanes],
            [lane.marks.base for lane in lanes],
            self._fronts.base,
            {lane.entry: lane.marks.reached for lane in lanes} | {FRONTS: self._fronts.reached},
            self._generation,
            self._clock,
            self._last,
            self._keys.question(by_age=by_age(self._turn)),
        )

    def looked(
        self, question: Question, rows: Sequence[Row], snapshot: Snapshot, chosen: str | None = None, *, at: float, took: float
    ) -> bool:
        """Take in what a look saw; False when it must be made again, because what it was asked from no longer holds.

        `chosen` is what people have set about limits.

        Looks may be under way side by side: what has changed is judged against what was remembered when this one was sent.
        """
        if question.generation != self._generation:
            return False
        went_back = question.clock is not None and snapshot.now < question.clock
        if (self._life is not None and snapshot.life != self._life) or went_back or snapshot.last < question.last:
            self.forget()
            return False
        self._life = snapshot.life
        self._clock = snapshot.now if self._clock is None else max(self._clock, snapshot.now)
        self._last = max(self._last, snapshot.last)
        self._next_look = at + min(LOOK_AT_LEAST_EVERY, max(LOOK_EVERY, LOOK_SHARE * took))
        reached = question.reached
        entered = min((row[11] for row in rows if row[11] is not None), default=None)
        _take_in(self._fronts, entered, reached.get(FRONTS, 0), snapshot)
        fresh: set[int] = set()
        self._weights = _weights(chosen)
        for entry, queue, task, priority, requires, fifo, limited, head_place, head_at, front_place, front_at, *keyed in rows:
            if entry is None:
                continue
            lane = self._lanes.get(entry) or self._keys.left.pop(entry, None)
            if lane is None:
                lane = Lane(entry, queue, priority, needs_of(tuple(msgspec.json.decode(requires))), fifo=fifo)
                lane.counted = keyed[1] or 0
            self._lanes[entry] = lane
            lane.tasks.add(task)
            if lane.keyed:
                lane.limited, lane.wide = True, limited
            else:
                lane.limited = limited if entry not in fresh else lane.limited or limited
            if entry not in fresh:
                fresh.add(entry)
                base = lane.marks.base
                _take_in(lane.marks, head_place, reached.get(entry, 0), snapshot)
                if lane.marks.base > base:
                    lane.passed = 0
                lane.head_at = head_at
                lane.front_at, lane.front_place = front_at, front_place or 0
        self._keys.looked(question.keys, [row for row in rows if row[12] is not None], self._lanes)
        self._keys.leave(
            [self._lanes.pop(entry) for entry, lane in [*self._lanes.items()] if lane.keyed and entry not in fresh]
        )
        return True

    def choose(self, request: ClaimRequest, *, at: float, blindly: bool = False, again: bool = False) -> list[Lane]:
        """Return the lanes to claim from, in order: those that serve the request and are believed to hold something.

        Each is told how many jobs to give before the others were asked. `at`: now, by the monotonic clock.

        Of lanes whose heads wait equally long, the one with the lower place comes first. `blindly`: also those that are
        believed to be empty, as if something had just come; none where those are many, or have an order of their own to keep.
        `again`: for the same claim as before, which has brought nothing, from keys that are on offer now.

        A key that was found to be full is left out until it is time to ask again, unless the claim was told to look: who has
        ended a job of it here has noted that there is room (`freed`), and others tell (decision 0031).
        """
        turn = self._turn - 1 if again else self._turn
        offered = self._keys.on_offer(by_age=by_age(turn))
        serving = [
            lane
            for lane in self._lanes.values()
            if (not lane.limited if blindly else lane.oldest() is not None)
            and (not lane.keyed or (lane.key in offered and (request.look or lane.wide or lane.held_until <= at)))
            and lane.serves(request, self._clock)
        ]
        if blindly and (len(serving) > SPARE_LANES or self._clock is None or any(lane.fifo for lane in serving)):
            return []
        heads = [
            Head(
                lane.entry,
                lane.priority,
                lane.oldest() or cast("datetime", self._clock),
                lane.queue,
                lane.retries,
                self._weight(lane),
                held=lane.held_until > at,
            )
            for lane in sorted(serving, key=lambda lane: lane.marks.hint)
        ]
        ordered = order(heads, turn, first=request.first, retries_first=request.retries_first)
        shares = self.shares.spread(ordered, request.limit, turn, retries_first=request.retries_first)
        self._turn = turn + 1
        for head, quota in shares:
            self._lanes[head.lane].quota = quota
        return [self._lanes[head.lane] for head, _ in shares]

    def laps(self, request: ClaimRequest) -> dict[int, Lap]:
        """Return how far keys have come on offer that a worker may claim from, where more wait than are on offer at once."""
        return self._keys.rotation.laps(self._keys.serving(lambda lane: lane.serves(request, self._clock)))

    def went_round(self, begun: Mapping[int, Lap]) -> bool:
        """Tell whether every key has been on offer since then."""
        return self._keys.rotation.went_round(begun)

    def held_for(self, request: ClaimRequest, at: float) -> float | None:
        """Return in how many seconds it is worth asking for what a claim has left out because it was full."""
        if request.look:
            return None
        waits = [lane.held_until - at for lane in self._lanes.values() if lane.keyed and lane.held_until > at and not lane.wide]
        return min(waits, default=None)

    def runs(self, lane: int, job_ids: Iterable[UUID]) -> None:
        """Take note of jobs of a key that run now."""
        for job_id in job_ids:
            self._running[job_id] = lane
        while len(self._running) > MOST_RUNNING:
            del self._running[next(iter(self._running))]

    def freed(self, job_ids: Iterable[UUID]) -> None:
        """Take note that jobs run no more: their keys have room."""
        if self._running:
            for job_id in job_ids:
                if (key := self._running.pop(job_id, None)) is not None:
                    for entry in (key, key | RETRIES):
                        if entry in self._lanes:
                            self._lanes[entry].held_until = 0.0

    def turned(self, lanes: Sequence[Lane], jobs: Mapping[int, int], left: Mapping[int, float | None], limit: int) -> None:
        """Take note of who has had his turn: so many jobs were taken of each lane; `left` as in `claimed_limited`."""
        rotation = self._keys.rotation
        for lane in lanes:
            if took := jobs.get(lane.entry, 0):
                self.shares.took(lane.entry, took, limit)
                rotation.took(lane.counted, lane.key, took, self._weight(lane) or 1.0)
            elif lane.entry not in left or left[lane.entry] is not None:
                rotation.missed(lane.counted, lane.key)

    def _weight(self, lane: Lane) -> float | None:
        key = lane.needs.limit
        return None if key is None else self._weights.get(key.name, key.weight)

    def weights_of(self, queues: frozenset[str] | None) -> dict[str, float]:
        """Return what people have set for the turns of queues, as last seen."""
        return {
            name.name: weight
            for name, weight in self._weights.items()
            if name.kind is LimitKind.QUEUE and (queues is None or name.name in queues)
        }

    def all(self) -> list[Lane]:
        """Return every known lane."""
        return list(self._lanes.values())


def runs(lanes: Sequence[Lane], limit: int, *, at: float = 0.0) -> Iterator[list[Lane]]:
    """Split lanes, in order, into what one statement claims from, for a claim of `limit` jobs.

    A `fifo` lane stands alone: it may stop short at a job of an unknown task, and must not use up the limit of the lanes
    behind it. Of the others the first statement names a few, as each is believed to hold something: a claim does not send and
    read a hundred lanes to take all it wants from the first. Where those give too little, a second one names the rest. Each
    lane that limits hold for is counted before anything is taken: there the first statement names a few more than there
    are jobs wanted, for each may give but one. Those that were found full when last asked, which a claim that looks asks all
    the same, stand for nothing in that number (`at`: now, by the monotonic clock): a second statement is a second transaction,
    and costs more.
    """
    few = min(limit, SPARE_LANES) + SPARE_LANES
    for (fifo, limited), group in groupby(lanes, key=lambda lane: (lane.fifo, lane.limited)):
        if fifo:
            yield from ([lane] for lane in group)
            continue
        together = list(group)
        if limited:
            hopeful = [index for index, lane in enumerate(together) if lane.held_until <= at]
            wanted = min(limit, LIMITED_LANES) + SPARE_LANES
            first = hopeful[wanted - 1] + 1 if len(hopeful) >= wanted else len(together)
            first = min(first, max(wanted, LIMITED_LANES))
            yield together[:first]
            yield from (together[begin : begin + LIMITED_LANES] for begin in range(first, len(together), LIMITED_LANES))
            continue
        yield together[:few]
        if rest := together[few:]:
            yield rest


class Reached(NamedTuple):
    """How far a claim came in one lane, or (its negative number) in a front."""

    entry: int
    place: int
    ready_at: datetime
    """Since when the last of what was taken waited."""
    jobs: int = 1
    """How many it took there."""


def claimed(lanes: Sequence[Lane], reached: Iterable[Reached], *, full: bool) -> None:
    """Take in what a claim brought: marks move behind its rows, lanes that were read to their end are believed empty.

    `full`: it brought as much as it was asked for.
    """
    last: dict[int, Reached] = {}
    fifo = lanes[0] if lanes and lanes[0].fifo else None  # which is alone in its claim
    for one in reached:
        if fifo is not None and one.entry > 0:
            fifo.passed += one.jobs
        elif fifo is not None:
            fifo.passed_in_front += one.jobs
        if one.entry not in last or last[one.entry].place < one.place:
            last[one.entry] = one
    # lanes are read in order, each front first: a full claim read all before its last row to their end, and none behind it
    gave = [index for index, lane in enumerate(lanes) if lane.entry in last or -lane.entry in last]
    stop = gave[-1] if full else len(lanes)
    for index, lane in enumerate(lanes):
        front, main = last.get(-lane.entry), last.get(lane.entry)
        if main is not None:
            lane.marks.took(main.place + 1)
        if index < stop:
            lane.head_at = lane.front_at = None
        elif index == stop and main is not None:
            lane.front_at, lane.head_at = None, main.ready_at
        elif index == stop and front is not None:
            lane.front_at, lane.front_place = front.ready_at, front.place + 1


def claimed_limited(lanes: Sequence[Lane], reached: Iterable[Reached], left: Mapping[int, float | None], *, at: float) -> None:
    """Take in what a claim under limits brought.

    `left` names the lanes that may have more, and in how many seconds it is worth asking again those that are held back.
    """
    last = {one.entry: one for one in sorted(reached, key=lambda one: one.place)}
    for lane in lanes:
        front, main = last.get(-lane.entry), last.get(lane.entry)
        if main is not None:
            lane.marks.took(main.place + 1)
            lane.front_at, lane.head_at = None, main.ready_at
        elif front is not None:
            lane.front_at, lane.front_place = front.ready_at, front.place + 1
        if lane.entry not in left:
            lane.head_at = lane.front_at = None
        lane.held_until = at + (left.get(lane.entry) or 0.0)


def _weights(chosen: str | None) -> dict[LimitName, float]:
    """Return the weights among what people have set."""
    if chosen is None:
        return {}
    rules = [
        (LimitName(LimitKind(kind), name, key), msgspec.json.decode(rule, type=LimitRule))
        for kind, name, key, rule in msgspec.json.decode(chosen)
    ]
    return {name: rule.weight for name, rule in rules if rule.weight is not None}


def _take_in(marks: Marks[int], first: int | None, reached: int, snapshot: Snapshot) -> None:
    """Move marks by a look. Nothing visible lies below what it saw first, whoever took it: an onlooker's marks move too."""
    marks.looked(first, reached=reached, xmin=snapshot.xmin, xnext=snapshot.xnext)
    marks.took(snapshot.last + 1 if first is None else first)
