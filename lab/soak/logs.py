"""Reading what processes have logged: errors of their own, which nobody else would tell of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lab.soak.books import ASKING, STUMBLING

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN: Final = " own;"
"""In what the runtime logs about an error that is its own."""
GONE: Final = "is gone"
"""In what a producer prints about an acknowledged job that the store does not know."""
FORGOTTEN: Final = ("was never retrieved", "was never awaited")
"""In what the interpreter says of tasks and coroutines that nobody looks after."""
TRACEBACK: Final = "Traceback (most recent call last)"
LONGEST: Final = 300
_BEGINS: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ")
_OF_A_HANDLER: Final = re.compile(r"\S+ \S+ [A-Z]+ holdfast\.worker job \S+ \((\w+)\), attempt \d+: ")
_MAY_RAISE: Final = ASKING | STUMBLING.keys()


def complaints(text: str, *, worker: bool) -> list[str]:
    """Return what a log says that it should not; a worker may tell of errors that its handlers were made to raise."""
    return [
        _shown(record)
        for record in _records(text)
        if OWN in record
        or GONE in record
        or any(words in record for words in FORGOTTEN)
        or (TRACEBACK in record and not (worker and _of_a_handler(record)))
    ]


def _of_a_handler(record: str) -> bool:
    told = _OF_A_HANDLER.match(record)
    return told is not None and told[1] in _MAY_RAISE


def _records(text: str) -> Iterator[str]:
    """Yield what was logged at once: a line with a time, and those below it that have none."""
    record: list[str] = []
    for line in text.splitlines():
        if _BEGINS.match(line) and record:
            yield "\n".join(record)
            record = []
        record.append(line)
    if record:
        yield "\n".join(record)


def _shown(record: str) -> str:
    """Return the first line and the last one: what it is about, and the error."""
    lines = record.strip().splitlines()
    return " ... ".join(dict.fromkeys(line.strip()[:LONGEST] for line in (lines[0], lines[-1])))
