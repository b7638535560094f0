"""Errors are kept and shown: what must not be seen is taken out of them first."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "[redacted]"

_SECRETS: Final = (
    # scheme://user:password@host
    (re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@]+(?=@)", re.IGNORECASE), True),
    # password=…, "api_key": "…", token: …
    (
        re.compile(
            r"(?P<keep>\b[\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
            r"[\"']?\s*[=:]\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&)\]}]+)",
            re.IGNORECASE,
        ),
        True,
    ),
    # Authorization: Bearer …
    (re.compile(r"(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), True),
    # the well-known shapes of keys
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}\b|\bsk-[A-Za-z0-9_-]{20,}\b"), False),
)
_HOME: Final = re.compile(r"(?P<root>/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s\"':]+")
_PACKAGES: Final = re.compile(r"(?:/[^\s\"':]*)?/(?=(?:site-packages|dist-packages|lib/python\d[\d.]*)/)")


def redact(text: str) -> str:
    """Return a text without passwords, keys and tokens, and with paths cut to what a reader needs."""
    for pattern, keeps in _SECRETS:
        text = pattern.sub(rf"\g<keep>{MASK}" if keeps else MASK, text)
    text = _PACKAGES.sub("…/", text)
    return _HOME.sub("~", text)
