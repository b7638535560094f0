"""Connections to addresses that anybody may be sent to, and to no other: checked when they are made, not before.

A name is resolved once, every address that it has is looked at, and those that were looked at are connected to, one after the
other until one answers: a name that answers differently the second time leads nowhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Any, Final

import httpcore2

if TYPE_CHECKING:
    from collections.abc import Iterable


class Forbidden(Exception):
    """An address that alerts must not be sent to."""


_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is given out. Python takes more for public: site-local addresses, and those that stand for one of IPv4."""
_DOCUMENTS: Final = ipaddress.ip_network("3fff::/20")
"""For examples in texts; older versions of Python do not know it."""
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
"""NAT64: the last four bytes are an address of IPv4. So machines without IPv4 reach the rest of the internet."""


def is_public(address: str) -> bool:
    """Tell whether an address is one of the internet at large: not of this machine, a private network or something special."""
    one = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(one, ipaddress.IPv6Address):
        if (inside := _inside(one)) is not None:
            return is_public(str(inside))
        return one.is_global and one in _UNICAST and one not in _DOCUMENTS
    return one.is_global and not one.is_multicast


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the address of IPv4 that one of IPv6 leads to. Teredo, which tunnels to anywhere, is refused as it is."""
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


class Guarded(httpcore2.AsyncNetworkBackend):
    """Makes connections; refuses to make some."""

    def __init__(self, *, allow_private: bool) -> None:
        self._inner = httpcore2.AnyIOBackend()
        self._allow_private = allow_private

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to an address that a name has, the first that answers, if all of them may be connected to."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout(timeout):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host} was not resolved in time") from error
        except OSError as error:
            raise httpcore2.ConnectError(f"{host} cannot be resolved: {error}") from error
        addresses = list(dict.fromkeys(str(address[4][0]) for address in found))
        refused = [address for address in addresses if not self._allow_private and not is_public(address)]
        if refused:
            raise Forbidden(f"{host} is {refused[0]}, an address of this machine or of a private network")
        failed: Exception = httpcore2.ConnectError(f"{host} has no address")
        for left in range(len(addresses), 0, -1):
            allowed = None if until is None else _share(until - loop.time(), left)
            try:
                return await self._inner.connect_tcp(addresses[-left], port, allowed, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        if len(addresses) <= 1:
            raise failed
        why = str(failed) or type(failed).__name__
        raise httpcore2.ConnectError(f"none of the {len(addresses)} addresses of {host} answers, the last: {why}") from failed

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Refuse."""
        raise Forbidden("alerts are not sent to files")

    async def sleep(self, seconds: float) -> None:
        """Rest between two tries."""
        await asyncio.sleep(seconds)


def _share(seconds: float, left: int) -> float:
    """Return how long one of so many addresses may take: the last all there is, one before it leaves shares to others."""
    return max(0.0, seconds if left == 1 else seconds / (left + 1))
