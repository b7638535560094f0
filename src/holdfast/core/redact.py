"""Errors are kept and shown: what must not be seen is taken out of them first."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "[redacted]"

_NAMES: Final = (
    "password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key|credentials?"
)

# Every repetition is bounded: what handlers raise may be long and hostile, and this runs on the worker's event loop.
_SECRETS: Final = (
    # -----BEGIN RSA PRIVATE KEY----- …
    re.compile(r"(?P<keep>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]{1,20000}"),
    # scheme://user:password@host
    re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@]{0,100}:)[^\s/]{1,300}(?=@)", re.IGNORECASE),
    # password=…, "api_key": "…", token: …
    re.compile(
        rf"(?P<keep>\b[\w-]{{0,40}}(?:{_NAMES})[\"']?\s{{0,3}}[=:]\s{{0,3}})"
        r"(?!\[redacted\])(?:\"(?:[^\"\\\n]|\\.){0,500}\"|'(?:[^'\\\n]|\\.){0,500}'|[^\s,;&)\]}]{1,500})",
        re.IGNORECASE,
    ),
    # Authorization: Basic …
    re.compile(
        r"(?P<keep>\bauthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:\w{1,20} )?+)[A-Za-z0-9._~+/=-]{4,500}", re.IGNORECASE
    ),
    re.compile(r"(?P<keep>\bbearer )(?=[A-Za-z0-9._~+/=-]{0,200}\d)[A-Za-z0-9._~+/=-]{12,500}", re.IGNORECASE),
    # the well-known shapes of keys: cloud, forge and model providers, and JSON web tokens
    re.compile(
        r"(?P<keep>)(?:\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,80}\b|\bsk-[A-Za-z0-9_-]{20,200}\b"
        r"|\beyJ[A-Za-z0-9_-]{5,2000}\.[A-Za-z0-9_-]{5,2000}\.[A-Za-z0-9_-]{0,2000})"
    ),
)
_HOME: Final = re.compile(r"(?P<root>/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s\"':]{1,100}")
_PACKAGES: Final = re.compile(
    r"(?<![\w/])/(?:[^\s\"':/]{1,100}/){0,20}(?=(?:site-packages|dist-packages|lib/python\d[\d.]{0,5})/)"
)


def redact(text: str) -> str:
    """Return a text without passwords, keys and tokens, and with paths cut to what a reader needs."""
    for pattern in _SECRETS:
        text = pattern.sub(rf"\g<keep>{MASK}", text)
    return _HOME.sub("~", _PACKAGES.sub("…/", text))
