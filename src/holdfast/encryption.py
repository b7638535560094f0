"""Encrypting args, results and what jobs store on the way: `Holdfast(url, encryption=Encryption(…))`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.text import name_flaw
from holdfast.errors import BadSetting, MissingExtra
from holdfast.tasks.sealing import BrokenSeal, Cipher, Sealed, SealError, UnknownKey

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BrokenSeal", "Cipher", "Encryption", "SealError", "Sealed", "UnknownKey"]

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Encryption:
    """AES-256-GCM with keys known by an id: `current` seals, all of them open, so that a key can be replaced while jobs wait.

    `hash_key` stands apart, because unique keys must hash alike before and after a rotation; it is never replaced while keys
    are held. Keys are 32 bytes, or the text that `Encryption.new_key()` gives. Safe to use from several threads.
    """

    def __init__(self, *, keys: Mapping[str, str | bytes], current: str, hash_key: str | bytes) -> None:
        """Take the keys; raises `BadSetting` for what is none, `MissingExtra` without the package `cryptography`."""
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415  only for those who encrypt
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  as above
        except ImportError as error:
            raise MissingExtra("encryption", "Encryption", "cryptography") from error
        for key_id in keys:
            if (reason := name_flaw(key_id)) is not None:
                raise BadSetting(f"the id of a key of Encryption: {reason}")
        if current not in keys:
            raise BadSetting(f"current={current!r} is none of the keys of Encryption: {', '.join(keys) or 'there are none'}")
        self._invalid: type[Exception] = InvalidTag
        self._ciphers: dict[str, Any] = {key_id: AESGCM(_key(key, f"keys[{key_id!r}]")) for key_id, key in keys.items()}
        self._current = current
        self._hash_key = _key(hash_key, "hash_key")
        if any(hmac.compare_digest(self._hash_key, _key(key, key_id)) for key_id, key in keys.items()):
            raise BadSetting("hash_key is one of the keys of Encryption: it outlives them, so give it a key of its own")

    @staticmethod
    def new_key() -> str:
        """Return a fresh key as text, for a secret store or an environment variable."""
        return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()

    def seal(self, clear: bytes, context: bytes) -> Sealed:
        """Seal with the current key and a nonce that is random: no two processes have to agree on anything."""
        nonce = os.urandom(_NONCE_BYTES)
        return Sealed(self._current, nonce + self._ciphers[self._current].encrypt(nonce, clear, context))

    def open(self, sealed: Sealed, context: bytes) -> bytes:
        """Open with the key that is named; raises `UnknownKey`, `BrokenSeal`."""
        if (cipher := self._ciphers.get(sealed.key_id)) is None:
            raise UnknownKey(sealed.key_id)
        try:
            opened: bytes = cipher.decrypt(sealed.data[:_NONCE_BYTES], sealed.data[_NONCE_BYTES:], context)
        except (self._invalid, ValueError) as error:  # ValueError: cut to less than a nonce
            raise BrokenSeal(sealed.key_id) from error
        return opened

    def hash(self, key: bytes) -> bytes:
        """Return the HMAC-SHA256 of a unique key."""
        return hmac.new(self._hash_key, key, hashlib.sha256).digest()

    def __repr__(self) -> str:
        return f"<Encryption keys {', '.join(self._ciphers)}; current {self._current}>"


def _key(key: str | bytes, name: str) -> bytes:
    """Return the bytes of a key. The key itself is in no message."""
    raw: object = key
    if isinstance(raw, str):
        try:
            raw = base64.b64decode(raw.strip(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = None
    if not isinstance(raw, bytes) or len(raw) != KEY_BYTES:
        raise BadSetting(f"{name} of Encryption is no key: give {KEY_BYTES} random bytes, or the text of Encryption.new_key()")
    return raw
