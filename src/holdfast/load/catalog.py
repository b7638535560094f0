"""The catalog: kinds of simulated work, read from TOML and checked field by field."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.config import duration
from holdfast.core.job import DEFAULT_PRIORITY, DEFAULT_QUEUE
from holdfast.core.text import name_flaw
from holdfast.errors import BadJob, BadSetting
from holdfast.tasks.options import priority_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OUTCOMES: Final = ("success", "fail", "cancel")
MOST_SECONDS: Final = 86_400.0
MOST_MEMORY: Final = 4 * 1024**3
MOST_STEPS: Final = 1000
MOST_ATTEMPTS: Final = 100
MILLION: Final = 1_000_000
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB)?", re.IGNORECASE)
_SIZES: Final = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,59}")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always as long. Microseconds, here and below: whole numbers are the same everywhere."""

    exactly: int


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything between two, equally likely."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class HeavyTail:
    """Lognormal: half are shorter than the median, one in a hundred is longer than `p99`, none longer than `most`."""

    median: int
    p99: int
    most: int


Duration: TypeAlias = Fixed | Uniform | HeavyTail


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of work: how long it takes, what becomes of it, and what it costs."""

    name: str
    duration: Duration
    about: str = ""
    success: float = 1.0
    fail: float = 0.0
    cancel: float = 0.0
    """Shares, of their sum."""
    retryable: bool = True
    attempts: int = 3
    rest: float = 1.0
    """Seconds before the second attempt; they double."""
    steps: int = 0
    memory: int = 0
    """Bytes that it holds while it runs."""
    cpu: float = 0.0
    """The share of its time that it computes."""
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    weight: float = 1.0
    """How often it comes, beside the others."""

    @property
    def task(self) -> str:
        """The name of its task."""
        return f"load.{self.name}"

    @property
    def longest(self) -> float:
        """The most seconds that it takes."""
        return (self.duration.exactly if isinstance(self.duration, Fixed) else self.duration.most) / MILLION


@dataclass(frozen=True, slots=True)
class Catalog:
    """Kinds by name, in the order of the file."""

    kinds: Mapping[str, Kind]


def read(path: str | None) -> Catalog:
    """Return the catalog in a file; `None`: the one that comes with the package. Raises `BadSetting`."""
    if path is None:
        return parse(resources.files("holdfast.load").joinpath("catalog.toml").read_text("utf-8"), "the default catalog")
    try:
        return parse(Path(path).read_text("utf-8"), path)
    except OSError as error:
        raise BadSetting(f"the catalog {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadSetting(f"the catalog {path} is no UTF-8 text: {error}") from error


def parse(text: str, name: str = "the catalog") -> Catalog:
    """Return the catalog that a text describes. Raises `BadSetting`, which names the entry and the field."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{name} is no valid TOML: {error}") from error
    for word in document:
        if word != "kinds":
            raise BadSetting(f"{name}: {word!r} means nothing here: entries are tables named [kinds.NAME]")
    kinds = document.get("kinds")
    if not isinstance(kinds, dict) or not kinds:
        raise BadSetting(f'{name} has no kinds. Write one, such as:\n  [kinds.mail]\n  duration = "50ms"')
    found = {own: _kind(own, fields, f"{name}: kinds.{own}") for own, fields in kinds.items()}
    if not any(kind.weight for kind in found.values()):
        raise BadSetting(f"{name}: every kind has weight 0, so there is nothing to enqueue")
    return Catalog(found)


def _kind(name: str, given: object, place: str) -> Kind:
    if not _NAME.fullmatch(name):
        raise BadSetting(f"{place}: a name is of a-z, 0-9, - and _, and begins with a letter")
    if not isinstance(given, dict):
        raise BadSetting(f"{place} must be a table, not {given!r}")
    for field in given:
        if field not in _FIELDS:
            near = get_close_matches(field, _FIELDS, n=1)
            hint = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(_FIELDS)}"
            raise BadSetting(f"{place}.{field}: there is no such field; {hint}")
    if "duration" not in given:
        forms = '"50ms", { from = "1s", to = "3s" } or { median = "1s", p99 = "9s" }'
        raise BadSetting(f"{place}.duration is missing: write {forms}")
    values: dict[str, Any] = {}
    for field, value in given.items():
        try:
            read_value = _FIELDS[field](value)
        except (ValueError, BadJob) as error:
            raise BadSetting(f"{place}.{field}: {error}") from None
        values |= read_value if field == "outcomes" else {field: read_value}
    return Kind(name=name, **values)


# --- fields: each returns what is kept, or raises `ValueError` ------------------------------------------------------------


def _span(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is no duration: use a number of seconds or 500ms, 30s, 5m")  # noqa: TRY004  told with the others
    seconds = duration(value)
    if seconds > MOST_SECONDS:
        raise ValueError(f"{value!r} is longer than a day")
    return round(seconds * MILLION)


def _duration(value: object) -> Duration:
    if not isinstance(value, dict):
        return Fixed(_span(value))
    spans = {}
    for name, text in value.items():
        try:
            spans[name] = _span(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if spans.keys() == {"from", "to"}:
        if spans["from"] > spans["to"]:
            raise ValueError(f"from ({value['from']}) must not be more than to ({value['to']})")
        return Uniform(spans["from"], spans["to"])
    if spans.keys() in ({"median", "p99"}, {"median", "p99", "most"}):
        most = spans.get("most", 10 * spans["p99"])
        if not 0 < spans["median"] <= spans["p99"] <= most:
            raise ValueError("must be 0 < median <= p99 <= most")
        return HeavyTail(spans["median"], spans["p99"], most)
    raise ValueError(f"{{ {', '.join(spans)} }} is none of {{ from, to }}, {{ median, p99 }} and {{ median, p99, most }}")


def _outcomes(value: object) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"must be a table of shares, such as {{ success = 95, fail = 5 }}, not {value!r}")
    for name, share in value.items():
        if name not in OUTCOMES:
            raise ValueError(f"{name!r} is none of {', '.join(OUTCOMES)}")
        _number(0.0, 1e9)(share)
    if not sum(value.values()):
        raise ValueError("the shares must not all be 0")
    return {"success": 0.0, **{name: float(share) for name, share in value.items()}}


def _size(value: object) -> int:
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"{value!r} is no size: use a number of bytes, or 512KB, 64MB, 1GB")
    size = int(float(found[1]) * _SIZES[(found[2] or "B").upper()]) if found is not None else int(str(value))
    if size > MOST_MEMORY:
        raise ValueError(f"{value!r} is more than 4GB")
    return size


def _number(least: float, most: float) -> Callable[[object], float]:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ValueError(f"must be a number from {least:g} to {most:g}, not {value!r}")
        return float(value)

    return check


def _whole(least: int, most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, not {value!r}")
        return value

    return check


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")  # noqa: TRY004  told with the others
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {value!r}")  # noqa: TRY004  told with the others
    return value


def _queue(value: object) -> str:
    if (reason := name_flaw(value)) is not None:
        raise ValueError(f"is no name of a queue: {reason}")
    return str(value)


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"must be 0-9, or low, normal, high, not {value!r}")  # noqa: TRY004  told with the others
    found = priority_of(value)
    return _whole(0, 9)(found)


_FIELDS: Final[dict[str, Callable[[object], Any]]] = {
    "about": _text,
    "duration": _duration,
    "outcomes": _outcomes,
    "retryable": _flag,
    "attempts": _whole(1, MOST_ATTEMPTS),
    "rest": lambda value: _span(value) / MILLION,
    "steps": _whole(0, MOST_STEPS),
    "memory": _size,
    "cpu": _number(0.0, 1.0),
    "queue": _queue,
    "priority": _priority,
    "weight": _number(0.0, 1e9),
}
