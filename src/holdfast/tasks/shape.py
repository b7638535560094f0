"""What the JSON of an annotation can hold, so that encode checks only for that.

The decoder has validated the text against the annotation, hence a text of `list[str]` cannot hold an integer or a null, and
nobody needs to look for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec.inspect as types

from holdfast.tasks.hooks import is_model
from holdfast.tasks.values import MAX_DEPTH, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTAINERS: Final[frozenset[type]] = frozenset(
    {types.ListType, types.TupleType, types.VarTupleType, types.SetType, types.FrozenSetType, types.DictType, types.UnionType},
)
_NUMBERS: Final[frozenset[type]] = frozenset({types.IntType, types.FloatType})
_WORDS: Final[frozenset[type]] = frozenset(
    {
        types.StrType,
        types.BytesType,
        types.ByteArrayType,
        types.MemoryViewType,
        types.DateTimeType,
        types.DateType,
        types.TimeType,
        types.UUIDType,
    },
)
_PLAIN: Final[frozenset[type]] = _CONTAINERS | _NUMBERS | _WORDS | {types.BoolType, types.NoneType}
_NOT_A_KEY: Final = (
    types.BoolType,
    types.ListType,
    types.TupleType,
    types.VarTupleType,
    types.SetType,
    types.FrozenSetType,
    types.DictType,
    types.StructType,
    types.DataclassType,
    types.NamedTupleType,
    types.TypedDictType,
    types.CustomType,
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a text may hold and must therefore be searched for."""

    texts: bool
    integers: bool
    nulls: bool
    infinities: bool
    """NaN or infinity written as text: a Decimal, or a float that is a key."""
    deep: bool
    """Nesting that the annotation does not bound."""


class UnsupportedTypeError(TypeError):
    """An annotation no value of which could be stored; the message says what to write instead."""


def shape_of(annotation: Any) -> Shape:
    """Examine an annotation; `UnsupportedTypeError` when it, or a type inside it, cannot be stored as JSON."""
    try:
        root = types.type_info(annotation)
    except Exception as error:
        raise UnsupportedTypeError(f"{error}: {_fix_for(error)}") from error
    nodes = list(_all_types(root))
    for node in nodes:
        _refuse_unsupported(node)
    kinds = {type(node) for node in nodes}
    # Any, and classes: their equality is the user's business and unknown fields are skipped, so everything is searched for.
    opaque = bool(kinds - _PLAIN)
    return Shape(
        texts=opaque or bool(kinds & _WORDS),
        # An int is fine where a float is asked for, and it must fit as well.
        integers=opaque or bool(kinds & _NUMBERS),
        nulls=opaque or types.NoneType in kinds,
        infinities=bool(kinds - _PLAIN - {types.AnyType}) or kinds >= {types.DictType, types.FloatType},
        deep=opaque or len(nodes) > MAX_DEPTH,
    )


def _fix_for(error: Exception) -> str:
    if isinstance(error, NameError):
        return "import or define it at module level, outside of `if TYPE_CHECKING`"
    if "union" in str(error):
        return "JSON cannot tell them apart; use separate parameters, or msgspec.Structs with tags"
    return "use another type, or typing.Any for plain JSON"


def _all_types(root: types.Type) -> Iterator[types.Type]:
    # Types that hold themselves come back as the same node.
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        one = (getattr(node, name, None) for name in ("type", "item_type", "key_type", "value_type"))
        waiting.extend(inner for inner in one if inner is not None)
        for name in ("types", "item_types"):
            waiting.extend(getattr(node, name, ()))
        waiting.extend(field.type for field in getattr(node, "fields", ()))


def _refuse_unsupported(node: types.Type) -> None:
    match node:
        case types.CustomType(cls=cls) if cls is object:
            message = "object says nothing about the data: use typing.Any for plain JSON"
        case types.CustomType(cls=cls) if not is_model(cls):
            message = (
                f"{name_of(cls)} cannot be stored as JSON: use a dataclass, a msgspec.Struct, a TypedDict, a pydantic model "
                "or a plain type, or pass an id and load the object inside the task"
            )
        case types.RawType() | types.ExtType():
            message = "msgspec.Raw and Ext are not accepted, because their content is never checked: use typing.Any"
        case types.DictType(key_type=key) if isinstance(key, _NOT_A_KEY):
            message = "the keys of a JSON object are text: use str or a number as the key, or a list of pairs"
        case _:
            return
    raise UnsupportedTypeError(message)
