"""Joining hints: many that wait become one that says all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.notify.port import Hint

if TYPE_CHECKING:
    from uuid import UUID


class Gathered:
    """Hints that wait, joined as they come: a burst costs what it says, not its square. For one thread at a time."""

    __slots__ = ("_anything", "_jobs", "_later", "_queues", "_waiters")

    def __init__(self) -> None:
        self._queues: set[str] = set()
        self._jobs: set[UUID] = set()
        self._later = False
        self._anything = False
        self._waiters = False

    def add(self, hint: Hint) -> None:
        """Keep what `hint` says."""
        self._queues |= hint.queues
        self._jobs |= hint.jobs
        self._later = self._later or hint.later
        self._anything = self._anything or hint.anything
        self._waiters = self._waiters or hint.waiters

    def take(self) -> Hint:
        """Return all that was kept as one hint, and keep nothing of it. Empty when nothing was."""
        hint = Hint(frozenset(self._queues), self._later, frozenset(self._jobs), self._anything, self._waiters)
        self._queues.clear()
        self._jobs.clear()
        self._later = self._anything = self._waiters = False
        return hint

    def __bool__(self) -> bool:
        return bool(self._queues or self._jobs or self._later or self._anything or self._waiters)
