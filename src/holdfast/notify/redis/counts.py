"""What a Redis notifier counts of itself, under the names that metrics know."""

from __future__ import annotations

from collections import Counter
from typing import Final

SENT: Final = "redis_sent"
"""Hints that Redis took."""
FELL_BACK: Final = "redis_fell_back"
"""Hints that it did not take: told by other means, or left to polling."""
RECEIVED: Final = "redis_received"
"""Hints of work that this handle alone was given."""
HANDED_ON: Final = "redis_handed_on"
"""Those of them after which others had to be told: nothing was found here, or more than could be taken."""
RECLAIMED: Final = "redis_reclaimed"
"""Those that another had been given, and did not answer for."""
HEALED: Final = "redis_healed"
"""How often a stream or its group was found gone, and made again."""
SWEPT: Final = "redis_sweeps"
"""How often this handle had its worker look because Redis may have lost something."""

ALL: Final = (SENT, FELL_BACK, RECEIVED, HANDED_ON, RECLAIMED, HEALED, SWEPT)


def counts() -> Counter[str]:
    """Return counts that stand at nothing: a metric that is there from the beginning can be watched."""
    return Counter(dict.fromkeys(ALL, 0))
