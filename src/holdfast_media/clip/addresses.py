"""Which addresses a source may have: the public internet, and what the settings allow besides.

A name is looked up once, its addresses are judged, and the connection is made to the very address that was judged. So a name
that gives another answer the second time (DNS rebinding) gains nothing, and neither does a redirect: every hop comes here.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast import BadSetting
from holdfast_media.errors import ADDRESS_REFUSED, UPSTREAM_FAILURE, MediaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Poll: TypeAlias = "Callable[[], None]"
"""Asked while something is awaited; raises when it is time to give up."""

POLL: Final = 0.2
"""Seconds between two questions."""
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
"""NAT64: the last four bytes are an IPv4 address."""
_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is given out. Python takes more for public, in some versions: site-local addresses, NAT64 of the local
network, and IPv4-compatible and -translated ones, which nobody has and some systems deliver as IPv4."""
_DOCUMENTS: Final = ipaddress.ip_network("3fff::/20")
"""For examples in texts; older versions of Python do not know it."""


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read networks such as `10.0.0.0/8` or `::1/128`; raise `BadSetting` for what is none."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise BadSetting(f"{error}; a network is written as 10.0.0.0/8 or 127.0.0.1") from None


def allowed(text: str, extra: Iterable[Network] = ()) -> bool:
    """Tell whether a connection may go to an address: a public one, or one of the networks that were named."""
    address = _meant(ipaddress.ip_address(text.partition("%")[0]))
    if any(address in network for network in extra):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_global and address in _UNICAST and address not in _DOCUMENTS
    return address.is_global and not address.is_multicast


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for: otherwise `::ffff:127.0.0.1` would pass for a public one.

    Not that of Teredo, which names two, of which a tunnel leads to either: it is refused as it is.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def connect(host: str, port: int, *, extra: Iterable[Network], poll: Poll) -> socket.socket:
    """Return a connection to a host by one of its addresses that are allowed.

    Raises `ADDRESS_REFUSED` when it has none of those, `UPSTREAM_FAILURE` when none of them answers, and what `poll` raises.
    """
    extra = tuple(extra)
    found = _looked_up(host, port, poll)
    good = [one for one in found if allowed(str(one[4][0]), extra)]
    if not good:
        addresses = sorted({str(one[4][0]) for one in found})
        where = "is a private or local address"
        if addresses != [host]:
            where = f"has a private or local address ({', '.join(addresses)})"
        raise MediaError(
            ADDRESS_REFUSED,
            f"{host} {where}, and nothing is fetched from those. Where that is meant, allow its network: --allow-network, or "
            "clip_networks in the settings",
        )
    trouble = ""
    for family, kind, protocol, _, address in good:
        connection = socket.socket(family, kind, protocol)
        try:
            _connected(connection, address, poll)
        except OSError as error:
            trouble = error.strerror or str(error)
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise MediaError(UPSTREAM_FAILURE, f"{host} did not answer: {trouble}")


def _looked_up(host: str, port: int, poll: Poll) -> list[tuple[Any, ...]]:
    """Look a name up in a thread of its own: the system's call cannot be interrupted, and may take half a minute."""
    answer: list[list[tuple[Any, ...]] | OSError] = []

    def look() -> None:
        try:
            answer.append(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except (OSError, UnicodeError) as error:
            answer.append(error if isinstance(error, OSError) else OSError(errno.EINVAL, "it is no name of a host"))

    thread = threading.Thread(target=look, name="look-up", daemon=True)
    thread.start()
    while thread.is_alive():
        poll()
        thread.join(POLL)
    if isinstance(answer[0], OSError):
        raise MediaError(UPSTREAM_FAILURE, f"the address of {host} was not found: {answer[0].strerror or answer[0]}")
    return answer[0]


def _connected(connection: socket.socket, address: Any, poll: Poll) -> None:
    connection.settimeout(0)
    state = connection.connect_ex(address)
    if state not in {0, errno.EINPROGRESS}:
        raise OSError(state, os.strerror(state))
    while not select.select([], [connection], [], POLL)[1]:
        poll()
    if state := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(state, os.strerror(state))
    connection.settimeout(POLL)
