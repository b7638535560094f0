"""What log lines and error messages may show: paths below the scratch folder, and nothing else of the machine's files."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HIDDEN: Final = "<path>"
SOURCE: Final = "<source>"
_ROOT: Final = "\0"
"""Stands for the scratch folder while everything else is looked at: no path holds it."""
_URL: Final = re.compile(r"""\b(https?)://[^\s"'<>\0]+""", re.IGNORECASE)
_QUOTED: Final = re.compile(r"""(?<![\w/])(["'`])(?:file:)?(?:~[\w.-]*)?/(?:(?!\1).)+\1""", re.IGNORECASE | re.DOTALL)
_BELOW: Final = re.compile(rf"""{HIDDEN}/[^\s"'`<>|;,()\[\]{{}}\0]*""")
"""What is in a folder that was taken out."""
_BARE: Final = re.compile(r"""(?<![\w.:/\\<>\0-])(?:file:/*|~[\w.-]*/|/)[^\s"'`<>|;,()\[\]{}\0]+""", re.IGNORECASE)


class Redaction:
    """Takes paths outside of one folder out of texts, and secrets out of URLs.

    `known` are paths that may come up, such as the source: they are found whatever their names hold (spaces, quotes, line
    breaks), also as Python, JSON, a shell or a URL would write them, and so are the folders they are in. Other absolute paths
    are found by their looks.
    """

    def __init__(self, root: Path, known: Iterable[str | Path] = ()) -> None:
        self._roots = sorted({str(root), str(root.absolute()), os.path.realpath(root)}, key=len, reverse=True)
        self._known = dict(_named(known))

    def __call__(self, text: str) -> str:
        """Return the text as it may be shown. Repeatable: what was shown once stays as it is."""
        text = text.replace(_ROOT, "�")
        for root in self._roots:
            text = re.sub(rf"{re.escape(root)}(?![\w.-])", _ROOT, text)
        for known in sorted(self._known, key=len, reverse=True):
            text = text.replace(known, self._known[known])
        text = _BELOW.sub(HIDDEN, text)
        text = _URL.sub(_shown, text)
        text = _QUOTED.sub(lambda found: f"{found[1]}{HIDDEN}{found[1]}", text)
        return _BARE.sub(HIDDEN, text).replace(_ROOT, "scratch")


def shown_url(url: str) -> str:
    """Return a URL without what lets somebody in: user, password, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" + ("?…" if parts.query else "")


def _shown(found: re.Match[str]) -> str:
    try:
        return shown_url(found[0])
    except ValueError:  # brackets that hold no address
        return f"{found[1]}://…"


def _named(known: Iterable[str | Path]) -> Iterator[tuple[str, str]]:
    for one in known:
        for path in {str(one), str(Path(one).absolute()), os.path.realpath(one)}:
            for parent in Path(path).parents:
                if len(parent.parts) > 2:  # noqa: PLR2004  "/" and "/srv" are found by their looks, and in everything
                    yield from ((text, HIDDEN) for text in _spellings(str(parent)))
            if os.sep in path:
                yield from ((text, SOURCE) for text in _spellings(path))


def _spellings(path: str) -> Iterator[str]:
    yield path
    yield repr(path)[1:-1]
    yield json.dumps(path)[1:-1]
    yield json.dumps(path, ensure_ascii=False)[1:-1]
    yield shlex.quote(path).strip("'")
    yield quote(path, errors="surrogateescape")
