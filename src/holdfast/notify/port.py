"""The port of notifications: a hint wakes, polling is the truth.

A hint may come late, twice or never; it carries no work, only where to look. Sending one never fails the operation it
tells of, and nobody hears it before that has committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

import msgspec


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

    def __or__(self, other: Hint) -> Hint:
        """Return one hint that says both."""
        return Hint(
            self.queues | other.queues,
            self.later or other.later,
            self.jobs | other.jobs,
            self.anything or other.anything,
            self.waiters or other.waiters,
        )

    def __bool__(self) -> bool:
        """Tell whether it says anything."""
        return bool(self.queues or self.later or self.jobs or self.anything or self.waiters)


Listener = Callable[[Hint], None]
"""Called on the event loop that called `listen`, once for each hint or for several joined. Must not block or raise."""


class Notifier(Protocol):
    """A channel for hints. One event loop, like a store's handle."""

    async def listen(self, listener: Listener) -> None:
        """Begin to hear hints, also those of other processes. Returns once the channel is up, or is known to be down.

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

    async def close(self) -> None:
        """Send what is still waiting to be sent, within a second, and let go of connections and threads. Safe to call again."""
        ...
