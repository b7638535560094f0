"""The statements, from the `.sql` files beside this module: one file for each operation, named statements inside."""

from __future__ import annotations

from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_IDS: Final = 512
"""Ids in one IN list; well below the 32,766 parameters of SQLite, and few enough lengths to stay prepared."""


@cache
def sql(name: str) -> str:
    """Return a statement by `file.name`."""
    operation, _, statement = name.partition(".")
    return _statements(operation)[statement]


def in_chunks(name: str, ids: Iterable[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Return the statement with `{ids}` filled in, and its parameters, for as many ids at a time as it takes.

    Lists are padded to a power of two by repeating the last id, so that few different statements have to be prepared.
    """
    remaining = iter(ids)
    while chunk := list(islice(remaining, MOST_IDS)):
        length = 1 << (len(chunk) - 1).bit_length()
        chunk += chunk[-1:] * (length - len(chunk))
        yield _with_ids(name, length), chunk


@cache
def _with_ids(name: str, length: int) -> str:
    return sql(name).replace("{ids}", ", ".join("?" * length))


@cache
def _statements(operation: str) -> dict[str, str]:
    text = resources.files(__package__).joinpath("sql", f"{operation}.sql").read_text(encoding="utf-8")
    found = {}
    for block in text.split("-- name: ")[1:]:
        name, *lines = block.splitlines()
        # without comments: a word to be filled in must not be filled in there
        found[name.strip()] = "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip()
    return found
