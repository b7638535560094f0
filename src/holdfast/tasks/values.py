"""Which part of a value breaks the acceptance rule, and why.

Only refusals come here: the codec decides at C speed from the encoded bytes, and asks this module for the path and the reason
once something is suspicious. Values are hostile until shown otherwise: containers are read through the methods of their base
class, the walk keeps its own stack, and whatever user code raises is the caller's to catch.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import keyword
import math
import re
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.tasks.hooks import is_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**63 - 1
MIN_INTEGER: Final = -(2**63)

_LEAVES: Final = (
    bytes,
    bytearray,
    memoryview,
    dt.date,  # datetime too: it is a subclass
    dt.time,
    dt.timedelta,
    UUID,
    type(None),
    bool,
)
_KEYS: Final = (str, int, float, Decimal, Enum, bytes, dt.date, dt.time, dt.timedelta, UUID)
_ARRAYS: Final = (list, tuple, set, frozenset)
_NATIVE: Final = (dict, list, str, int, float, bool, type(None))
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_TOO_MANY_BITS: Final = 256
_LONGEST_TEXT: Final = 200
_LONGEST_KEY: Final = 40


class Fault(NamedTuple):
    """Where a value breaks the rule, and why."""

    path: str
    reason: str


Steps = tuple[Any, ...]
"""The way to a part of a value: `str` for a parameter, field or key, `int` for an index, anything else for a key."""


# --- text of a refusal -------------------------------------------------------------------------------------------------------


def short(thing: object, limit: int = _LONGEST_TEXT) -> str:
    """Give `str(thing)`, at most `limit` characters of it. Never raises, whatever `__str__` does."""
    try:
        text = str(thing)
    except Exception:  # noqa: BLE001 - the `__str__` of a user's class may raise anything
        return f"<{name_of(type(thing))}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def name_of(cls: type) -> str:
    """Give the short name of a class. Never raises, whatever its metaclass does."""
    if cls is type(None):
        return "None"
    try:
        return short(cls.__name__, 80)
    except Exception:  # noqa: BLE001 - a metaclass may raise anything
        return "unknown type"


def render(steps: Steps) -> str:
    """Write a path as a user would: `user.tags[3].name`, `data["a b"]`."""
    path = ""
    for step in steps:
        if not issubclass(type(step), str):
            path += f"[{short(step, _LONGEST_KEY)}]"
        elif (name := short(str.__str__(step), _LONGEST_KEY)).isidentifier() and not keyword.iskeyword(name):
            path += f".{name}" if path else name
        else:
            path += f"[{json.dumps(name)}]"
    return path if len(path) <= _LONGEST_TEXT else f"{path[:100]}…{path[-90:]}"


# --- what no store takes -----------------------------------------------------------------------------------------------------


def surely_fine(parts: Iterable[tuple[Any, Any]]) -> bool:
    """Say quickly that plain JSON values hold nothing `find_fault` would find; False when it has to look itself.

    A None, or text of nineteen digits, makes the codec suspicious and is nearly always harmless; this costs a tenth of the
    walk. Only for values that have been encoded, which rules out surrogates and structures that hold themselves.
    """
    level = [value for _, value in parts]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            cls = type(value)
            if cls is str:
                if "\0" in value:
                    return False
            elif cls is int:
                if not MIN_INTEGER <= value <= MAX_INTEGER:
                    return False
            elif cls is float:
                if not math.isfinite(value):
                    return False
            elif cls is list:
                inner += value
            elif cls is dict:
                inner += value
                inner += value.values()
            elif value is not None and cls is not bool:
                return False
        if not inner:
            return True
        level = inner
    return False


def find_fault(parts: Iterable[tuple[Any, Any]]) -> Fault | None:
    """Find the first NUL, lone surrogate, NaN, infinity, too large integer, too deep nesting or foreign object.

    `parts` are the roots, each with the step that leads to it. Visits in the order of the JSON text and stops at the first
    fault, so that a structure holding itself ends at the depth limit.
    """
    stack: list[tuple[Any, Any, int]] = [((None, step), value, 1) for step, value in parts]
    stack.reverse()
    while stack:
        trail, value, depth = stack.pop()
        if issubclass(type(value), Enum):
            value = value.value  # the member's value is what is stored
        inner = children(value)
        if inner is None:
            reason = _leaf_fault(value)
        elif depth > MAX_DEPTH:
            # The beginning tells which argument it is; sixty-four more steps would tell nothing.
            return Fault(render(_unwind(trail)[:8]) + "…", f"nested deeper than {MAX_DEPTH} levels")
        else:
            if issubclass(type(value), dict):
                for key in dict.keys(value):
                    if reason := _key_fault(key):
                        return Fault(render((*_unwind(trail), key)), reason)
            reason = None
            stack.extend(((trail, step), part, depth + 1) for step, part in reversed(inner))
        if reason:
            return Fault(render(_unwind(trail)), reason)
    return None


def children(value: Any) -> list[tuple[Any, Any]] | None:
    """Give the parts of a container or an object with the step that leads to each; None when it has no parts."""
    cls = type(value)
    if issubclass(cls, dict):
        return list(dict.items(value))
    if issubclass(cls, _ARRAYS):
        base = next(kind for kind in _ARRAYS if issubclass(cls, kind))
        items = base.__iter__(value)
        names = getattr(cls, "_fields", None) if base is tuple else None
        return list(zip(names, items, strict=True)) if names else list(enumerate(items))
    return list(_fields(value, cls)) if (names := _field_names(value, cls)) is not None else None


def _fields(value: Any, cls: type) -> Iterator[tuple[str, Any]]:
    for name in _field_names(value, cls) or ():
        part = getattr(value, name, msgspec.UNSET)
        if part is not msgspec.UNSET:
            yield name, part


def _field_names(value: Any, cls: type) -> Iterable[str] | None:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    if hasattr(cls, "__attrs_attrs__"):
        return [attribute.name for attribute in cls.__attrs_attrs__]
    if is_model(cls):
        return list(vars(value))
    return None


def _leaf_fault(value: Any) -> str | None:
    cls = type(value)
    if issubclass(cls, str):
        return _text_fault(str.__str__(value))
    if issubclass(cls, _LEAVES):
        return None
    if issubclass(cls, int):
        return _integer_fault(int.__int__(value))
    if issubclass(cls, float):
        return _float_fault(float.__float__(value))
    if issubclass(cls, Decimal):
        if Decimal.is_finite(value):
            return None
        return _float_fault(math.nan if Decimal.is_nan(value) else math.inf)
    return f"object of type {name_of(cls)} cannot be encoded: pass data, or an id to load it by"


def _key_fault(key: Any) -> str | None:
    cls = type(key)
    if issubclass(cls, bool) or not issubclass(cls, _KEYS):
        return f"key of type {name_of(cls)}: the keys of a JSON object are text"
    reason = _leaf_fault(key.value if issubclass(cls, Enum) else key)
    return f"in the key: {reason}" if reason else None


def _text_fault(text: str) -> str | None:
    if (at := text.find("\0")) >= 0:
        return f"NUL character at position {at}: PostgreSQL cannot store it"
    if found := _SURROGATE.search(text):
        return f"lone surrogate '\\u{ord(found[0]):04x}' at position {found.start()}: it is half a character, not text"
    return None


def _integer_fault(number: int) -> str | None:
    if MIN_INTEGER <= number <= MAX_INTEGER:
        return None
    # Python itself refuses to print an integer of more than 4,300 digits.
    bits = number.bit_length()
    shown = f"integer {number}" if bits <= _TOO_MANY_BITS else f"integer of {bits} bits"
    return f"{shown} does not fit in 64 bits: pass it as a string"


def _float_fault(number: float) -> str | None:
    if math.isfinite(number):
        return None
    shown = "NaN" if math.isnan(number) else "infinity"
    return f"{shown} is not JSON: pass None, or text that says what it means"


def _unwind(trail: Any) -> Steps:
    steps = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return tuple(reversed(steps))


# --- what does not come back the same ----------------------------------------------------------------------------------------


def find_difference(sent: Any, received: Any, steps: Steps, noun: str) -> Fault:
    """Say where `received` stops being equal to `sent`, and what the user can do about it.

    Call it with two values that are known to differ, at most 64 levels deep.
    """
    if type(sent) is type(received):
        if issubclass(type(sent), dict):
            for key in dict.keys(sent):
                if key not in received:
                    return Fault(render((*steps, key)), _lost_key(key, received))
        theirs = dict(children(received) or ())
        for step, part in children(sent) or ():
            if step in theirs and not _equal(part, theirs[step]):
                return find_difference(part, theirs[step], (*steps, step), noun)
    return Fault(render(steps), _difference(sent, received, noun if len(steps) == 1 else "it"))


def _lost_key(key: Any, received: dict[Any, Any]) -> str:
    kind = name_of(type(key))
    if issubclass(type(key), str):
        for other in received:
            if short(other) == short(key):
                return f"key of type {kind} would come back as {name_of(type(other))}"
        return "this key is not part of the annotation and would be lost"
    return f"key of type {kind}: the keys of a JSON object are text; annotate the dict as dict[{kind}, ...]"


def _difference(sent: Any, received: Any, noun: str) -> str:
    kind, other = type(sent), type(received)
    try:
        equal = bool(sent == received)
    except Exception as error:  # noqa: BLE001 - the `__eq__` of a user's class may raise anything
        return f"comparing the {name_of(kind)} with what comes back raised {name_of(type(error))}: {short(error)}"
    if equal or kind is other:
        advice = "convert it to UTC first" if issubclass(kind, dt.datetime) else "define its __eq__"
        return f"{name_of(kind)}: what comes back is not equal to it; {advice}"
    if issubclass(kind, (int, float)) and issubclass(other, (int, float)):
        return f"{short(sent)} would come back as {short(received)}: the annotation loses digits"
    if other in _NATIVE:
        wanted = name_of(kind) + ("[...]" if issubclass(kind, _ARRAYS) and not hasattr(kind, "_fields") else "")
        return f"{name_of(kind)}: annotate {noun} as {wanted}; as it is, it would come back as {name_of(other)}"
    return f"expected {name_of(other)}, got {name_of(kind)}"


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - the `__eq__` of a user's class may raise anything; it is named by the caller
        return False
