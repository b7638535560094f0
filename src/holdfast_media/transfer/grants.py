"""What a job may read and write: said by its args, and by nothing that a worker could write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast_media.errors import MediaError
from holdfast_media.storage.keys import checked_key

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Grant:
    """Keys that an attempt may use. Each stands for itself, and for everything below it as a folder."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """May be read, too."""

    def may_read(self, key: str) -> bool:
        """Tell whether a key, or all keys with a prefix that ends with a slash, may be read."""
        return _covers((*self.reads, *self.writes), key)

    def may_write(self, key: str) -> bool:
        """Tell whether a key, or all keys with a prefix that ends with a slash, may be written."""
        return _covers(self.writes, key)


Grants: TypeAlias = Callable[[str, Mapping[str, Any]], Grant]
"""Returns what a job may use, from the name of its task and its args: those of the first step of its chain."""


def grants_by_fields(*, reads: Iterable[str] = ("source",), writes: Iterable[str] = ("output",)) -> Grants:
    """Return grants that fields of the args name: a key, or a list of keys.

    `a.b` is the field `b` of the field `a`, or of each in the list `a`.

    A field that is missing grants nothing. One that holds something else than keys is refused with `ACCESS_DENIED`.
    """
    read_fields, write_fields = tuple(reads), tuple(writes)

    def grant(task: str, args: Mapping[str, Any]) -> Grant:
        return Grant(
            tuple(key for field in read_fields for key in _keys(task, args, field)),
            tuple(key for field in write_fields for key in _keys(task, args, field)),
        )

    return grant


def decoded_args(task: str, text: str) -> Mapping[str, Any]:
    """Return the args of a job from their JSON text."""
    args = msgspec.json.decode(text)
    if not isinstance(args, dict):
        why = f"the args of {task} are encrypted, so nobody here can tell what it may use. Leave its storage keys unencrypted"
        raise MediaError("ACCESS_DENIED", why)
    return args


def _keys(task: str, args: Mapping[str, Any], field: str) -> list[str]:
    found: list[Any] = [args]
    for name in field.split("."):
        found = [one[name] for one in found if isinstance(one, dict) and one.get(name) is not None]
        found = [each for one in found for each in (one if isinstance(one, list) else [one])]
    try:
        return [checked_key(key.removesuffix("/")) for key in found]
    except (MediaError, AttributeError):
        raise MediaError("ACCESS_DENIED", f"the field {field} of a job of {task} holds no storage keys") from None


def _covers(granted: Iterable[str], key: str) -> bool:
    return any(key.removesuffix("/") == one or key.startswith(f"{one}/") for one in granted)
