"""Parts of a content: what `Range`, `If-Range`, `If-Match` and `If-None-Match` ask for (RFC 9110)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be answered: a status, and which bytes."""

    status: int
    start: int = 0
    length: int = 0


def asked(headers: Mapping[str, str], etag: str, size: int) -> Asked:
    """Return what a request asks for. A range that is none, and several at once, are answered with everything."""
    tag = f'"{etag}"'
    if (wanted := headers.get("if-match")) is not None and not _has(wanted, tag):
        return Asked(412)
    if (known := headers.get("if-none-match")) is not None and _has(known, tag):
        return Asked(304)
    found = _RANGE.fullmatch(headers.get("range", "").replace(" ", ""))
    if found is None or headers.get("if-range", tag) != tag:
        return Asked(200, 0, size)
    first, last = found.groups()
    if not first and not last:
        return Asked(200, 0, size)
    if not first:
        start = max(0, size - int(last))
        return Asked(206, start, size - start) if int(last) and size else Asked(416)
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return Asked(200, 0, size)
    return Asked(206, start, end - start + 1) if start < size else Asked(416)


def _has(header: str, tag: str) -> bool:
    return header.strip() == "*" or tag in (one.strip() for one in header.split(","))
