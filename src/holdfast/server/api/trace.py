"""The context of a trace that a request brings in its headers, as it is stored with a job. As W3C Trace Context says.

Read here and not by the package for traces: a server need not have that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.datastructures import Headers

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
LONGEST_STATE: Final = 512
"""Characters that everybody hands on; of more, all may be dropped."""

_SHAPE: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?"
)
_OURS: Final = "00"
_NONE: Final = "ff"
_SAMPLED: Final = 1


def trace_of(headers: Headers) -> str | None:
    """Return `traceparent`, and `tracestate` after a blank; `None` where there is none that can be read, which is no error."""
    parents = headers.getlist(PARENT)
    found = _SHAPE.fullmatch(parents[0].strip()) if len(parents) == 1 else None
    if found is None or found["version"] == _NONE or (found["version"] == _OURS and found["more"]):
        return None
    flags = found["flags"]
    if found["version"] != _OURS:  # of a later one nothing is known but these fields and this flag
        flags = f"{int(flags, 16) & _SAMPLED:02x}"
    parent = f"{_OURS}-{found['trace']}-{found['span']}-{flags}"
    state = ",".join(headers.getlist(STATE)).strip()
    keeps = len(state) <= LONGEST_STATE and state.isascii() and state.isprintable()
    return f"{parent} {state}" if state and keeps else parent
