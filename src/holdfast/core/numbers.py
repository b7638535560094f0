"""Numbers that every store understands the same way."""

from __future__ import annotations

import math

from holdfast.errors import CENTURY, BadJob


def check_number(value: object, path: str, *, least: float, most: float) -> None:
    """Refuse what is not a number from `least` to `most`, naming its path."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and least <= value <= most
    if not good:
        raise BadJob(f"must be a number from {least:g} to {most:g}, not {value}", path=path)


def check_seconds(value: object, path: str, *, least: float) -> None:
    """Refuse what is not a number of seconds from `least` to a century, naming its path."""
    good = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and least <= value <= CENTURY
    )
    if not good:
        raise BadJob(f"must be a number of seconds from {least:g} to a century, not {value}", path=path)
