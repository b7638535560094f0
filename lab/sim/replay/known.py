"""What a replay knows of jobs and leases, as far as the answers tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lab.sim.telling import shown

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Claimed
    from holdfast.core.states import State
    from holdfast.store.port import Reaped
    from lab.sim.history import Done

CLOSE: Final = timedelta(milliseconds=1)
"""What is rounded off when moments are stored."""


@dataclass(slots=True)
class Known:
    """A job, as far as the answers tell."""

    job: NewJob
    created: int
    """How many had been created before."""
    due: datetime | None
    """It must not be claimed before."""
    start_by: datetime | None
    """It must not begin after."""
    first_due: datetime | None
    """When it was due at first."""
    ended: State | None = None
    ended_at: datetime | None = None
    token: UUID | None = None
    """Of the lease that is held now."""
    expires_at: datetime | None = None
    attempts: int = 0
    failures: int = 0
    tokens: set[UUID] = field(default_factory=set)
    """Of leases that were settled by their holder."""
    then: UUID | None = None
    """The next step of its chain."""
    canceling: bool = False
    """Whether somebody was told that it will be canceled unless it ends by itself."""
    canceled: bool = False
    """Whether somebody had it canceled, or replaced."""
    in_front: bool = False
    """Whether it was given back to the front of its line."""
    free: bool = False
    """Whether its lease was flagged: the lapse costs nothing."""
    effective: bool = False
    """Whether its handler has succeeded, and nobody ended it from outside."""
    parts: set[str] = field(default_factory=set)
    """What it was told that it has got done."""
    lines: set[str] = field(default_factory=set)
    """What it was told that it has logged."""
    marks: set[tuple[int, str, str]] = field(default_factory=set)
    """The stages it was told that it has entered and left: attempt, event, name."""
    late: set[int] = field(default_factory=set)
    """Attempts that were settled after their lease had lapsed."""

    @property
    def waits(self) -> bool:
        """Whether it may be claimed, now or later."""
        return self.ended is None and self.token is None

    @property
    def lane(self) -> tuple[str, str, int]:
        """What orders it among others."""
        return (self.job.queue, self.job.task, self.job.priority)


class Holder(NamedTuple):
    """Who holds a lease."""

    node: str
    life: int
    claimed_at: float

    @property
    def process(self) -> tuple[str, int]:
        """Which process that is."""
        return (self.node, self.life)


class Lapse(NamedTuple):
    """A lease that was ended because it had lapsed."""

    done: Done
    reaped: Reaped
    expires_at: datetime
    holder: Holder

    @property
    def at(self) -> float:
        """When it lapsed, in seconds of the simulated world."""
        return self.done.time - (self.done.now - self.expires_at).total_seconds()


class Ending(NamedTuple):
    """An attempt that its worker has settled."""

    done: Done
    job_id: UUID
    attempt: int
    code: str
    """Of the error, where there was one."""


class Replaying:
    """What a replay has seen so far, and what was wrong with it."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.by_clock: list[str] = []
        """What is wrong too, unless somebody has set the store's clock."""
        self.jobs: dict[UUID, Known] = {}
        self.deleted: set[UUID] = set()
        self.fired: Counter[tuple[str, Any]] = Counter()
        self.claims: list[tuple[float, str, Claimed]] = []
        self.turns: Counter[tuple[str, int]] = Counter()
        self.aging: dict[tuple[str, int], int] = {}
        """Where in its round of ten the claims of a process go by age, as the first of them showed: that is drawn by lot."""
        """How often each process has claimed."""
        self.loads: list[tuple[Done, int]] = []
        """How many leases a worker held after each claim."""
        self.to_recall: dict[tuple[UUID, int], frozenset[str]] = {}
        """What each attempt is to know that earlier ones have got done."""
        self.overdue: set[tuple[UUID, int]] = set()
        """Attempts that must not begin: the job has waited for too long."""
        self.holders: dict[UUID, Holder] = {}
        """By the token of a lease."""
        self.lapses: list[Lapse] = []
        self.endings: list[Ending] = []
        """Apart from those that a transaction of the handler brought about."""
        self.asked_to_stop: list[tuple[Done, UUID, int, Holder]] = []
        """Cancels of running jobs, with the attempt and who ran it."""
        self.paused: set[str] = set()
        self.pruned: list[tuple[datetime, int]] = []
        """When ended jobs were pruned, and how many."""

    def chain_end(self, job_id: UUID) -> State | None:
        """Return how the chain of a job has ended; `None`: it is live."""
        last = self.last_step(job_id)
        return None if last is None else last.ended

    def last_step(self, job_id: UUID) -> Known | None:
        """Return the last step of the chain of a job."""
        known = self.jobs.get(job_id)
        while known is not None and known.then is not None:
            known = self.jobs.get(known.then)
        return known

    def say(self, done: Done, what: str) -> None:
        """Note that something is wrong."""
        self.wrong.append(f"at {done.time:.3f} s {done.node} {done.name}: {what}")

    def say_by_clock(self, done: Done, what: str) -> None:
        """Note that something is wrong unless the store's clock was set."""
        self.by_clock.append(f"at {done.time:.3f} s {done.node} {done.name}: {what}")

    def end(self, done: Done, known: Known, state: State) -> None:
        """Take note of the end of a job."""
        if known.ended is not None:
            self.say(done, f"{shown(known.job)} had {known.ended}, and now has {state}")
        known.ended, known.ended_at, known.token = state, done.now, None
