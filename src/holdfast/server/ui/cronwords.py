"""A cron expression in words."""

from __future__ import annotations

import re
from typing import Final

DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
FIELDS: Final = 5
AT: Final = "at "
"""How a time of the day begins."""
MOST_TIMES: Final = 6
"""Times of a day that are written out."""

_NUMBER: Final = re.compile(r"\d+")
_STEP: Final = re.compile(r"\*/(\d+)")
_RANGE: Final = re.compile(r"(\w+)-(\w+)(?:/(\d+))?")
_NTH: Final = re.compile(r"(\w+)#(\d)")
_ORDINALS: Final = ("", "first", "second", "third", "fourth", "fifth")


def explained(cron: str) -> str:
    """Return when a cron expression comes true, in words."""
    fields = cron.lower().split()
    if len(fields) == FIELDS + 1:
        return f"{explained(' '.join(fields[1:]))}, at second {fields[0]}"
    if len(fields) != FIELDS:
        return cron
    minute, hour, day, month, weekday = fields
    time, days = _time(minute, hour), _days(day, weekday)
    if not days and time.startswith(AT):
        days = "every day"
    return " ".join(part for part in (time, days, _months(month)) if part)


def _time(minute: str, hour: str) -> str:
    minutes, hours = _numbers(minute), _numbers(hour)
    if minutes and hours and len(minutes) * len(hours) <= MOST_TIMES:
        return f"{AT}{_joined([f'{int(h):02}:{int(m):02}' for h in hours for m in minutes])}"
    if minute == "*":
        often = "every minute"
    elif step := _STEP.fullmatch(minute):
        often = f"every {step[1]} minutes" if step[1] != "1" else "every minute"
    elif minutes:
        often = f"in minute {_joined(minutes)}"
    else:
        often = f"in minutes {minute.replace('-', ' to ')}"
    return f"{often}{_hours(hour, by_minutes=bool(minutes))}"


def _hours(hour: str, *, by_minutes: bool) -> str:
    if hour == "*":
        return " of every hour" if by_minutes else ""
    if step := _STEP.fullmatch(hour):
        return f" of every {step[1]} hours"
    if span := _RANGE.fullmatch(hour):
        every = f", every {span[3]} hours" if span[3] else ""
        return f" from {span[1]:0>2}:00 to {span[2]:0>2}:59{every}"
    hours = _numbers(hour)
    return f" of the hours {_joined(hours)}" if hours else f" of the hours {hour}"


def _days(day: str, weekday: str) -> str:
    parts = []
    if day == "l":
        parts.append("on the last day of the month")
    elif day not in ("*", "?"):
        step = _STEP.fullmatch(day)
        parts.append(f"every {step[1]} days" if step else f"on day {_listed(day)} of the month")
    if weekday not in ("*", "?"):
        parts.append(f"on {_listed(weekday, DAYS)}")
    return " or ".join(parts)


def _months(month: str) -> str:
    if month in ("*", "?"):
        return ""
    step = _STEP.fullmatch(month)
    return f"every {step[1]} months" if step else f"in {_listed(month, MONTHS)}"


def _listed(field: str, names: tuple[str, ...] = ()) -> str:
    """Return a list of values and spans, by name where they have names."""
    words = []
    for part in field.split(","):
        if span := _RANGE.fullmatch(part):
            every = f" every {span[3]}" if span[3] else ""
            words.append(f"{_named(span[1], names)} to {_named(span[2], names)}{every}")
        elif (nth := _NTH.fullmatch(part)) and int(nth[2]) < len(_ORDINALS):
            words.append(f"the {_ORDINALS[int(nth[2])]} {_named(nth[1], names)} of the month")
        elif part.endswith("l") and part[:-1].isdecimal():
            words.append(f"the last {_named(part[:-1], names)} of the month")
        else:
            words.append(_named(part, names))
    return _joined(words)


def _named(value: str, names: tuple[str, ...]) -> str:
    if value.isdecimal() and int(value) < len(names):
        return names[int(value)]
    return next((name for name in names if name and name.lower().startswith(value[:3])), value) if names else value


def _numbers(field: str) -> list[str]:
    parts = field.split(",")
    return parts if all(_NUMBER.fullmatch(part) for part in parts) else []


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
