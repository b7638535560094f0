"""The port of notifications: a hint wakes, polling is the truth.

A hint may come late, twice or never; it carries no work, only where to look. Sending one never fails the operation it
tells of, and nobody hears it before that has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol
from uuid import UUID

import msgspec

MOST_NAMED: Final = 16
"""Jobs that a hint names at most: one may stand for thousands."""


class Hint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where something may have changed. Survives JSON."""

    queues: frozenset[str] = frozenset()
    """Queues in which jobs have become ready."""
    later: bool = False
    """Jobs were scheduled: the next due time may be nearer than before."""
    jobs: frozenset[UUID] = frozenset()
    """Running jobs that were reaped, ended from outside or asked to stop: their workers should look at their leases."""
    anything: bool = False
    """Something changed, and this channel cannot say what."""
    waiters: bool = False
    """Waiters were created in a caller's transaction: their blockers may have ended unseen."""
    priority: int | None = None
    """The highest priority of the jobs that have become ready, where it is not the usual one."""
    shown: bool = False
    """Something that only people look at has changed: progress, a worker. Not worth a word where words are dear."""
    ready: tuple[UUID, ...] = ()
    """Some of the jobs that have become ready, `MOST_NAMED` at most, where the sender knows them. For whoever looks into what
    was told to whom: a claim takes what is due in its order, named or not."""

    def __or__(self, other: Hint) -> Hint:
        """Return one hint that says both."""
        return Hint(
            self.queues | other.queues,
            self.later or other.later,
            self.jobs | other.jobs,
            self.anything or other.anything,
            self.waiters or other.waiters,
            highest(self, other),
            self.shown or other.shown,
            first_few(self.ready, other.ready),
        )

    def __bool__(self) -> bool:
        """Tell whether it says anything to anyone but people who look."""
        return bool(self.queues or self.later or self.jobs or self.anything or self.waiters)


USUAL_PRIORITY: Final = 5


def highest(one: Hint, other: Hint) -> int | None:
    """Return the highest priority that two hints tell of; `None`: the usual one, or none because they tell of no jobs."""
    found = max(
        (USUAL_PRIORITY if hint.priority is None else hint.priority for hint in (one, other) if hint.queues), default=None
    )
    return None if found == USUAL_PRIORITY else found


def first_few(one: tuple[UUID, ...], other: tuple[UUID, ...]) -> tuple[UUID, ...]:
    """Return the jobs that two hints name, each once, and no more than one hint may name."""
    return tuple(dict.fromkeys(one + other))[:MOST_NAMED] if one and other else one or other


SHOWN: Final = Hint(shown=True)
"""Something that only people look at has changed."""


class Serving(msgspec.Struct, frozen=True):
    """A listener that claims the jobs it hears of."""

    queues: frozenset[str] | None = None
    """From which queues; `None`: from all."""


class Handed(msgspec.Struct, frozen=True):
    """Hints of work that one listener alone was given: it owes an answer."""

    entries: tuple[object, ...] = ()
    """By which the channel knows them."""
    hint: Hint = Hint()
    """What they said."""

    def __bool__(self) -> bool:
        """Tell whether an answer is owed."""
        return bool(self.entries)


NOTHING_HANDED: Final = Handed()

Listener = Callable[[Hint], None]
"""Called on the event loop that called `listen`, once for each hint or for several joined. Must not block or raise."""


class Notifier(Protocol):
    """A channel for hints. One event loop, like a store's handle."""

    async def listen(self, listener: Listener, serving: Serving | None = None) -> None:
        """Begin to hear hints, also those of other processes. Returns once the channel is up, or is known to be down.

        A channel may hand each hint of work to one alone of those who are `serving`; all others hear everything.

        A channel that breaks is brought up again by itself; whatever may have been missed meanwhile is made up for by one
        hint that says `anything`.
        """
        ...

    @property
    def healthy(self) -> bool:
        """Whether hints of other processes arrive now. While they do not, poll often."""
        ...

    def hint(self, hint: Hint, *, told: bool = False) -> None:
        """Send a hint to everyone, this process's own listener included. Returns at once, never raises.

        The first goes out at once; those that follow within a few hundredths of a second are joined into one. `told`: other
        processes have heard it, for it was sent with the commit.
        """
        ...

    def with_commit(self, hint: Hint) -> str | None:
        """Return what a store is to send with the commit that a hint will follow; `None`: nothing, `hint` does all of it.

        It reaches other processes sooner than what is sent after the commit. Once committed, `hint` is called with `told`.
        """
        ...

    def heed(self) -> Handed:
        """Return the hints of work that this handle's listener was given alone, and not answered yet: a claim begins.

        A channel that tells everyone hands nothing to anyone.
        """
        ...

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Say that the claim is over; `more`: jobs may be left for others, so everyone is to hear of them. Never raises."""
        ...

    def figures(self) -> Mapping[str, int]:
        """Return what it counts of itself, by name; empty where that is nothing. From any thread."""
        ...

    async def close(self) -> None:
        """Send what is still waiting to be sent, within a second, and let go of connections and threads. Safe to call again."""
        ...
