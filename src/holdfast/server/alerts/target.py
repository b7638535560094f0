"""Where alerts go."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from holdfast.core.text import name_flaw
from holdfast.errors import BadSetting
from holdfast.server.alerts.kinds import AlertKind, Form

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET: Final = "whsec_"  # noqa: S105  the beginning of one
SHORTEST, LONGEST = 24, 64
"""Bytes that a secret has, as Standard Webhooks wants it."""
MAKE: Final = "make one with: holdfast alerts secret"


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that alerts are sent to."""

    name: str
    url: str
    secret: str | None = None
    """`whsec_` and base64 of 24 to 64 bytes; signs what is sent."""
    events: tuple[AlertKind, ...] = tuple(AlertKind)
    form: Form = Form.STANDARD
    cooldown: float = 300.0
    """Seconds for which a kind is not told again."""
    allow_private: bool = False
    """Whether it may be an address of this machine or of a private network."""

    def __post_init__(self) -> None:
        """Refuse what could not be delivered, or would be delivered without proof of who sent it."""
        where = f"alerts.{self.name}"
        if (reason := name_flaw(self.name)) is not None:
            raise BadSetting(f"{where}: its name {reason}")
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            good = False
        if not good:
            raise BadSetting(f"{where}: url must be such as https://hooks.example.com/holdfast, not {self.url!r}")
        if self.secret is None and self.form is Form.STANDARD:
            raise BadSetting(f"{where}: it has no secret, so nobody could tell who sent an alert; {MAKE}")
        if self.secret is not None:
            self._check_secret(self.secret, where)
        if not 0 <= self.cooldown <= 30 * 86_400:
            raise BadSetting(f"{where}: cooldown must be a number of seconds up to 30 days, not {self.cooldown}")

    def _check_secret(self, secret: str, where: str) -> None:
        try:
            raw = b64decode(secret.removeprefix(SECRET), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if not secret.startswith(SECRET) or not SHORTEST <= len(raw) <= LONGEST:
            raise BadSetting(f"{where}: secret must be {SECRET} and base64 of {SHORTEST} to {LONGEST} bytes; {MAKE}")

    @property
    def host(self) -> str:
        """Where it goes as it may be shown: the path of a hook is often a secret."""
        return self.url.partition("://")[2].partition("/")[0].rpartition("@")[2]


def targets_of(table: Mapping[str, Mapping[str, Any]]) -> tuple[Target, ...]:
    """Return the targets of the setting `alerts`, a table of tables; raises `BadSetting`."""
    found = []
    for name, about in table.items():
        try:
            found.append(msgspec.convert({**about, "name": name}, Target))
        except msgspec.ValidationError as error:
            raise BadSetting(f"alerts.{name}: {error}") from None
    return tuple(found)
