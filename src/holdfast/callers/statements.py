"""How a statement with `$1`, `$2`, … is written for a driver that numbers nothing."""

from __future__ import annotations

import re
from functools import lru_cache

_PLACE = re.compile(r"\$\d+")


@lru_cache(maxsize=256)
def with_percents(sql: str) -> str:
    """Return a statement with `%s` for each `$n`. They stand there in order, each once."""
    return _PLACE.sub("%s", sql.replace("%", "%%"))
