"""Many rows with one statement: ids in a row as one blob, what else differs between the rows as one JSON array.

Given row by row, sqlite3 lets go of the interpreter's lock several times for each, and beside a busy event loop each time is a
wait for it; `None` and `bytes` among the parameters cost it more than the insert. A statement takes such a pair apart with
`json_each(?) AS known` and `substr(?, 16 * known.key + 1, 16)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WIDE: Final = 4000
"""Characters from which on a text goes alone: into JSON and out of it costs it more than a statement of its own."""
MOST: Final = 5_000
"""Values in one array: twenty megabytes at most, which SQLite holds twice while the statement runs."""

_encode: Final = msgspec.json.Encoder().encode


def pack(ids: Iterable[bytes]) -> bytes:
    """Return ids of 16 bytes as one blob."""
    return b"".join(ids)


def listed(values: Sequence[object]) -> str:
    """Return values as a JSON array, for `json_each`: text comes out as it went in, `None` as null."""
    return _encode(values).decode()


places: Final = msgspec.json.Decoder(list[int]).decode
"""Returns the places that a statement gave as a JSON array."""


class Portion(NamedTuple):
    """What one statement is to write: ids and texts side by side, or a wide text alone."""

    ids: bytes
    texts: str
    wide: str | None


def portions(ids: Sequence[bytes], texts: Sequence[str | None]) -> Iterator[Portion]:
    """Return ids and texts, as many at a time as one statement should take."""
    wide = {place for place, text in enumerate(texts) if text is not None and len(text) > WIDE}
    for place in sorted(wide):
        yield Portion(ids[place], ALONE, texts[place])
    if wide:
        ids = [one for place, one in enumerate(ids) if place not in wide]
        texts = [text for place, text in enumerate(texts) if place not in wide]
    for start in range(0, len(ids), MOST):
        yield Portion(pack(ids[start : start + MOST]), listed(texts[start : start + MOST]), None)


ALONE: Final = "[null]"
"""The array beside a wide text: one row, without anything."""
