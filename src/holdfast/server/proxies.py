"""Proxies in front of the server: who it is that asks, and whether by HTTPS."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

SCHEMES: Final = ("http", "https")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """Has what comes from a trusted proxy count as sent by whoever asked that proxy, and in the way it was asked.

    `X-Forwarded-For` is read from its end, where each proxy writes whom it was asked by: the first who is no trusted proxy is
    who asks. What stands before that anybody may have sent. From all others neither header is believed.
    """

    def __init__(self, app: ASGIApp, trusted: Iterable[str]) -> None:
        self._app = app
        self._trusted = [ipaddress.ip_network(one) for one in trusted]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and (client := scope.get("client")) is not None and self._trusts(address_of(client[0])):
            headers = Headers(scope=scope)
            asker = self._asker(headers.getlist("x-forwarded-for"))
            scheme = _parts(headers.getlist("x-forwarded-proto"))[-1:]
            scope = {
                **scope,
                "client": client if asker is None else (str(asker), 0),
                "scheme": scheme[0].lower() if scheme and scheme[0].lower() in SCHEMES else scope["scheme"],
            }
        await self._app(scope, receive, send)

    def _asker(self, lines: Sequence[str]) -> Address | None:
        """Return who asked the outermost of the proxies that are trusted; `None` where none says."""
        asker = None
        for text in reversed(_parts(lines)):
            if (address := address_of(text)) is None:  # no proxy writes that: what stands before it is no better
                break
            asker = address
            if not self._trusts(address):
                break
        return asker

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


def address_of(text: str) -> Address | None:
    """Return an address as proxies write it, with or without a port; `None` for anything else."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_own(origin: str, request: Request) -> bool:
    """Tell whether a page of this server sends a request: of the same host, and of no insecure page where it came by HTTPS."""
    page = urlsplit(origin)
    return page.netloc == request.headers.get("host", "") and (request.url.scheme != "https" or page.scheme == "https")


def _parts(lines: Iterable[str]) -> list[str]:
    return [part.strip() for line in lines for part in line.split(",") if part.strip()]
