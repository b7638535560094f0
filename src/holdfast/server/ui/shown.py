"""How things look: times, ids, JSON with exact numbers, and what must not be seen."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup, escape

from holdfast.core.outcome import RETRIES_EXHAUSTED
from holdfast.core.redact import redact
from holdfast.core.spans import span
from holdfast.server.veil import Exact, Pairs, flat, read, unread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from holdfast.core.outcome import Error

LONGEST: Final = 100_000
"""Characters of JSON that a page shows."""
SUMMARY: Final = 160
NOTHING: Final = "\N{EN DASH}"
LAST: Final = "; the last one with "
INDENT: Final = "  "
WIDE: Final = 72
"""Characters up to which a list or an object stays on one line."""


def moment(at: datetime) -> str:
    """Return a time to the second, in UTC: the same for everyone who looks at the same incident."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def since(at: datetime | None, now: datetime) -> float | None:
    """Return how many seconds ago something was."""
    return None if at is None else max(0.0, (now - at).total_seconds())


def when(at: datetime | None, now: datetime, *, suffix: str = " ago") -> Markup:
    """Return a time as its age, with the time itself for those who ask; the page keeps the age up to date."""
    if at is None:
        return Markup('<span class="none">{}</span>').format(NOTHING)
    seconds = (now - at).total_seconds()
    text = f"{age(seconds)}{suffix}" if seconds >= 0 else f"in {age(-seconds)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.astimezone(UTC).isoformat(), moment(at), text)


def age(seconds: float | None) -> str:
    """Return a duration for people; fractions only where they tell something."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return span(round(seconds, 1) if seconds < 10 else seconds)  # noqa: PLR2004  as in `span`


def short(job_id: UUID | str) -> str:
    """Return an id as lists write it: its beginning, which is a time, and its end, which is random."""
    digits = str(job_id).replace("-", "")
    return f"{digits[:8]}..{digits[-6:]}"


def number(value: float | None) -> str:
    """Return a count with its thousands apart."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"  # noqa: PLR2004  small rates need a digit


def one_line(text: str | None, redacted: Iterable[str]) -> str:
    """Return JSON in one line, without secrets and cut to what a row has room for."""
    if text is None:
        return ""
    names = frozenset(redacted)
    value, whole = read(text[: SUMMARY * 20], names)
    line = flat(value) if whole else unread(text, text[: SUMMARY * 2], names)
    return line if len(line) <= SUMMARY else line[: SUMMARY - 1] + "…"


def pretty(text: str, redacted: Iterable[str]) -> Markup:
    """Return JSON for reading: laid out, coloured, its numbers as they are stored, without secrets."""
    names = frozenset(redacted)
    value, whole = read(text, names)
    if not whole:
        return escape(_cut(unread(text, text, names)))
    if len(text) > LONGEST:  # it is cut anyway, and laying out a megabyte would hold up every other request for seconds
        return escape(_cut(flat(value)))
    out: list[Markup] = []
    _lay_out(value, 0, out)
    return Markup("").join(out)


def plain(text: str, redacted: Collection[str] = ()) -> str:
    """Return a text of an error, a log or a report without secrets."""
    return redact(text, redacted)


def cause(error: Error, redacted: Collection[str] = ()) -> tuple[str, str]:
    """Return code and message of what went wrong: that there is no attempt left says less than how the last one failed."""
    if error.code == RETRIES_EXHAUSTED:
        code, colon, message = error.message.partition(LAST)[2].partition(": ")
        if colon:
            return code, redact(message, redacted)
    return error.code, redact(error.message, redacted)


def top_frame(traceback: str) -> str:
    """Return where an error was raised, as its traceback says: `file.py:12 in function`."""
    for line in reversed(traceback.splitlines()):
        parts = line.strip().split(", ")
        if line.startswith("  File ") and len(parts) >= 3:  # noqa: PLR2004  file, line, function
            path = parts[0].removeprefix("File ").strip('"')
            return f"{'/'.join(path.split('/')[-2:])}:{parts[1].removeprefix('line ')} {parts[2]}"
    return ""


def cut(text: str, most: int) -> str:
    """Return a text that is not longer than it may be."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… cut: {len(text):,} characters, {LONGEST:,} shown"


def _lay_out(value: Any, depth: int, out: list[Markup]) -> None:
    outer = Markup("\n") + INDENT * depth
    inner = outer + INDENT
    match value:
        case list() if value and len(flat(value)) + 2 * depth > WIDE:
            pairs = isinstance(value, Pairs)
            out.append(Markup("{") if pairs else Markup("["))
            for index, item in enumerate(value):
                out.append(Markup(",") + inner if index else inner)
                if pairs:
                    out.append(_name(item[0]))
                _lay_out(item[1] if pairs else item, depth + 1, out)
            out.append(outer + (Markup("}") if pairs else Markup("]")))
        case Pairs():
            parts = []
            for name, item in value:
                held: list[Markup] = [_name(name)]
                _lay_out(item, depth, held)
                parts.append(Markup("").join(held))
            out.append(Markup("{") + Markup(", ").join(parts) + Markup("}"))
        case list():
            parts = []
            for item in value:
                held = []
                _lay_out(item, depth, held)
                parts.append(Markup("").join(held))
            out.append(Markup("[") + Markup(", ").join(parts) + Markup("]"))
        case Exact():
            out.append(Markup('<span class="json-number">{}</span>').format(str(value)))
        case str():
            out.append(Markup('<span class="json-text">{}</span>').format(json.dumps(value, ensure_ascii=False)))
        case _:
            out.append(Markup('<span class="json-word">{}</span>').format(json.dumps(value)))


def _name(name: str) -> Markup:
    return Markup('<span class="json-name">{}</span>: ').format(json.dumps(name, ensure_ascii=False))
