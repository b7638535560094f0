"""Sizes and lengths in words, the same on pages and on terminals."""

from __future__ import annotations

import math


def size(count: float) -> str:
    """Return bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004  the step of the units
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def length(seconds: float) -> str:
    """Return a length for people: 1:02:03."""
    whole = math.floor(seconds + 0.5)  # as the player rounds
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
