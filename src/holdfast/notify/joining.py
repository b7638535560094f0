"""Joining hints: many that wait become one that says all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.notify.port import MOST_NAMED, Hint, first_few, highest

if TYPE_CHECKING:
    from uuid import UUID


class Gathered:
    """Hints that wait, joined as they come: a burst costs what it says, not its square. For one thread at a time."""

    __slots__ = ("_anything", "_jobs", "_later", "_priority", "_queues", "_ready", "_shown", "_waiters")

    def __init__(self) -> None:
        self._queues: set[str] = set()
        self._jobs: set[UUID] = set()
        self._later = False
        self._anything = False
        self._waiters = False
        self._priority: int | None = None
        self._shown = False
        self._ready: tuple[UUID, ...] = ()

    def add(self, hint: Hint) -> None:
        """Keep what `hint` says."""
        if hint.queues:
            self._priority = highest(self._queued(), hint) if self._queues else hint.priority
            self._queues |= hint.queues
        self._jobs |= hint.jobs
        self._later = self._later or hint.later
        self._anything = self._anything or hint.anything
        self._waiters = self._waiters or hint.waiters
        self._shown = self._shown or hint.shown
        if hint.ready and len(self._ready) < MOST_NAMED:
            self._ready = first_few(self._ready, hint.ready)

    def _queued(self) -> Hint:
        return Hint(frozenset(("",)), priority=self._priority)

    def take(self) -> Hint:
        """Return all that was kept as one hint, and keep nothing of it. Empty when nothing was."""
        hint = Hint(
            frozenset(self._queues),
            self._later,
            frozenset(self._jobs),
            self._anything,
            self._waiters,
            self._priority,
            self._shown,
            self._ready,
        )
        self._queues.clear()
        self._jobs.clear()
        self._later = self._anything = self._waiters = self._shown = False
        self._priority = None
        self._ready = ()
        return hint

    def __bool__(self) -> bool:
        return bool(self._queues or self._jobs or self._later or self._anything or self._waiters or self._shown)
