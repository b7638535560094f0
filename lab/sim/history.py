"""What was done to the store, in the order in which it was done: what the checker replays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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


@dataclass(slots=True)
class History:
    """Everything that happened in one run of the simulation."""

    done: list[Done] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    acknowledged: dict[UUID, Order] = field(default_factory=dict)
    """Jobs whose enqueue was answered, with what was ordered."""
    frozen: list[tuple[str, float, float]] = field(default_factory=list)
    """Which node stood still, from when until when."""
    killed: dict[tuple[str, int], float] = field(default_factory=dict)
    """When which process was killed."""
    calm_since: float = 0.0

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
    ledger: list[str] | None
    """What effects wrote into a table of their own; `None`: the store has no tables."""
