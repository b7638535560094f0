"""How a manager manages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from holdfast.core.scaling import LEAST_INTERVAL, Scaling
from holdfast.errors import BadSetting
from holdfast.fleet.memory import MEGABYTE

LEAST_MEMORY: Final = 32 * MEGABYTE
"""Bytes that every worker takes as soon as it is up: the interpreter with what Holdfast imports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """What a manager is told when it is made."""

    name: str
    """Told apart from other managers on the same store by it."""
    scaling: Scaling = field(default_factory=Scaling)
    interval: float = 1.0
    """Seconds between two decisions."""
    queues: frozenset[str] | None = None
    """The queues that its workers serve; `None`: all."""
    slots: int = 20
    """Of each of its workers."""
    max_jobs: int | None = None
    """After about so many jobs a worker is replaced; `None`: never."""
    max_memory: int | None = None
    """Bytes beyond which a worker is replaced; `None`: never."""
    shutdown_timeout: float = 30.0
    """Seconds that running jobs get to end when the manager is asked to stop."""

    @property
    def plan(self) -> str:
        """What it does, in words."""
        queues = "every queue" if self.queues is None else f"the queues {', '.join(sorted(self.queues))}"
        return (
            f"{self.scaling.default_count} to {self.scaling.max_count} workers of {self.slots} slots for {queues}, a decision "
            f"every {self.interval:g} s, jobs should wait {self.scaling.waiting_target:g} s at most"
        )

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if not self.interval >= LEAST_INTERVAL:
            raise BadSetting(
                f"interval must be {LEAST_INTERVAL:g} s or more, not {self.interval:g}: every decision asks the store"
            )
        if self.max_jobs is not None and self.max_jobs < 1:
            raise BadSetting(f"max_jobs must be 1 or more, not {self.max_jobs}")
        if self.max_memory is not None and self.max_memory < LEAST_MEMORY:
            raise BadSetting(
                f"max_memory must be {LEAST_MEMORY // MEGABYTE} MB or more, not {self.max_memory:,} bytes: every worker takes "
                "that much. Write it with its unit, such as 512MB or 2GB"
            )
