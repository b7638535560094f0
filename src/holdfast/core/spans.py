"""Durations as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


def span(seconds: float | None) -> str:
    """Return a duration for people: `0.25s`, `12s`, `3m 20s`, `5h 10m`, `2d 4h`."""
    if seconds is None:
        return "-"
    whole = round(abs(seconds))
    if abs(seconds) < 10:  # noqa: PLR2004  below that, fractions tell something
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    for size, unit, part, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{whole}s"


def ago(at: datetime | None, now: datetime) -> str:
    """Return how long ago something was."""
    return "-" if at is None else f"{span(max(0.0, (now - at).total_seconds()))} ago"
