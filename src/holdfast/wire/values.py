"""Small values: durations, times, JSON that passes through untouched."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast.core.text import flaw
from holdfast.errors import BadJob

EARLIEST: Final = 1970
"""Whatever lies before this year has passed, and is as good as this year's beginning."""
LATEST: Final = 9000
"""Beyond this year calendars of stores differ."""
NOTHING: Final = msgspec.UNSET
Json = msgspec.Raw | msgspec.UnsetType
"""JSON as it was written; `UNSET` where nothing was said, which is not `null`."""


def ms(seconds: float) -> float:
    """Return a duration as it is written on the wire, to the microsecond."""
    return round(seconds * 1000.0, 3)


def ms_or_none(seconds: float | None) -> float | None:
    """Return a duration that may be none, as `ms`."""
    return None if seconds is None else ms(seconds)


def seconds(milliseconds: float) -> float:
    """Return a duration of the wire in seconds."""
    return milliseconds / 1000.0


def seconds_or_none(milliseconds: float | None) -> float | None:
    """Return a duration that may be none in seconds."""
    return None if milliseconds is None else milliseconds / 1000.0


def checked_time(at: datetime | None, path: str) -> datetime | None:
    """Return a time, or refuse one that has no zone or lies where stores disagree about the calendar."""
    if at is not None:
        if at.tzinfo is None:
            raise BadJob("must have a time zone, such as 2030-01-31T12:00:00Z", path=path)
        if at.year > LATEST:
            raise BadJob(f"the year {at.year} is too far away", path=path)
        if at.year < EARLIEST:
            return datetime(EARLIEST, 1, 1, tzinfo=UTC)
    return at


def shown(text: str) -> msgspec.Raw:
    """Return stored JSON as it is; what is no JSON becomes a string."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return msgspec.Raw(msgspec.json.encode(text))
    return msgspec.Raw(text)


def shown_or_unset(text: str | None) -> Json:
    """Return stored JSON that may be missing, as `shown`."""
    return NOTHING if text is None else shown(text)


def sent(text: str, path: str) -> msgspec.Raw:
    """Return JSON text for the wire, or refuse what is none."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise BadJob(f"must be JSON to be sent over HTTP: {error}", path=path) from None
    return msgspec.Raw(text)


def sent_or_unset(text: str | None, path: str) -> Json:
    """Return JSON text that may be missing for the wire, as `sent`."""
    return NOTHING if text is None else sent(text, path)


def text_of(json: msgspec.Raw, path: str) -> str:
    """Return JSON of the wire as it is stored."""
    text = bytes(json).decode()
    if (reason := flaw(text)) is not None:
        raise BadJob(reason, path=path)
    return text


def text_or_empty(json: Json, path: str) -> str:
    """Return JSON of the wire as it is stored; an empty object where nothing was said."""
    return "{}" if isinstance(json, msgspec.UnsetType) else text_of(json, path)


def text_or_none(json: Json, path: str) -> str | None:
    """Return JSON of the wire that may be missing, as `text_of`."""
    return None if isinstance(json, msgspec.UnsetType) else text_of(json, path)
