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
UNLEARNT: Final = re.compile(r"job (\S+) \(\w+\), attempt \d+: whether its transaction was committed cannot be learnt")
"""What a worker says of a job whose COMMIT met an outage longer than the lease: it can neither be repeated nor given back."""
ADMITTED: Final = (
    "could not be given back, and will lapse",
    "could not be flagged as not at fault",
    "could not be written: the leases will lapse",
)
"""In what a worker says that was to leave and could not reach the store: what it held must lapse."""
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


def unlearnt(text: str) -> set[str]:
    """Return the jobs of which a worker says that it cannot know whether they were completed."""
    return set(UNLEARNT.findall(text))


def admitted(text: str) -> bool:
    """Tell whether a worker says that it had to leave with leases in its hand."""
    return any(words in text for words in ADMITTED)


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
