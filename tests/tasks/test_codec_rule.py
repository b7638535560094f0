"""The acceptance rule: what comes back equal is accepted, what no store could keep is refused with path and reason."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from holdfast.errors import BadArgs
from holdfast.tasks.codec import ArgsCodec


class Size(IntEnum):
    SMALL = 1


class Color(StrEnum):
    RED = "red"


class Kind(Enum):
    ODD = "odd"


class Huge(Enum):
    NUMBER = 2**63


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    name: str


class Node(msgspec.Struct):
    name: str
    below: list[Node] = []


@dataclass
class User:
    name: str
    tags: list[Tag]


@dataclass
class Tag:
    name: str


@dataclass
class Reading:
    sensor: str
    value: float | None = field(default=None, compare=False)
    price: Decimal | None = field(default=None, compare=False)


@dataclass(eq=False)
class Nameless:
    a: int


class Account(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    id: uuid.UUID
    opened: dt.date
    label: str = pydantic.Field("x", alias="displayName")
    weight: float = 0.0

    @pydantic.computed_field
    def doubled(self) -> float:
        return self.weight * 2


class Coded(pydantic.BaseModel):
    """Stores its text as something that its fields do not show."""

    text: str

    @pydantic.field_serializer("text")
    def _write(self, text: str) -> Any:
        return {"deep": nest(text, 64), "huge": 2**63, "nul": f"{text}\0"}.get(text, text)

    @pydantic.field_validator("text", mode="before")
    @classmethod
    def _read(cls, stored: Any) -> str:
        return {list: "deep", int: "huge", str: str(stored).removesuffix("\0")}[type(stored)]


class SafeText(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another text"


class Measure(float):
    __slots__ = ()


def codec(annotation: Any, **options: Any) -> ArgsCodec:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": annotation}
    return ArgsCodec.of(function, task="t", **options)


def refusal(annotation: Any, value: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(BadArgs) as caught:
        codec(annotation, **options).encode(value)
    return caught.value.path, caught.value.reason


def nest(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


# --- accepted ----------------------------------------------------------------------------------------------------------------

ACCOUNT = Account(id=uuid.UUID(int=7), opened=dt.date(2026, 1, 2), displayName="é")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, {"a": [1, -1.5, None, True, "é\n\x7f\u2028😀"], "": {}, "a b": []}),
        (Any, "the six characters \\u0000 are text"),
        (Any, {"\\u0000": "\\\\u0000"}),
        (Any, "9" * 40),
        (Any, [2**63 - 1, -(2**63)]),
        (Any, ['[[[{{{\\"' * 30, "]" * 99, '"']),
        (Any, [{} for _ in range(1000)]),
        (Any, nest("leaf", 64)),
        (Any, nest([], 63)),
        (Any, "null nan inf Infinity NaN"),
        (float, -0.0),
        (float, 1e308),
        (float, 5e-324),
        (float, 0.000012345678901234567),
        (float, 3),
        (float | None, None),
        (int | None, None),
        (int | str, "1"),
        (int | float, 1.0),
        (str, "x"),
        (bool, True),
        (bytes, b"\x00\xff"),
        (dt.datetime, dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=ZoneInfo("Europe/Berlin"))),
        (dt.datetime, dt.datetime(2026, 1, 2)),  # noqa: DTZ001 - naive ones are accepted
        (dt.date, dt.date(2026, 1, 2)),
        (dt.time, dt.time(1, 2, 3)),
        (dt.timedelta, dt.timedelta(days=-3, microseconds=5)),
        (uuid.UUID, uuid.UUID(int=5)),
        (Decimal, Decimal("1.10")),
        (Kind, Kind.ODD),
        (Size, Size.SMALL),
        (Literal["a", 1] | None, "a"),
        (User, User("Ada", [Tag("a")])),
        (list[User], [User("Ada", []), User("Bob", [Tag("null")])]),
        (Reading, Reading("s", 1.5, Decimal("2.5"))),
        (Reading, Reading("s")),
        (Node, Node("a", [Node("b")])),
        (Options, {"name": "x"}),
        (Point, Point(1, 2)),
        (list[int], [1]),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (set[str], {"a", "b"}),
        (frozenset[int], frozenset({1})),
        (dict[str, Any], {"a": None}),
        (dict[int, str], {1: "a"}),
        (dict[float, int], {1.5: 1}),
        (dict[Color, int], {Color.RED: 1}),
        (Annotated[int, msgspec.Meta(ge=3)], 3),
        (Account, ACCOUNT),
        (Coded, Coded(text="plain")),
        (list[Account], [ACCOUNT]),
        (dict[str, Account | None], {"a": ACCOUNT, "b": None}),
    ],
)
def test_what_comes_back_equal_is_accepted(annotation: Any, value: Any) -> None:
    declared = codec(annotation)
    args, kwargs = declared.decode(declared.encode(value))
    assert args == ()
    assert kwargs == {"x": value}
    assert type(kwargs["x"]) is (float if annotation is float else type(value))


@pytest.mark.parametrize(
    ("annotation", "value", "plain"),
    [
        (str, SafeText("a"), str),
        (Any, SafeText("a"), str),
        (float, Measure(1.5), float),
        (str, Color.RED, str),
        (int, Size.SMALL, int),
        (dict[str, int], OrderedDict(a=1), dict),
        (set[int], frozenset({1}), set),
        (tuple[int, int], Point(1, 2), tuple),
    ],
)
def test_a_subclass_is_accepted_and_comes_back_as_the_plain_type(annotation: Any, value: Any, plain: type) -> None:
    declared = codec(annotation)
    received = declared.decode(declared.encode(value))[1]["x"]
    assert received == value
    assert type(received) is plain


# --- refused -----------------------------------------------------------------------------------------------------------------

NAN, INFINITY = "NaN is not JSON", "infinity is not JSON"


@pytest.mark.parametrize(
    ("annotation", "value", "path", "reason"),
    [
        # characters
        (Any, "abc\0", "x", "NUL character at position 3: PostgreSQL cannot store it"),
        (str, "\0", "x", "NUL character at position 0"),
        (Any, ["\\u0000", "a\0"], "x[1]", "NUL character at position 1"),
        (Any, {"a\0": 1}, 'x["a\\u0000"]', "in the key: NUL character at position 1"),
        (Any, "a\ud800", "x", "lone surrogate '\\ud800' at position 1"),
        (Any, "\ud83d\ude00", "x", "lone surrogate '\\ud83d' at position 0"),
        (Any, {"k": {"\udfff": 1}}, 'x.k["\\udfff"]', "in the key: lone surrogate '\\udfff'"),
        # numbers
        (float, math.nan, "x", NAN),
        (float | None, math.nan, "x", NAN),
        (int | None, math.nan, "x", NAN),
        (float | None, math.inf, "x", INFINITY),
        (float | None, -math.inf, "x", INFINITY),
        (Any, {"a": [math.inf]}, "x.a[0]", INFINITY),
        (dict[float, int], {math.inf: 1}, "x[inf]", "in the key: infinity"),
        (dict[float, int], {math.nan: 1}, "x[nan]", "in the key: NaN"),
        (Decimal, Decimal("NaN"), "x", NAN),
        (Decimal, Decimal("sNaN"), "x", NAN),
        (Decimal, Decimal("-Infinity"), "x", INFINITY),
        (Reading, Reading("s", math.nan), "x.value", NAN),  # compare=False: the values are equal
        (Reading, Reading("s", None, Decimal("NaN")), "x.price", NAN),
        (Any, 2**63, "x", "integer 9223372036854775808 does not fit in 64 bits: pass it as a string"),
        (Any, -(2**63) - 1, "x", "integer -9223372036854775809 does not fit in 64 bits"),
        (float, 2**63, "x", "integer 9223372036854775808 does not fit in 64 bits"),
        (Decimal, 10**30, "x", "does not fit in 64 bits"),
        (dict[int, int], {2**63: 1}, "x[9223372036854775808]", "in the key: integer 9223372036854775808"),
        (Any, Huge.NUMBER, "x", "integer 9223372036854775808 does not fit in 64 bits"),
        (float, 2**53 + 1, "x", "9007199254740993 would come back as 9007199254740992.0"),
        # what comes back as something else
        (Any, {1}, "x", "set: annotate the parameter as set[...]; as it is, it would come back as list"),
        (Any, {"a b": (1,)}, 'x["a b"]', "tuple: annotate it as tuple[...]"),
        (Any, b"a", "x", "bytes: annotate the parameter as bytes; as it is, it would come back as str"),
        (Any, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "x", "datetime: annotate the parameter as datetime"),
        (Any, Kind.ODD, "x", "Kind: annotate the parameter as Kind"),
        (Any, Point(1, 2), "x", "Point: annotate the parameter as Point"),
        (Any, User("Ada", []), "x", "User: annotate the parameter as User; as it is, it would come back as dict"),
        (Any, ACCOUNT, "x", "Account: annotate the parameter as Account"),
        (Any, {1: 2}, "x[1]", "key of type int: the keys of a JSON object are text; annotate the dict as dict[int, ...]"),
        (Any, {None: 2}, "x[None]", "key of type None: the keys of a JSON object are text"),
        (Any, {(1, 2): 2}, "x[(1, 2)]", "key of type tuple"),
        (dict[int, int], {"1": 1}, 'x["1"]', "key of type str would come back as int"),
        (list[int], (1,), "x", "tuple: annotate the parameter as tuple[...]"),
        (Options, {"name": "x", "more": 1}, "x.more", "this key is not part of the annotation and would be lost"),
        (Nameless, Nameless(1), "x", "Nameless: what comes back is not equal to it; define its __eq__"),
        (
            dt.datetime,
            dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),  # happens twice that night
            "x",
            "datetime: what comes back is not equal to it; convert it to UTC first",
        ),
        # types
        (int, True, "x", "expected int, got bool"),
        (int, "1", "x", "expected int, got str"),
        (int, 1.0, "x", "expected int, got float"),
        (int, dt.date(2026, 1, 2), "x", "expected int, got date"),
        (int, None, "x", "expected int, got None"),
        (int | None, "1", "x", "expected int | None, got str"),
        (list[int], "1", "x", "expected list[int], got str"),
        (list[int], [1, True], "x[1]", "expected int, got bool"),
        (
            dict[str, dict[str, int]],
            {"a": {"b": 1}, "c d": {"e": 1, "f": "x", "g": "y"}},
            'x["c d"].f',
            "expected int, got str",
        ),
        (dict[str, dict[str, int]], {"a": {"y": "?", "x": 1}, "b": {"z": "?"}}, "x.a.y", "expected int, got str"),
        (dict[int, int], {"a": 1}, "x.a", "in the key: expected int, got str"),
        (User, {"name": "Ada", "tags": []}, "x", "expected User, got dict"),
        (User, User("Ada", [Tag("a"), Tag(1)]), "x.tags[1].name", "expected str, got int"),  # type: ignore[arg-type]
        (uuid.UUID, str(uuid.UUID(int=5)), "x", "expected UUID, got str"),
        (dt.date, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "x", "invalid RFC3339 encoded date (got datetime)"),
        (Options, {}, "x.name", "missing field 'name'"),
        (tuple[int, int], (1,), "x", "expected list of length 2"),
        (Literal["a"], "b", "x", "invalid enum value 'b'"),
        (Annotated[int, msgspec.Meta(ge=3)], 2, "x", "expected int >= 3"),
        # objects
        (Any, object(), "x", "object of type object cannot be encoded"),
        (list[int], [1, object()], "x[1]", "object of type object cannot be encoded"),
        (Any, [1, {"f": print}], "x[1].f", "object of type builtin_function_or_method cannot be encoded"),
        (Any, msgspec.Raw(b"1"), "x", "Raw"),
        # pydantic
        (Coded, Coded(text="nul"), "x.text", "NUL character at position 3"),
        (Coded, Coded(text="huge"), "x.text", "integer 9223372036854775808 does not fit in 64 bits"),
        (Coded, Coded(text="deep"), "x.text[0]", "nested deeper than 64 levels"),
        (Account, {"id": "x"}, "x", ""),
        (Account, ACCOUNT.model_copy(update={"label": "\0"}), "x.label", "NUL character at position 0"),
        (Account, ACCOUNT.model_copy(update={"label": "\ud800"}), "x.label", "lone surrogate"),
        (list[Account], [ACCOUNT.model_copy(update={"weight": math.nan})], "x[0].weight", NAN),
        (list[Account], [ACCOUNT, ACCOUNT.model_copy(update={"opened": 5})], "x[1].opened", "input should be a valid date"),
    ],
)
def test_what_breaks_the_rule_is_refused_where_it_stands(annotation: Any, value: Any, path: str, reason: str) -> None:
    found_path, found_reason = refusal(annotation, value)
    assert found_path.startswith(path)
    assert reason in found_reason


def test_an_integer_too_long_to_print_is_refused_by_its_bits() -> None:
    assert refusal(int, 10**6000) == ("x", "integer of 19932 bits does not fit in 64 bits: pass it as a string")


def test_sixty_five_levels_are_refused_even_when_the_innermost_is_empty() -> None:
    for value in (nest("leaf", 65), nest([], 64), nest({}, 64), {"a": nest(1, 64)}, nest(1, 5000)):
        assert refusal(Any, value)[1] == "nested deeper than 64 levels"


def test_depth_is_not_hidden_by_brackets_in_text() -> None:
    value: Any = "["
    for _ in range(65):
        value = ["]", value, "["]
    assert refusal(Any, value)[1] == "nested deeper than 64 levels"


def test_a_recursive_type_is_bounded_too() -> None:
    def tree(levels: int) -> Node:
        node = Node("leaf")
        for _ in range(levels - 1):
            node = Node("n", [node])
        return node

    # Each node is an object and a list, and the leaf's empty list counts.
    assert codec(Node).encode(tree(32))
    assert refusal(Node, tree(33))[1] == "nested deeper than 64 levels"


def test_structures_that_hold_themselves_are_too_deep() -> None:
    ring: list[Any] = []
    ring += [1, ring, ring]
    loop: dict[str, Any] = {}
    loop["a b"] = {"c": loop}
    user = User("Ada", [])
    user.tags.append(user)  # type: ignore[arg-type]
    for annotation, value in ((Any, ring), (Any, loop), (User, user), (list[int], ring)):
        path, reason = refusal(annotation, value)
        assert reason == "nested deeper than 64 levels"
        assert path.startswith("x")
        assert len(path) < 100


def test_size_counts_the_bytes_of_the_whole_text() -> None:
    exactly = "é" * ((100 - len('{"x":""}')) // 2)
    declared = codec(str, max_bytes=100)
    assert len(declared.encode(exactly).encode()) == 100
    assert refusal(str, exactly + "a", max_bytes=100) == (
        "x",
        "101 bytes encoded, the limit is 100 bytes: store the data elsewhere and pass a reference",
    )


def test_the_largest_argument_is_named_when_the_text_is_too_long() -> None:
    def function(small: str, large: str) -> None: ...

    with pytest.raises(BadArgs) as caught:
        ArgsCodec.of(function, task="t").encode("a" * 1000, "b" * 2_000_000)
    assert caught.value.path == "large"
    assert caught.value.reason == "1.9 MiB encoded, the limit is 1.0 MiB: store the data elsewhere and pass a reference"


def test_a_limit_missed_by_one_byte_is_shown_in_bytes() -> None:
    assert refusal(str, "a" * 1024 * 1024)[1].startswith("1048584 bytes encoded, the limit is 1048576 bytes")


# --- hostile classes ---------------------------------------------------------------------------------------------------------


@dataclass
class Raises:
    a: int

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("x" * 10_000)


class Mute:
    def __repr__(self) -> NoReturn:
        raise RuntimeError

    __str__ = __repr__

    @property  # type: ignore[misc]
    def __class__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError


class Liar(dict[str, Any]):
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return True

    def items(self) -> NoReturn:
        raise RuntimeError

    keys = values = __iter__ = __len__ = items


def test_an_error_inside_eq_is_a_refusal_with_a_short_message() -> None:
    path, reason = refusal(list[Raises], [Raises(1)])
    assert path == "x[0]"
    assert reason.startswith("comparing the Raises with what comes back raised ZeroDivisionError: xxx")
    assert len(reason) < 400


def test_an_object_without_a_text_is_a_refusal() -> None:
    assert refusal(Any, [Mute()]) == ("x[0]", "object of type Mute cannot be encoded: pass data, or an id to load it by")
    assert refusal(Any, {Mute(): 1})[1] == "key of type Mute: the keys of a JSON object are text"


def test_nan_is_found_behind_an_eq_that_always_agrees() -> None:
    assert refusal(dict[str, float | None], Liar(a=math.nan)) == (
        "x.a",
        "NaN is not JSON: pass None, or text that says what it means",
    )


def test_names_in_a_message_are_cut() -> None:
    path, reason = refusal(Any, {"k" * 10_000: {"a b" * 10_000: {1: object()}}})
    assert len(path) < 250
    assert len(reason) < 250


# --- the page that documents the rule ----------------------------------------------------------------------------------------


def test_the_example_on_the_reference_page_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "args.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(page), "exec", dont_inherit=True), {"__name__": "example"})
