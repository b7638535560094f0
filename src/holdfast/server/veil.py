"""What people may see: errors and JSON without secrets, and without fields that are hidden; numbers as they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.redact import MASK, looks_secret, redact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.core.outcome import Error

DEEPEST: Final = 100
"""Levels of JSON that are laid out; what tasks are given in Python has 64 at most."""


def veiled_error(error: Error, names: Collection[str] = ()) -> Error:
    """Return an error without secrets. Workers in other languages send theirs as they are."""
    return msgspec.structs.replace(error, message=redact(error.message, names), traceback=redact(error.traceback, names))


def veiled(text: str, redacted: Iterable[str]) -> str:
    """Return JSON as JSON, without secrets; one that cannot be read becomes a string."""
    names = frozenset(redacted)
    value, whole = read(text, names)
    return flat(value) if whole else json.dumps(unread(text, text, names))


class Exact(str):
    """A number as it stands in the JSON."""

    __slots__ = ()


def unread(text: str, part: str, names: frozenset[str]) -> str:
    """Return a part of JSON that could not be read whole; nothing of it where it names a field that must not be seen."""
    if any(f'"{name}"' in part for name in names):
        return f"{len(text):,} characters, with fields that are not shown"
    return redact(part, names)


def read(text: str, names: frozenset[str]) -> tuple[Any, bool]:
    """Return JSON with its numbers as they are written, its objects as pairs, and without what must not be seen.

    False where it is none, or nested deeper than it is laid out: what is enqueued over HTTP is as deep as its sender likes, and
    json reads it deeper than functions of Python may call themselves.
    """
    try:
        value = json.loads(text, parse_int=Exact, parse_float=Exact, parse_constant=Exact, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return None, False
    return (_veiled(value, names), True) if _depth(value) <= DEEPEST else (None, False)


def _depth(value: Any) -> int:
    """Return how many lists and objects lie in each other, without going into more than matter."""
    depth, level = 0, [value]
    while level and depth <= DEEPEST:
        level = [item[1] if isinstance(held, Pairs) else item for held in level if isinstance(held, list) for item in held]
        depth += 1
    return depth


class Pairs(list[tuple[str, Any]]):
    """An object, also one that says a name twice."""


def _veiled(value: Any, redacted: frozenset[str]) -> Any:
    match value:
        case Pairs():
            return Pairs(
                (name, MASK if name in redacted or looks_secret(name) else _veiled(inner, redacted)) for name, inner in value
            )
        case list():
            return [_veiled(inner, redacted) for inner in value]
        case Exact():
            return value
        case str():
            return redact(value, redacted)
        case _:
            return value


def flat(value: Any) -> str:
    """Return what was read as JSON in one line."""
    match value:
        case Pairs():
            return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {flat(inner)}" for name, inner in value) + "}"
        case list():
            return "[" + ", ".join(map(flat, value)) + "]"
        case Exact():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)
