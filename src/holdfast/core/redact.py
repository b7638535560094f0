"""Errors are kept and shown: what must not be seen is taken out of them first."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

MASK: Final = "[redacted]"

_NAMES: Final = (
    "password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key|credentials?"
)

# This runs on the worker's event loop, and what handlers raise may be long and hostile. So what may fail to match is bounded or
# cannot begin inside itself, and what is taken out is not bounded: of a long secret nothing may be left.
_WORD: Final = r"[A-Za-z0-9._~+/=-]"
_SECRETS: Final = (
    # -----BEGIN RSA PRIVATE KEY----- …
    re.compile(r"(?P<keep>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]+"),
    # scheme://user:password@host
    re.compile(r"(?P<keep>\w://[^\s:/@]*:)[^\s/]+(?=@)"),
    # password=…, "api_key": "…", token: …
    re.compile(
        rf"(?P<keep>(?:{_NAMES})[\"']?\s{{0,3}}[=:]\s{{0,3}})"
        r"(?!\[redacted\])(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|[^\s,;&)\]}]+)",
        re.IGNORECASE,
    ),
    # Authorization: Basic …
    re.compile(rf"(?P<keep>\bauthorization[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?(?:\w{{1,20}} )?+){_WORD}{{4,}}", re.IGNORECASE),
    re.compile(rf"(?P<keep>\bbearer )(?={_WORD}{{0,200}}\d){_WORD}{{12,}}", re.IGNORECASE),
    # the well-known shapes of keys: cloud, forge and model providers, JSON web tokens, Holdfast's own and those of webhooks
    re.compile(
        r"(?P<keep>)(?<![\w-])(?:(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[pousr]_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}"
        r"|hf_[a-z0-9]{12}_[A-Za-z0-9_-]+|whsec_[A-Za-z0-9+/=]{4,}"
        r"|eyJ[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]*)"
    ),
)
_HOME: Final = re.compile(r"(?P<root>/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s\"':]{1,100}")
_PACKAGES: Final = re.compile(
    r"(?<![\w/])/(?:[^\s\"':/]{1,100}/){0,20}(?=(?:site-packages|dist-packages|lib/python\d[\d.]{0,5})/)"
)
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)


def looks_secret(name: str) -> bool:
    """Tell whether a field of this name holds what must not be seen."""
    return _SECRET_NAME.search(name[:200]) is not None


def redact(text: str, names: Collection[str] = ()) -> str:
    """Return a text without passwords, keys and tokens, and with paths cut to what a reader needs.

    `names` are those of fields whose values are hidden too, where the text says them: `iban: DE12 3456`, `{"iban": …}`.
    """
    for pattern in (*_SECRETS, _named(frozenset(names))) if names else _SECRETS:
        text = pattern.sub(rf"\g<keep>{MASK}", text)
    return _HOME.sub("~", _PACKAGES.sub("…/", text))


@lru_cache(maxsize=16)
def _named(names: frozenset[str]) -> re.Pattern[str]:
    """Match what follows one of these names: to the next comma or bracket, for a value of any kind may have spaces in it."""
    any_name = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(
        rf"(?P<keep>(?<!\w)(?:{any_name})[\"']?\s{{0,3}}[=:]\s{{0,3}}+)(?!\[redacted\])"
        r"(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|[{\[][^\n]*|[^,;&)\]}\n]+)"
    )
