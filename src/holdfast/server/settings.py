"""What a server is told when it starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from holdfast.config import networks, path_prefix
from holdfast.errors import BadSetting

LOOPBACK_NAMES: Final = frozenset({"localhost"})
SHORTEST_SECRET: Final = 16


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where it listens, who may come in, and how much it takes. Closed by default."""

    host: str = "127.0.0.1"
    port: int = 7878
    admin_secret: str | None = None
    """Whoever knows it is an admin, besides those who have keys."""
    open: bool = False
    """Whether everybody who reaches it may do everything: on a loopback address alone."""
    prefix: str = ""
    """The path that it is reached under, without a slash at its end. Not for a server that another program mounts."""
    secure_cookies: bool = False
    """Whether cookies are for HTTPS alone, also where it is not known that a request came by it."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies that are believed when they say for whom they ask, and whether by HTTPS
    (`X-Forwarded-For`, `X-Forwarded-Proto`). Nobody else is."""
    redacted: tuple[str, ...] = ()
    """Names of fields of args and results that are never shown, besides those that look like secrets."""
    body_limit: int = 2 * 1024 * 1024
    """Bytes that a request may have."""
    key_rate: float = 1000.0
    """Requests a second that one key may make; short bursts of twice as many pass. What keeps or ends leases is counted apart,
    and ten times as many pass: a key that is used too much elsewhere loses no lease."""
    failure_rate: float = 10.0
    """Refused logins and keys a minute from one address, after which it has to wait."""
    longest_poll: float = 30.0
    """Seconds that a claim may wait for jobs."""
    page_timeout: float = 5.0
    """Seconds that a statement may take for a page: what takes longer is given up by the database itself."""

    def __post_init__(self) -> None:
        """Refuse what would leave the door open, and a prefix that no request could match."""
        try:
            normal = path_prefix(self.prefix)
        except ValueError as error:
            raise BadSetting(f"prefix {error}") from None
        if normal != self.prefix:
            raise BadSetting(f"prefix must be {normal!r}, without a slash at its end, not {self.prefix!r}")
        try:
            networks(self.trusted_proxies)
        except ValueError as error:
            raise BadSetting(f"trusted_proxies {error}") from None
        for name in ("key_rate", "failure_rate"):
            if not getattr(self, name) >= 1:
                raise BadSetting(f"{name} must be at least 1, not {getattr(self, name)!r}: nobody could come in")
        if self.admin_secret is not None and len(self.admin_secret) < SHORTEST_SECRET:
            raise BadSetting(
                f"the admin secret must have at least {SHORTEST_SECRET} characters: make one with `holdfast keys secret`"
            )
        if self.open and not is_loopback(self.host):
            raise BadSetting(
                f"--open lets everybody in, and {self.host} can be reached from other machines. "
                "Listen on 127.0.0.1, or leave out --open and give an admin secret (HOLDFAST_ADMIN_SECRET) or keys"
            )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
