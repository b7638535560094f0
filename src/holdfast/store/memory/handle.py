"""One handle on the data: whose clock and chance it uses, and what it remembers for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.memory.model import MemoryData

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.environment import Environment


class Handle:
    """What the sections of the store have in common. `data` may be shared with other handles."""

    def __init__(self, environment: Environment, data: MemoryData | None = None) -> None:
        self.data = MemoryData() if data is None else data
        self.environment = environment
        self.turn = 0
        """How many claims this handle has made."""

    def worker_name(self, worker: UUID | None) -> str | None:
        """Return the name of a worker as it is registered now."""
        return self.data.workers[worker].worker.name if worker in self.data.workers else None
