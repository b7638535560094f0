"""The acceptance rule against random values: an oracle says what must be accepted, hostile mixtures must only be refused."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadArgs, BadResult
from holdfast.tasks.codec import ArgsCodec, ResultCodec

if TYPE_CHECKING:
    from collections.abc import Callable


def _codec(annotation: Any) -> ArgsCodec:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": annotation}
    return ArgsCodec.of(function, task="t")


def _result_codec(annotation: Any) -> ResultCodec:
    def function() -> None: ...

    function.__annotations__ = {"return": annotation}
    return ResultCodec.of(function, task="t")


def _outcome(
    act: Callable[[Any], Any], value: Any, refusal: type[BadArgs | BadResult]
) -> tuple[Any, BadArgs | BadResult | None]:
    """What came of it: a value or the one refusal that is allowed; anything else raised fails the test."""
    try:
        return act(value), None
    except refusal as refused:
        return None, refused


# --- (a) values of JSON, good and bad ----------------------------------------------------------------------------------------

_texts = st.text(st.one_of(st.characters(), st.sampled_from('\0\ud800\udfff\\"[]{}0123456789')), max_size=25) | st.sampled_from(
    ["\\u0000", "null", "NaN", "9" * 25],
)
_edges = st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**18, 10**19])
_leaves = st.none() | st.booleans() | st.integers() | _edges | st.floats() | _texts
_trees = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_texts, inner, max_size=5))


@st.composite
def _nested(draw: st.DrawFn) -> Any:
    value = draw(_trees)
    for _ in range(draw(st.sampled_from([0, 0, 0, 60, 62, 63, 64, 65]))):
        value = {"k": value} if draw(st.booleans()) else [value]
    return value


def _must_be_accepted(value: Any, depth: int = 0) -> bool:
    match value:
        case None | bool():
            return True
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return math.isfinite(value)
        case str():
            return not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value)
        case list():
            return depth < 64 and all(_must_be_accepted(part, depth + 1) for part in value)
        case dict():
            return depth < 64 and all(
                _must_be_accepted(key, depth) and _must_be_accepted(part, depth + 1) for key, part in value.items()
            )
    raise AssertionError(value)


def _identical(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    match one:
        case list():
            return len(one) == len(other) and all(map(_identical, one, other))
        case dict():
            return list(one) == list(other) and all(_identical(one[key], other[key]) for key in one)
        case float():
            return bool(one.hex() == other.hex())
    return bool(one == other)


ANYTHING = _codec(Any)
ANY_RESULT = _result_codec(Any)


@pytest.mark.row(31)
@settings(max_examples=400, deadline=None)
@given(_nested())
@example([[[None]] * 30])
def test_values_of_json_are_accepted_exactly_when_the_rule_holds(value: Any) -> None:
    expected = _must_be_accepted(value)
    for encode, decode, refusal in (
        (ANYTHING.encode, lambda text: ANYTHING.decode(text)[1]["x"], BadArgs),
        (ANY_RESULT.encode, ANY_RESULT.decode, BadResult),
    ):
        text, refused = _outcome(encode, value, refusal)
        assert (refused is None) is expected, refused
        if refused:
            assert refused.reason
            assert refused.path.startswith(("x", "result"))
        else:
            assert _identical(decode(text), value)


_PLAIN: list[tuple[Any, type]] = [(int, int), (str, str), (bool, bool), (float, float)]


@settings(max_examples=200, deadline=None)
@given(_leaves)
def test_plain_annotations_take_their_own_type_and_ints_for_floats(value: Any) -> None:
    for annotation, kind in _PLAIN:
        own = type(value) is kind or (kind is float and type(value) is int)
        expected = own and _must_be_accepted(value) and kind(value) == value
        text, refused = _outcome(_PLAIN_CODECS[kind].encode, value, BadArgs)
        assert (refused is None) is expected, annotation
        if not refused:
            assert _PLAIN_CODECS[kind].decode(text)[1]["x"] == value


_PLAIN_CODECS = {kind: _codec(annotation) for annotation, kind in _PLAIN}


# --- (b) hostile mixtures ----------------------------------------------------------------------------------------------------


class Number(IntEnum):
    ONE = 1


class Mixed(Enum):
    PAIR = (1, "\0")
    HUGE = 2**70
    TEXT = "\ud800"


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    inner: Any = None
    number: float = 0.0


class Record(msgspec.Struct):
    inner: Any = None


@dataclass
class Row:
    inner: Any = None


@dataclass
class Unequal:
    inner: Any = None

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError


class Mute:
    def __repr__(self) -> NoReturn:
        raise RuntimeError

    __str__ = __repr__

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError


class BadDict(dict[Any, Any]):
    def items(self) -> NoReturn:
        raise RuntimeError

    keys = values = __iter__ = __len__ = __contains__ = items  # type: ignore[assignment]


class BadList(list[Any]):
    def __iter__(self) -> NoReturn:
        raise RuntimeError

    __len__ = __iter__


class BadText(str):
    __slots__ = ()
    __hash__ = str.__hash__

    def __str__(self) -> NoReturn:
        raise RuntimeError

    __repr__ = __str__

    def __eq__(self, other: object) -> NoReturn:
        raise RuntimeError


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError


class NoName(metaclass=Meta):
    pass


def _ring() -> list[Any]:
    ring: list[Any] = [1]
    ring.append(ring)
    return ring


# Strategies give recipes, because Hypothesis prints what it draws and these objects resist that.
_HOSTILE: dict[str, Callable[[], Any]] = {
    "object": object,
    "mute": Mute,
    "no name": NoName,
    "text": lambda: BadText("x"),
    "int enum": lambda: Number.ONE,
    "tuple enum": lambda: Mixed.PAIR,
    "huge enum": lambda: Mixed.HUGE,
    "surrogate enum": lambda: Mixed.TEXT,
    "class": lambda: Model,
    "function": lambda: print,
    "ring": _ring,
    "ellipsis": lambda: ...,
    "bytes": lambda: b"\0",
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"x"),
    "signalling": lambda: Decimal("sNaN"),
    "infinity": lambda: Decimal("Infinity"),
    "complex": lambda: 1j,
    "range": lambda: range(3),
    "unset": lambda: msgspec.UNSET,
    "broken raw": lambda: msgspec.Raw(b'{"a":'),
    "raw": lambda: msgspec.Raw(b"1"),
    "latest": lambda: dt.datetime.max.replace(tzinfo=dt.UTC),
    "shortest": lambda: dt.timedelta.min,
    "time": lambda: dt.time(1, tzinfo=dt.UTC),
    "endless": lambda: 10**5000,
    "deep": lambda: _deep(3000),
}
_KEYS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "true": lambda: True,
    "one": lambda: 1,
    "huge": lambda: 2**70,
    "nan": lambda: math.nan,
    "infinity": lambda: math.inf,
    "NUL": lambda: "\0",
    "surrogate": lambda: "\ud800",
    "tuple": lambda: (1, 2),
    "bytes": lambda: b"y",
    "int enum": lambda: Number.ONE,
    "tuple enum": lambda: Mixed.PAIR,
    "mute": Mute,
    "text": lambda: BadText("x"),
    "plain": lambda: "a",
}
_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "model": lambda value: Model.model_construct(inner=value, number=value),
    "struct": Record,
    "dataclass": Row,
    "unequal": Unequal,
    "dict": lambda value: BadDict(a=value),
    "list": lambda value: BadList([value]),
    "tuple": lambda value: (value,),
}
_recipes = st.recursive(
    st.tuples(st.just("plain"), _leaves) | st.tuples(st.just("hostile"), st.sampled_from(sorted(_HOSTILE))),
    lambda inner: (
        st.tuples(st.just("list"), st.lists(inner, max_size=3))
        | st.tuples(st.just("dict"), st.dictionaries(st.sampled_from(sorted(_KEYS)), inner, max_size=3))
        | st.tuples(st.sampled_from(sorted(_WRAPPERS)).map("wrapped in {}".format), inner)
    ),
    max_leaves=10,
)


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _build(recipe: tuple[str, Any]) -> Any:
    kind, content = recipe
    match kind:
        case "plain":
            return content
        case "hostile":
            return _HOSTILE[content]()
        case "list":
            return [_build(part) for part in content]
        case "dict":
            return {_KEYS[key](): _build(part) for key, part in content.items()}
    return _WRAPPERS[kind.removeprefix("wrapped in ")](_build(content))


_ANNOTATIONS: list[Any] = [
    Any, int, float | None, str, list[Any], dict[str, Any], dict[int, Any], dict[float, Any], set[Any], tuple[Any, ...],
    Decimal, bytes, Number, Model, list[Model], Record, Row, Unequal, Row | None,
]  # fmt: skip
_CODECS = [(_codec(annotation), _result_codec(annotation)) for annotation in _ANNOTATIONS]


@pytest.mark.row(31)
@settings(max_examples=500, deadline=None)
@given(_recipes, st.sampled_from(range(len(_CODECS))))
def test_hostile_values_are_accepted_or_refused_and_never_crash(recipe: tuple[str, Any], chosen: int) -> None:
    args_codec, result_codec = _CODECS[chosen]
    value = _build(recipe)
    text, refused = _outcome(args_codec.encode, value, BadArgs)
    if refused:
        assert refused.path.startswith("x") or not refused.path
        assert 0 < len(refused.reason) < 600
    else:
        args_codec.decode(text)
    text, refused = _outcome(result_codec.encode, value, BadResult)
    if refused:
        assert refused.path.startswith("result")
        assert 0 < len(refused.reason) < 600
    else:
        result_codec.decode(text)


@settings(max_examples=200, deadline=None)
@given(st.text() | _trees.map(lambda tree: json.dumps({"x": tree})) | _trees.map(json.dumps))
def test_any_stored_text_decodes_or_is_refused(text: str) -> None:
    for args_codec, result_codec in _CODECS:
        for decode, refusal in ((args_codec.decode, BadArgs), (result_codec.decode, BadResult)):
            _, refused = _outcome(decode, text, refusal)
            assert refused is None or refused.reason
