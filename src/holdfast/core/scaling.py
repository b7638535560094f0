"""How many workers there should be: a policy without clock, store or chance.

Up quickly, down slowly. More workers come when jobs wait longer than they should and the slots that are there are taken; fewer
when for a while fewer would have done. Two thresholds that lie apart and two rests keep it from swinging: a worker is let go
`down_after` seconds after the last one came at the earliest, so the direction changes at most twice in that time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from holdfast.core.spans import span
from holdfast.errors import BadSetting

EAGER: Final = 0.5
"""The share of the waiting target at which more workers come: they need the rest of it to start."""
BUSY: Final = 0.5
"""The share of slots that is taken at least before more workers come: where slots stay free, more of them would not help."""
CALM: Final = 0.7
"""The share of slots that may be taken once there are fewer."""
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
    """Jobs that wait for a slot."""
    running: int
    """Jobs that these workers hold."""
    workers: int
    """Workers that are up and claim."""
    draining: int = 0
    """Workers that end what they run, and then themselves."""
    slots: int
    """Of one worker."""
    service: float | None = None
    """Seconds that a job takes on average; `None`: not measured yet."""
    oldest: float | None = None
    """Seconds that the oldest ready job has waited."""

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


@dataclass(frozen=True, slots=True)
class Decision:
    """How many workers there should be, why, and what to remember."""

    count: int
    reason: str
    memory: Memory


def begin(scaling: Scaling) -> Decision:
    """Return the decision that a fleet starts with."""
    count = scaling.default_count
    return Decision(count, f"begins with {count}", Memory(count=count))


def decide(scaling: Scaling, sample: Sample, memory: Memory) -> Decision:
    """Return how many workers there should be now. Pure: the same input gives the same decision."""
    enough = _enough(scaling, sample)
    low_since = (sample.now if memory.low_since is None else memory.low_since) if enough < memory.count else None
    memory = replace(memory, low_since=low_since)
    if (wanted := _more(scaling, sample, memory)) > memory.count:
        return _raised(scaling, sample, memory, wanted)
    if enough < memory.count and _rested(scaling, sample, memory):
        return _lowered(sample, memory, enough)
    return Decision(memory.count, f"stays at {memory.count}: {_backlog(sample)}", memory)


# --- up -----------------------------------------------------------------------------------------------------------------


def _more(scaling: Scaling, sample: Sample, memory: Memory) -> int:
    """Return how many workers are wanted, where more are: at most twice as many as there are."""
    came_lately = memory.raised_at is not None and sample.now - memory.raised_at < scaling.up_after
    starting = sample.workers < memory.count
    if came_lately or starting or not _waits_too_long(scaling, sample) or sample.running < BUSY * sample.capacity:
        return memory.count
    # a job needs one slot at most, and less where it is short: others take the slot after it within the target
    share = min(1.0, _service(scaling, sample) / scaling.waiting_target)
    wanted = max(memory.count + 1, ceil((sample.running + sample.waiting * share) / sample.slots))
    most = max(memory.count, scaling.max_count - sample.draining)  # those that drain are processes too
    return min(wanted, 2 * memory.count, most)


def _waits_too_long(scaling: Scaling, sample: Sample) -> bool:
    """Tell whether jobs wait, or are going to wait, so long that more workers must start now to keep the target."""
    limit = EAGER * scaling.waiting_target
    return sample.waiting > 0 and (_expected(scaling, sample) > limit or (sample.oldest or 0.0) > limit)


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
    reason = f"up from {memory.count} to {count}: {_backlog(sample)}; {outlook}, {target}"
    return Decision(count, reason, replace(memory, count=count, raised_at=sample.now, low_since=None))


# --- down ---------------------------------------------------------------------------------------------------------------


def _enough(scaling: Scaling, sample: Sample) -> int:
    """Return how many workers would do, with room to spare."""
    needed = ceil((sample.running + sample.waiting) / (CALM * sample.slots))
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
    return f"{sample.ready:,} wait{oldest}, {sample.running:,} of {sample.capacity:,} slots are taken"
