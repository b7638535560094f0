"""From Python values to SQLite's and back.

Enums go in as their `value` and booleans as `int`: sqlite3 looks for an adapter of everything that is not exactly a str or an
int, and that takes longer than the insert.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from uuid import UUID

import msgspec

from holdfast.core.outcome import Error
from holdfast.errors import CENTURY

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
LATEST: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
"""No stored moment is later: beyond it there is no datetime to give back."""

_encoder = msgspec.json.Encoder()
_names_decoder = msgspec.json.Decoder(tuple[str, ...])


def stamp(moment: datetime) -> int:
    """Return a moment as microseconds since the epoch."""
    return (moment - EPOCH) // MICROSECOND


def moment(stamp: int) -> datetime:
    """Return the moment of a stamp."""
    return EPOCH + timedelta(microseconds=stamp)


def moment_or_none(stamp: int | None) -> datetime | None:
    """Return the moment of a stamp, where there is one."""
    return None if stamp is None else moment(stamp)


def microseconds(seconds: float) -> int:
    """Return a duration in microseconds."""
    return round(min(seconds, CENTURY) * 1_000_000)


def due(now: int, delay: float, run_at: datetime | None) -> int:
    """Return when something is due that counts `delay` from now, or names a moment."""
    return min(now + microseconds(delay) if run_at is None else stamp(run_at), LATEST)


def uuid_of(data: bytes) -> UUID:
    """Return the UUID of 16 bytes."""
    return UUID(bytes=data)


def uuid_or_none(data: bytes | None) -> UUID | None:
    """Return the UUID of 16 bytes, where there are any."""
    return None if data is None else UUID(bytes=data)


def names_text(names: tuple[str, ...]) -> str | None:
    """Return names as JSON; none take no room."""
    return _encoder.encode(names).decode() if names else None


@lru_cache(maxsize=1000)
def names_of(text: str | None) -> tuple[str, ...]:
    """Return the names that `names_text` wrote."""
    return () if text is None else _names_decoder.decode(text)


def list_text(names: tuple[str, ...] | None) -> str | None:
    """Return names as JSON, where there is a list of them, also an empty one."""
    return None if names is None else _encoder.encode(names).decode()


def list_of(text: str | None) -> tuple[str, ...] | None:
    """Return the names that `list_text` wrote."""
    return None if text is None else _names_decoder.decode(text)


def error_columns(error: Error | None) -> tuple[str | None, str | None, str | None]:
    """Return an error as code, message, traceback."""
    return (None, None, None) if error is None else (error.code, error.message, error.traceback)


def error_of(code: str | None, message: str | None, traceback: str | None) -> Error | None:
    """Return the error that `error_columns` wrote."""
    return None if code is None else Error(code, message or "", traceback or "")
