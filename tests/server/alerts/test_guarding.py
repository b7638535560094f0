"""Where alerts may be sent: the address that was checked is the one that is connected to."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from holdfast.server.alerts.guarding import Forbidden, Guarded


class Rebinding:
    """A name that is somebody else's address each time it is asked for."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self._addresses.pop(0), port))]


class Connecting:
    """Notes where it was to connect to."""

    def __init__(self) -> None:
        self.to: list[tuple[str, int]] = []

    async def connect_tcp(self, host: str, port: int, *_: Any) -> None:
        self.to.append((host, port))


def guarded(monkeypatch: pytest.MonkeyPatch) -> tuple[Guarded, Connecting]:
    backend, connecting = Guarded(allow_private=False), Connecting()
    monkeypatch.setattr(backend, "_inner", connecting)
    return backend, connecting


async def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Rebinding("93.184.216.34", "127.0.0.1")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver)
    backend, connecting = guarded(monkeypatch)

    await backend.connect_tcp("hooks.example.com", 443, 5.0)

    assert resolver.asked == ["hooks.example.com"]
    assert connecting.to == [("93.184.216.34", 443)]


async def test_a_name_that_leads_to_this_machine_is_never_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Rebinding("127.0.0.1", "93.184.216.34")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver)
    backend, connecting = guarded(monkeypatch)

    with pytest.raises(Forbidden, match=r"127\.0\.0\.1"):
        await backend.connect_tcp("hooks.example.com", 443, 5.0)

    assert (len(resolver.asked), connecting.to) == (1, [])
