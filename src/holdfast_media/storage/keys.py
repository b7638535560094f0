"""What a key may be: a relative path that means the same file on every storage, and never one outside of it."""

from __future__ import annotations

import unicodedata
from typing import Final

from holdfast_media.errors import MediaError

LONGEST_KEY: Final = 512
"""Bytes of UTF-8: what S3 allows (1024), less the prefix of a bucket."""
LONGEST_NAME: Final = 200
"""Bytes of one segment: what file systems allow (255), less what a checksum's name and a work file's add."""
FORBIDDEN: Final = frozenset('\\:*?"<>|')
"""What some file systems or shells read as something else."""


def checked_key(key: str) -> str:
    r"""Return a key that is one; raise `MediaError` `BAD_KEY` for what could leave the storage, or mean two things.

    A key is segments joined by `/`, in Unicode's composed form (NFC). No segment is empty, begins with a dot (those are the
    storage's own files), ends with a dot or a space, or holds control characters or one of `\ : * ? " < > |`.
    """
    if not key:
        raise _bad(key, "it is empty")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise _bad(key, "it is no Unicode text") from None
    if size > LONGEST_KEY:
        raise _bad(key, f"it has {size} bytes, and {LONGEST_KEY} are the most")
    if unicodedata.normalize("NFC", key) != key:
        raise _bad(key, "it is not in composed form (NFC), so another key would look like it")
    for segment in key.split("/"):
        if (fault := _fault(segment)) is not None:
            raise _bad(key, fault)
    return key


def checked_prefix(prefix: str) -> str:
    """Return a prefix that is one: empty, or a key with or without a slash at its end."""
    if prefix:
        checked_key(prefix.removesuffix("/"))
    return prefix


def is_key(text: str) -> bool:
    """Tell whether a text is a key: folders may hold files that were not put there by us."""
    try:
        checked_key(text)
    except MediaError:
        return False
    return True


def _fault(segment: str) -> str | None:
    if not segment:
        return "it begins or ends with a slash, or has two in a row"
    if segment.startswith("."):
        return f"{segment!r} begins with a dot"
    if segment.endswith((".", " ")):
        return f"{segment!r} ends with a dot or a space"
    if len(segment.encode()) > LONGEST_NAME:
        return f"{segment[:20]!r}… has more than {LONGEST_NAME} bytes"
    if any(letter in FORBIDDEN or unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs") for letter in segment):
        return f"{segment!r} has a character that a key may not have"
    return None


def _bad(key: str, why: str) -> MediaError:
    return MediaError("BAD_KEY", f"{key[:120]!r} is no key: {why}. A key is a path such as videos/42/720p/0001.m4s")
