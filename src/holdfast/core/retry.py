"""How often a job may fail, and how long it rests between attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.numbers import check_number, check_seconds
from holdfast.errors import BadJob

if TYPE_CHECKING:
    from collections.abc import Callable


class Retry(msgspec.Struct, frozen=True, array_like=True):
    """The retry policy of a job, stored with it when it is enqueued.

    `max_attempts` is the budget of failures (`None`: endless). Failure number n rests
    `min(initial * factor ** (n - 1), max)` seconds, spread by ± `jitter` (a share of the rest).
    """

    max_attempts: int | None = 3
    initial: float = 10.0
    factor: float = 2.0
    max: float = 300.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a policy that could never work."""
        if self.max_attempts is not None and (type(self.max_attempts) is not int or self.max_attempts < 1):
            raise BadJob(
                f"must be a whole number from 1, or None for endless retries, not {self.max_attempts}",
                path="retry.max_attempts",
            )
        for name in ("initial", "max"):
            check_seconds(getattr(self, name), f"retry.{name}", least=0.0)
        check_number(self.factor, "retry.factor", least=1.0, most=1e6)
        check_number(self.jitter, "retry.jitter", least=0.0, most=1.0)

    def exhausted(self, failures: int) -> bool:
        """Tell whether this many failures have spent the budget."""
        return self.max_attempts is not None and failures >= self.max_attempts

    def delay(self, failures: int, rng: Callable[[], float]) -> float:
        """Return the rest after failure number `failures` (1-based); `rng` gives numbers in [0, 1)."""
        try:
            rest = min(self.initial * self.factor ** (failures - 1), self.max)
        except OverflowError:
            rest = self.max if self.initial else 0.0
        return max(0.0, rest * (1 + self.jitter * (2 * rng() - 1)))
