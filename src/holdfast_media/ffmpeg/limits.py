"""How long an encode may take."""

from __future__ import annotations

from typing import Final

SHORTEST: Final = 300.0
LONGEST: Final = 14_400.0


def time_limit(seconds: float, factor: float = 1.0) -> float:
    """Return the most seconds that encoding `seconds` of video may take: twice its length, times the factor of the quality.

    Never below five minutes, for machines are busy, and never above four hours.
    """
    return min(max(seconds * 2 * factor, SHORTEST), LONGEST)
