"""One handle on the data: whose clock and chance it uses, and what it remembers for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.fairness import Shares, first_turn
from holdfast.store.memory.model import MemoryData
from holdfast.store.port import AuditView

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.store.port import AuditLine


class Handle:
    """What the sections of the store have in common. `data` may be shared with other handles."""

    def __init__(self, environment: Environment, data: MemoryData | None = None) -> None:
        self.data = MemoryData() if data is None else data
        self.environment = environment
        self.turn = first_turn(environment.lot())
        """Counts the claims that this handle makes."""
        self.shares = Shares(environment.lot)

    def worker_name(self, worker: UUID | None) -> str | None:
        """Return the name of a worker as it is registered now."""
        return self.data.workers[worker].worker.name if worker in self.data.workers else None

    def audit(self, line: AuditLine) -> None:
        """Write a line into the audit log, where somebody is named in it."""
        if line.actor:
            self.write_line(line)

    def write_line(self, line: AuditLine) -> None:
        """Write a line into the audit log."""
        self.data.audit_lines += 1
        self.data.audit.append(
            AuditView(
                no=self.data.audit_lines,
                at=self.environment.now(),
                actor=line.actor,
                action=line.action,
                targets=line.targets,
                count=line.count,
                detail=line.detail,
            )
        )
