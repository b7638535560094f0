"""How many workers there should be: a policy without clock, store or chance.

Up quickly, down slowly. More workers come when jobs wait longer than they should and the slots that are there are taken; fewer
when for a while fewer would have done. Two thresholds that lie apart and two rests keep it from swinging: a worker is let go
`down_after` seconds after the last one came at the earliest, so the direction changes at most twice in that time. One that is
let go while it runs something rests: it claims nothing, and ends once nothing runs. Until then it may be taken back, and is
before another is started.

What is decided now helps when workers have started: what that takes is measured, and decided so much earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Final

from holdfast.core.spans import span
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

EAGER: Final = 0.5
"""The share of the waiting target at which more workers come, at the latest: they need the rest of it to start."""
SHORTEST: Final = 0.2
"""The share of the waiting target that counts as left, however long workers take to start: nothing is decided in no time."""
BUSY: Final = 0.5
"""The share of slots that is taken at least before more workers come: where slots stay free, more of them would not help."""
CALM: Final = 0.7
"""The share of slots that may be taken once there are fewer."""
SPARE: Final = 0.4
"""The same where jobs wait beside slots that stay free, held back by limits of their keys: below `BUSY`, or more would come."""
START: Final = 30.0
"""Seconds that workers get to come up; then more may come without them."""
LEAST_INTERVAL: Final = 0.05
"""Seconds between two decisions at least."""
FALL: Final = 4
"""At most one in so many of the workers that are too many go at once, at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Between how many workers it may choose, and how quickly. Times are in seconds."""

    default_count: int = 2
    max_count: int = 8
    waiting_target: float = 5.0
    """How long a job may wait before it starts."""
    up_after: float = 2.0
    """The rest after more came, until even more come."""
    down_after: float = 30.0
    """For how long fewer must have been enough, and how long none has come, before one goes."""
    down_every: float = 5.0
    """The rest after some went, until more go."""

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if self.default_count < 1:
            raise BadSetting(f"default_count must be 1 or more, not {self.default_count}")
        if self.max_count < self.default_count:
            raise BadSetting(
                f"max_count is {self.max_count} and default_count {self.default_count}: the most must not be below the least"
            )
        for name in ("waiting_target", "down_after"):
            if not getattr(self, name) > 0:
                raise BadSetting(f"{name} must be more than 0 seconds, not {getattr(self, name):g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was seen at one moment."""

    now: float
    """Of a clock that only goes forward."""
    ready: int
    """Jobs that wait for a slot, and would start in one."""
    running: int
    """Jobs that these workers hold."""
    workers: int
    """Workers that are up and claim."""
    resting: tuple[int, ...] = ()
    """How many jobs each worker holds that was let go and may be taken back, the fewest first."""
    draining: int = 0
    """Workers that end what they run and then themselves, and are not to be had back."""
    slots: int
    """Of one worker."""
    service: float | None = None
    """Seconds that a job takes on average; `None`: not measured yet."""
    oldest: float | None = None
    """Seconds that the oldest ready job has waited."""
    held: int = 0
    """Jobs that a limit holds back, which are none of those that are ready."""
    start: float | None = None
    """Seconds that a worker needs to come up; `None`: not measured yet."""
    not_up: tuple[str, ...] = ()
    """The names of workers that were started, as far as they still are, and are not up."""
    crashing: str = ""
    """What keeps workers from staying up, in words; empty while nothing does."""
    too_heavy: str = ""
    """Which worker takes too much memory and is not replaced for it, in words."""

    @property
    def capacity(self) -> int:
        """How many jobs the workers that are up can hold."""
        return self.workers * self.slots

    @property
    def waiting(self) -> int:
        """How many ready jobs find no slot that is free."""
        return max(0, self.ready - max(0, self.capacity - self.running))


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the policy remembers from one decision to the next."""

    count: int
    raised_at: float | None = None
    lowered_at: float | None = None
    low_since: float | None = None
    """Since when fewer workers would have been enough, without a break."""
    lacking_since: float | None = None
    """Since when fewer workers are up than there should be, without a break."""
    given_up: int = 0
    """How many of those that are not up nobody waits for any more."""
    seen: tuple[float, int] | None = None
    """When it last looked, and how many jobs waited then."""


class Obstacle(StrEnum):
    """Why the number stays although something waits, or should be up."""

    MOST = "most"
    """There are as many as there may be."""
    LIMITS = "limits"
    """Limits of queues or tasks hold jobs back: more workers would not start them."""
    FREE = "free_slots"
    """Jobs wait for long beside slots that stay free: for a capability, a limit of their key, or the database."""
    CRASHES = "crashes"
    """Workers crash, or end although nobody asked them to, and are started ever later."""
    NOT_UP = "not_up"
    """Workers were started and do not come up."""
    MEMORY = "memory"
    """New workers take too much memory as soon as they are up, so none is replaced for it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How many workers there should be, why, what to remember, and what keeps the number as it is, if anything does."""

    count: int
    reason: str
    memory: Memory
    obstacle: Obstacle | None = None


def begin(scaling: Scaling) -> Decision:
    """Return the decision that a fleet starts with."""
    count = scaling.default_count
    return Decision(count, f"begins with {count}", Memory(count=count))


def occupied(leases: Sequence[int], slots: int) -> tuple[int, int]:
    """Return how many slots are taken where workers of so many slots hold these leases, and how many jobs they fetched ahead.

    Those wait as much as what nobody has claimed.
    """
    running = sum(min(held, slots) for held in leases)
    return running, sum(leases) - running


def decide(scaling: Scaling, sample: Sample, memory: Memory) -> Decision:
    """Return how many workers there should be now. Pure: the same input gives the same decision."""
    enough = _enough(scaling, sample)
    low_since = (sample.now if memory.low_since is None else memory.low_since) if enough < memory.count else None
    growth = _growth(sample, memory)
    memory = _waited(sample, replace(memory, low_since=low_since, seen=(sample.now, sample.waiting)))
    if (wanted := _more(scaling, sample, memory, growth)) > memory.count:
        return _raised(scaling, sample, memory, wanted)
    if enough < memory.count and _rested(scaling, sample, memory):
        return _lowered(sample, memory, enough)
    return _stays(scaling, sample, memory)


def _waited(sample: Sample, memory: Memory) -> Memory:
    """Remember how long workers have not been up, and for how many of them it is no use to wait: each gets its time once."""
    lacking = max(0, memory.count - sample.workers)
    if not lacking:
        return replace(memory, lacking_since=None, given_up=0)
    since = sample.now if memory.lacking_since is None else memory.lacking_since
    last = max(since, since if memory.raised_at is None else memory.raised_at)
    given_up = lacking if sample.now - last >= START else min(memory.given_up, lacking)
    return replace(memory, lacking_since=since, given_up=given_up)


def _stays(scaling: Scaling, sample: Sample, memory: Memory) -> Decision:
    """Say what keeps the number as it is: the first of what may, as a person would look for it."""
    obstacle, more = None, ""
    waits = _waits_too_long(scaling, sample)
    if sample.crashing and sample.workers < memory.count:
        obstacle, more = Obstacle.CRASHES, f"; {sample.crashing}"
    elif memory.given_up:
        obstacle, more = Obstacle.NOT_UP, _without(sample, memory)
    elif sample.too_heavy:
        obstacle, more = Obstacle.MEMORY, f"; {sample.too_heavy}"
    elif waits and sample.workers >= memory.count == _most(scaling, sample, memory):
        ends = f", {sample.draining:,} of them end what they run" if sample.draining else ""
        obstacle, more = Obstacle.MOST, f"; {scaling.max_count:,} are the most{ends}"
    elif _is_sparse(sample) and sample.ready and (sample.oldest or 0.0) > EAGER * scaling.waiting_target:
        obstacle, more = Obstacle.FREE, "; slots stay free, more would not help"
    elif sample.held:
        obstacle = Obstacle.LIMITS  # how many they are is said in any case
    return Decision(memory.count, f"stays at {memory.count}: {_backlog(sample)}{more}", memory, obstacle)


# --- up -----------------------------------------------------------------------------------------------------------------


def _growth(sample: Sample, memory: Memory) -> float:
    """Return by how many the jobs that wait became more in a second, since the last look."""
    if memory.seen is None or sample.now <= memory.seen[0]:
        return 0.0
    at, waiting = memory.seen
    return max(0.0, (sample.waiting - waiting) / (sample.now - at))


def _more(scaling: Scaling, sample: Sample, memory: Memory, growth: float) -> int:
    """Return how many workers are wanted, where more are: at most twice as many as there are."""
    came_lately = memory.raised_at is not None and sample.now - memory.raised_at < scaling.up_after
    starting = memory.count - sample.workers > memory.given_up
    if came_lately or starting or not _waits_too_long(scaling, sample) or _is_sparse(sample):
        return memory.count
    # a job needs one slot at most, and less where it is short: others take the slot after it in the time that is left
    share = min(1.0, _service(scaling, sample) / _left(scaling, sample))
    meanwhile = growth * min(sample.start or 0.0, scaling.waiting_target)  # as many come until those that start are up
    # those that are taken back bring only the slots that are free in them
    back = [held for held in sample.resting if held < sample.slots]
    needed, count = sample.running + (sample.waiting + meanwhile) * share, memory.count
    while back and needed > count * sample.slots:
        needed, count = needed + back.pop(0), count + 1
    wanted = max(memory.count + 1, ceil(needed / sample.slots))
    return min(wanted, 2 * memory.count, _most(scaling, sample, memory))


def _most(scaling: Scaling, sample: Sample, memory: Memory) -> int:
    """Return how many there may be: those that drain are processes too. So are those that rest, which come back first."""
    return max(memory.count, scaling.max_count - sample.draining)


def _is_sparse(sample: Sample) -> bool:
    """Tell whether so few slots are taken that more of them would not help."""
    return sample.running < BUSY * sample.capacity


def _waits_too_long(scaling: Scaling, sample: Sample) -> bool:
    """Tell whether jobs wait, or are going to wait, so long that more workers must start now to keep the target."""
    limit = min(EAGER * scaling.waiting_target, _left(scaling, sample))
    return sample.waiting > 0 and (_expected(scaling, sample) > limit or (sample.oldest or 0.0) > limit)


def _left(scaling: Scaling, sample: Sample) -> float:
    """Return the seconds of the waiting target that are left once a worker that is started now is up.

    Deciding takes its time too: from the look that was just too early to the one that sees it up are two, as `up_after` is.
    """
    if sample.start is None:
        return scaling.waiting_target
    return max(SHORTEST * scaling.waiting_target, scaling.waiting_target - sample.start - scaling.up_after)


def _expected(scaling: Scaling, sample: Sample) -> float:
    """Return the seconds until the last of the waiting jobs would start."""
    return sample.waiting * _service(scaling, sample) / max(1, sample.capacity)


def _service(scaling: Scaling, sample: Sample) -> float:
    """Return the seconds that a job takes; before that was measured so many that each job is worth a slot."""
    return scaling.waiting_target if sample.service is None else sample.service


def _raised(scaling: Scaling, sample: Sample, memory: Memory, count: int) -> Decision:
    if sample.service is None:
        outlook = "how long a job takes is not measured yet"
    else:
        outlook = f"at {span(sample.service)} each the last would wait for {span(_expected(scaling, sample))}"
    target = f"the target is {span(scaling.waiting_target)}"
    reason = f"up from {memory.count} to {count}: {_backlog(sample)}; {outlook}, {target}{_without(sample, memory)}"
    return Decision(count, reason, replace(memory, count=count, raised_at=sample.now, low_since=None))


# --- down ---------------------------------------------------------------------------------------------------------------


def _enough(scaling: Scaling, sample: Sample) -> int:
    """Return how many workers would do, with room to spare. What waits counts, unless it is about to find a slot."""
    waits = sample.waiting > 0 or (sample.oldest or 0.0) > EAGER * scaling.waiting_target
    needed = ceil((sample.running + (sample.ready if waits else 0)) / (CALM * sample.slots))
    if _is_sparse(sample):  # what waits beside free slots is held back: as many do as what runs needs
        needed = min(needed, ceil(sample.running / (SPARE * sample.slots)))
    return max(scaling.default_count, needed)


def _rested(scaling: Scaling, sample: Sample, memory: Memory) -> bool:
    """Tell whether it was calm for long enough for a worker to go."""
    since = max(at for at in (memory.low_since, memory.raised_at) if at is not None)
    went_lately = memory.lowered_at is not None and sample.now - memory.lowered_at < scaling.down_every
    return not went_lately and sample.now - since >= scaling.down_after


def _lowered(sample: Sample, memory: Memory, enough: int) -> Decision:
    count = memory.count - ceil((memory.count - enough) / FALL)
    calm = sample.now - (sample.now if memory.low_since is None else memory.low_since)
    reason = f"down from {memory.count} to {count}: {_backlog(sample)}; {enough} would have done for {span(calm)}"
    return Decision(count, reason, replace(memory, count=count, lowered_at=sample.now))


def _backlog(sample: Sample) -> str:
    oldest = "" if sample.oldest is None or not sample.ready else f", the oldest for {span(sample.oldest)}"
    held = f", limits hold back {sample.held:,} more" if sample.held else ""
    return f"{sample.ready:,} wait{oldest}{held}, {sample.running:,} of {sample.capacity:,} slots are taken"


def _without(sample: Sample, memory: Memory) -> str:
    """Say which workers do not come up."""
    if not memory.given_up:
        return ""
    if not sample.not_up:  # they crash, and are not there between two tries
        return f"; {memory.given_up:,} do not come up"
    return f"; {', '.join(sample.not_up)} {'does' if len(sample.not_up) == 1 else 'do'} not come up"
