"""What was done to the store, in the order in which it was done: what the checker replays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.states import State
    from holdfast.store.port import AttemptView, EventView, JobView
    from lab.sim.orders import Order
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
    parts: frozenset[str] = frozenset()
    """What it was told that earlier attempts have got done."""


class Trouble(NamedTuple):
    """A time in which something keeps a process from doing what it should, until it has got over it."""

    node: str
    """Empty: all of them."""
    begin: float
    end: float
    lasts: bool = True
    """Whether it takes its time, and is not over in a moment."""

    def during(self, begin: float, end: float) -> bool:
        """Tell whether some of it falls into a time."""
        return self.begin <= end and self.end >= begin


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
    signed_off: set[tuple[str, int]] = field(default_factory=set)
    """Processes that were asked to stop, and did in peace."""
    troubles: list[Trouble] = field(default_factory=list)
    over: float = 0.0
    """When all had ended."""

    def undisturbed(self, node: str, life: int, begin: float, end: float, *, alone: bool = False) -> bool:
        """Tell whether a process lived and could do what it should; `alone`: what befell everybody does not count."""
        whose = (node,) if alone else (node, "")
        return self._went_on(node, life, begin, end) and not any(one.during(begin, end) for one in self._troubles(whose))

    def within_reach(self, node: str, life: int, begin: float, end: float) -> bool:
        """Tell whether a process lived, went on and reached the store; what befell single requests does not count."""
        lasting = (one for one in self._troubles((node, "")) if one.lasts)
        return self._went_on(node, life, begin, end) and not any(one.during(begin, end) for one in lasting)

    def stood_still(self, node: str, begin: float, end: float) -> bool:
        """Tell whether a process was frozen at some time."""
        return any(one == node and since <= end and until >= begin for one, since, until in self.frozen)

    def _went_on(self, node: str, life: int, begin: float, end: float) -> bool:
        born, died = self.lives.get((node, life), (math.inf, 0.0))
        return born <= begin and died > end and not self.stood_still(node, begin, end)

    def _troubles(self, whose: tuple[str, ...]) -> Iterator[Trouble]:
        return (one for one in self.troubles if one.node in whose)

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
    lines: Mapping[UUID, frozenset[str]]
    """What each job that reports has logged."""
    ledger: list[str] | None
    """What effects wrote into a table of their own; `None`: the store has no tables."""
