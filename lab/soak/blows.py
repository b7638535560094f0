"""What befell the fleet while it ran: the faults that were injected, and the moments that a busy machine took by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Blow:
    """A fault that was injected."""

    fault: str
    victim: str
    """The lives that it struck, with blanks between; empty for everybody."""
    at: float
    held: tuple[tuple[str, int], ...] = ()
    """What its victims held at that moment, each with its attempt."""
    back: float | None = None
    """When the store could be reached again, where it was away."""
    over: float = 0.0
    """When it was over, where it lasted."""
    free: bool = False
    """Whether no job may pay for it with an attempt."""
    mild: bool = False
    """Whether it keeps nobody from ending the leases of others."""
    grace: float = 0.0
    """Seconds more than a lease that its victim may keep what it holds, as documented."""

    @property
    def until(self) -> float:
        """When it was over at the latest that is known of."""
        return max(self.at, self.over, self.back or 0.0)

    def struck(self, life: str) -> bool:
        """Tell whether it befell the worker of this name: by itself, or with everybody."""
        return not self.victim or life in self.victim.split()

    def struck_place(self, place: str) -> bool:
        """Tell whether it befell any process at this place."""
        return not self.victim or any(life.rpartition(".")[0] == place for life in self.victim.split())


@dataclass(frozen=True, slots=True)
class Stall:
    """A moment at which the machine gave somebody no turn: nobody's fault, and no fault of ours."""

    life: str
    """Who got none; empty where it was the store."""
    until: float
    seconds: float
