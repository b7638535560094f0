"""Keys: `hf_` + 12 characters that are public + `_` + 43 characters of secret. Shown once; kept as a digest."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.store.port import Key

SCHEME: Final = "hf"
PUBLIC: Final = 12
SECRET_BYTES: Final = 32
"""256 bits, which are 43 characters."""
NO_DIGEST: Final = "0" * 64
"""What is compared with where there is no key: no text has it."""

_LETTERS: Final = string.ascii_lowercase + string.digits
_SHAPE: Final = re.compile(rf"{SCHEME}_([a-z0-9]{{{PUBLIC}}})_[A-Za-z0-9_-]{{43}}")


def new_key() -> tuple[str, str]:
    """Return a fresh key, and its public id."""
    public = "".join(secrets.choice(_LETTERS) for _ in range(PUBLIC))
    return f"{SCHEME}_{public}_{secrets.token_urlsafe(SECRET_BYTES)}", public


def successor(old: Key, now: datetime, lives: float | None, *, by: str = "") -> tuple[str, Key]:
    """Return a fresh key that is like another one, and what is kept of it; it ends after so many seconds, `None`: never."""
    text, public = new_key()
    ends = None if lives is None else now + timedelta(seconds=lives)
    made: dict[str, Any] = {"id": public, "digest": digest(text), "created_by": by, "expires_at": ends}
    return text, msgspec.structs.replace(old, **made, created_at=None, used_at=None)


def lifetime(key: Key) -> float | None:
    """Return for how many seconds a key was made; `None`: for ever."""
    if key.expires_at is None or key.created_at is None:
        return None
    return (key.expires_at - key.created_at).total_seconds()


def new_secret() -> str:
    """Return a fresh admin secret."""
    return secrets.token_urlsafe(SECRET_BYTES)


def shown(authorization: str) -> str | None:
    """Return what a header `Authorization` shows as a key; `None` for what is meant for others, as `Basic` for a proxy."""
    scheme, _, given = authorization.partition(" ")
    return given.strip() or None if scheme.lower() == "bearer" else None


def key_id(text: str) -> str | None:
    """Return the public id of what looks like a key; `None` for anything else."""
    found = _SHAPE.fullmatch(text)
    return None if found is None else found[1]


def digest(text: str) -> str:
    """Return what is kept of a key: its SHA-256. It has 256 bits of chance in it, so nothing slower is needed."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def matches(text: str, kept: str | None) -> bool:
    """Tell whether a text is the one of this digest, in the same time whether or not there is one."""
    same = hmac.compare_digest(digest(text), NO_DIGEST if kept is None else kept)
    return same and kept is not None
