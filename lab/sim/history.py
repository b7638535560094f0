"""What was done to the store, in the order in which it was done: what the checker replays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.states import State
    from holdfast.store.port import AttemptView, EventView, JobView
    from lab.sim.plan import Order
    from lab.sim.world import Moment


@dataclass(frozen=True, slots=True)
class Done:
    """One operation that the store has carried out, whether or not its caller ever heard of it."""

    moment: Moment
    node: str
    life: int
    """How many processes had this name before."""
    name: str
    given: tuple[Any, ...]
    """Positional and named."""
    answer: Any

    @property
    def time(self) -> float:
        """When, in seconds of the simulated world."""
        return self.moment.time

    @property
    def now(self) -> datetime:
        """When, by the store's clock."""
        return self.moment.now


@dataclass(slots=True)
class Run:
    """One run of a handler, from its first line to its last; without an end it was cut off with its process."""

    node: str
    life: int
    """How many processes had this name before."""
    job_id: UUID
    attempt: int
    began: float
    ended: float | None = None


class Trouble(NamedTuple):
    """A time in which something keeps a process from doing what it should, until it has got over it."""

    node: str
    """Empty: all of them."""
    begin: float
    end: float


@dataclass(slots=True)
class History:
    """Everything that happened in one run of the simulation."""

    done: list[Done] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    acknowledged: dict[UUID, Order] = field(default_factory=dict)
    """Jobs whose enqueue was answered, with what was ordered."""
    frozen: list[tuple[str, float, float]] = field(default_factory=list)
    """Which node stood still, from when until when."""
    lives: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    """From when until when which process lived."""
    troubles: list[Trouble] = field(default_factory=list)
    over: float = 0.0
    """When all had ended."""

    def undisturbed(self, node: str, life: int, begin: float, end: float, *, alone: bool = False) -> bool:
        """Tell whether a process lived and could do what it should; `alone`: what befell everybody does not count."""
        born, died = self.lives.get((node, life), (math.inf, 0.0))
        whose = (node,) if alone else (node, "")
        return (
            born <= begin
            and died > end
            and not any(one == node and since <= end and until >= begin for one, since, until in self.frozen)
            and not any(one.node in whose and one.begin <= end and one.end >= begin for one in self.troubles)
        )

    def in_order(self) -> list[Done]:
        """Return what was done in the store's own order."""
        return sorted(self.done, key=lambda one: one.moment.sequence)


@dataclass(frozen=True, slots=True)
class Found:
    """What a run has left behind, as the store shows it."""

    jobs: dict[UUID, JobView]
    events: Mapping[UUID, Sequence[EventView]]
    attempts: Mapping[UUID, Sequence[AttemptView]]
    counts: dict[State, int]
    parts: Mapping[UUID, frozenset[str]]
    """The names of what each job has got done."""
    ledger: list[str] | None
    """What effects wrote into a table of their own; `None`: the store has no tables."""
