"""Texts that nobody reads in the store: sealed on the way in and opened on the way out, each for its own purpose."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from holdfast.core.text import checked_name
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.store.port import Part

_MARK: Final = '{"$sealed":'
_HASHED: Final = "hashed:"


class Purpose(StrEnum):
    """What a sealed text is. One that was sealed as something else, or for another task, does not open."""

    ARGS = "args"
    RESULT = "result"
    PART = "part"
    SIGNAL = "signal"


class SealError(HoldfastError):
    """A sealed text that this process cannot open."""


class UnknownKey(SealError):
    """A text was sealed with a key that this process does not have. A job with such args waits for a worker that has it."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(
            f"the stored text is sealed with the key {key_id!r}, which this process does not have: "
            "add it to keys= of its Encryption, and keep keys there for as long as anything sealed with them is stored"
        )


class BrokenSeal(SealError):
    """A sealed text does not open with the key it names: it was changed, or moved from elsewhere, or the key is another."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(
            f"the stored text does not open with the key {key_id!r} it names: it was changed, or belongs to another task, "
            "or what this process has under that id is another key"
        )


class Sealed(NamedTuple):
    """What a cipher made of a text: the id of the key it used, and bytes that mean nothing without it."""

    key_id: str
    data: bytes


class Cipher(Protocol):
    """What seals and opens. `holdfast.encryption.Encryption` is one; another may ask a key service.

    Called wherever args and results are encoded, on event loops too, and from several threads at once: it must not wait for
    a network. One that asks a service keeps data keys in memory.
    """

    def seal(self, clear: bytes, context: bytes) -> Sealed:
        """Seal bytes with the current key, bound to a context: without the same context they must not open."""
        ...

    def open(self, sealed: Sealed, context: bytes) -> bytes:
        """Return the clear bytes; raises `UnknownKey`, or `BrokenSeal` for bytes that are not as they were sealed."""
        ...

    def hash(self, key: bytes) -> bytes:
        """Return what stands for a unique key in the store: always the same for the same key, also after a rotation."""
        ...


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """A sealed text as it is stored: JSON, as everything is, so that no store and no tool has to know of it."""

    key_id: str = msgspec.field(name="$sealed")
    data: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Stored).decode


class Sealer:
    """Seals and opens the texts of an app. Safe to use from several threads."""

    __slots__ = ("_cipher",)

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def seal(self, text: str, purpose: Purpose, task: str = "") -> str:
        """Return JSON text that tells nothing but the id of the key and the length."""
        key_id, data = self._cipher.seal(text.encode(), _context(purpose, task))
        return _encode(_Stored(key_id, data)).decode()

    def open(self, text: str, purpose: Purpose, task: str = "") -> str:
        """Return the text that was sealed; one from before encryption was switched on is returned as it is.

        Raises `SealError` and nothing else.
        """
        if not text.startswith(_MARK):
            return text
        try:
            stored = _decode(text)
        except msgspec.MsgspecError:
            return text  # a result from before may look like anything
        try:
            return self._cipher.open(Sealed(stored.key_id, stored.data), _context(purpose, task)).decode()
        except SealError:
            raise
        except Exception as error:  # a cipher of the user's own may raise anything
            what = f"opening it raised {type(error).__name__}: {error}"
            raise SealError(f"the stored text is sealed with the key {stored.key_id!r}, and {what}") from error

    def hash(self, key: str) -> str:
        """Return what the store gets to see of a unique key. Refuses what could not be a key in the clear either."""
        digest = self._cipher.hash(checked_name(key, "unique.key").encode())
        return _HASHED + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def sealed_part(self, part: Part, task: str) -> Part:
        """Return a part of a job as it is stored: its data sealed."""
        if part.data is None:
            return part
        return msgspec.structs.replace(part, data=self.seal(part.data, Purpose.PART, task))

    def opened_parts(self, parts: Mapping[str, Part], task: str) -> dict[str, Part]:
        """Return stored parts as their job sees them. Raises `SealError`."""
        return {
            name: part if part.data is None else msgspec.structs.replace(part, data=self.open(part.data, Purpose.PART, task))
            for name, part in parts.items()
        }


def names_key(text: str) -> str | None:
    """Return the id of the key that a stored text is sealed with; `None` for a clear one."""
    if not text.startswith(_MARK):
        return None
    try:
        return _decode(text).key_id
    except msgspec.MsgspecError:
        return None


def _context(purpose: Purpose, task: str) -> bytes:
    # the length keeps what follows the purpose from being read another way, whatever a task is called
    return f"holdfast:{purpose}:{len(task)}:{task}".encode()
