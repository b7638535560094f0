"""How a manager manages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from holdfast.core.scaling import Scaling
from holdfast.errors import BadSetting

SHORTEST: Final = 0.05


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

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if not self.interval >= SHORTEST:
            raise BadSetting(f"interval must be {SHORTEST:g} s or more, not {self.interval:g}: every decision asks the store")
        for name in ("max_jobs", "max_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadSetting(f"{name} must be 1 or more, not {value}")
