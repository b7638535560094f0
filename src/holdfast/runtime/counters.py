"""What workers and managers count, behind a port: kept in memory by default, exported by whoever listens."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

HEARTBEATS: Final = "heartbeats"
HEARTBEAT_FAILURES: Final = "heartbeat_failures"
RECOVERED: Final = "recovered_jobs"
"""By reason: what the reaper wrote."""
RETRIES: Final = "retry_attempts"
"""By code: failures that another attempt will follow."""
CONFLICTS: Final = "acquire_conflicts"
"""Claims that came back empty although there had been a hint of work: another worker was faster."""
STALE: Final = "stale_writes"
"""By kind: writes the store refused because the lease was no longer ours."""
CLAIMED: Final = "claimed_jobs"
SETTLED: Final = "settled_jobs"
"""By event."""
CONCURRENT: Final = "concurrent_jobs"
"""A level, not a sum."""
HINTED: Final = "hints_arrive"
"""A level: 1 while hints of other processes arrive, 0 while it finds new jobs by polling alone."""
DRAINS: Final = "draining"
"""A level: 1 while a worker claims nothing more, because it is about to end."""

DESIRED: Final = "desired_workers"
"""Of a manager, a level: how many workers it wants. So are the next two."""
WORKERS: Final = "workers"
DRAINING: Final = "draining_workers"
CHANGES: Final = "changes"
"""By direction: decisions of a manager that changed the number of its workers."""
STAYS: Final = "stays"
"""By obstacle: decisions of a manager that left the number as it was although something waited, or should have been up."""
CRASHED: Final = "crashed_workers"
RECYCLED: Final = "recycled_workers"
"""Workers that had run as many jobs or taken as much memory as they may, or that a person drained, and were replaced."""


class Counters(Protocol):
    """Where a worker's counts go. Called from several threads; must not block."""

    def add(self, name: str, amount: int = 1, *, label: str = "") -> None:
        """Count something, optionally under a label."""
        ...

    def level(self, name: str, value: int) -> None:
        """Say how high something stands now."""
        ...

    def snapshot(self) -> dict[str, int]:
        """Return all counts; labels follow the name as `name:label`."""
        ...


class MemoryCounters:
    """Counts in memory: since the worker started."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1, *, label: str = "") -> None:
        """Count something, optionally under a label."""
        self._counts[f"{name}:{label}" if label else name] += amount

    def level(self, name: str, value: int) -> None:
        """Say how high something stands now."""
        self._counts[name] = value

    def snapshot(self) -> dict[str, int]:
        """Return all counts; labels follow the name as `name:label`."""
        return dict(self._counts)

    def total(self, name: str) -> int:
        """Return a count over all its labels."""
        return sum(value for key, value in self.snapshot().items() if key.partition(":")[0] == name)
