"""Paths do not leave the machine: what is shown of ffmpeg's words names files of the scratch folder only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SOURCE: Final = "<source>"
FILE: Final = "<file>"
_SCRATCH: Final = "\0"
"""Stands for the scratch folder while all other paths are replaced; no output of a program has it."""
_PATH: Final = re.compile(r"(?:[a-z]+:/*)?(?<![\w.\0/])/+[^\s'\"`:;,()\[\]<>|\0]+/?[^\s'\"`:;,()\[\]<>|\0]*")
_ADDRESS: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)


def redact(text: str, *, scratch: Path | None = None, hidden: Iterable[str | Path] = ()) -> str:
    """Return the text with paths outside `scratch` replaced by `<file>`, and those inside it shown from there on.

    `hidden` are paths that are known to be in the text, so that blanks in them do no harm; each becomes `<source>`. Addresses
    go as well: they may carry credentials.
    """
    text = text.replace(_SCRATCH, "")
    for path in sorted(map(str, hidden), key=len, reverse=True):
        if path.strip("./"):
            text = text.replace(f"file:{path}", SOURCE).replace(path, SOURCE)
    if scratch is not None:
        text = text.replace(f"file:{scratch}/", _SCRATCH).replace(f"{scratch}/", _SCRATCH)
    text = _ADDRESS.sub(FILE, text)
    return _PATH.sub(FILE, text).replace(_SCRATCH, "")
