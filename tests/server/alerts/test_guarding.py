"""Where alerts may be sent: the address that was checked is the one that is connected to."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpcore2
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


class Named:
    """A name that has several addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self._addresses]


class Connecting:
    """Notes where it was to connect to; some of it does not answer."""

    def __init__(self) -> None:
        self.to: list[tuple[str, int]] = []
        self.allowed: list[float] = []
        self.silent: dict[str, Exception] = {}

    async def connect_tcp(self, host: str, port: int, timeout: float, *_: Any) -> str:
        self.to.append((host, port))
        self.allowed.append(timeout)
        if host in self.silent:
            raise self.silent[host]
        return host


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


ADDRESSES = ("93.184.216.34", "93.184.216.35", "93.184.216.36")


async def test_every_address_of_a_name_is_tried_until_one_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", Named(*ADDRESSES))
    backend, connecting = guarded(monkeypatch)
    connecting.silent = {ADDRESSES[0]: httpcore2.ConnectError("refused"), ADDRESSES[1]: httpcore2.ConnectTimeout()}

    answered: Any = await backend.connect_tcp("hooks.example.com", 443, 8.0)

    assert answered == ADDRESSES[2]
    assert connecting.to == [(address, 443) for address in ADDRESSES]
    assert connecting.allowed[0] <= 2.0, "a quarter is for each of three, and one for the answer"
    assert connecting.allowed[2] > 2.0, "the last has all that is left"


async def test_an_attempt_has_failed_when_no_address_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", Named(*ADDRESSES))
    backend, connecting = guarded(monkeypatch)
    connecting.silent = dict.fromkeys(ADDRESSES, httpcore2.ConnectError("refused"))

    with pytest.raises(
        httpcore2.ConnectError, match=r"none of the 3 addresses of hooks\.example\.com answers, the last: refused"
    ):
        await backend.connect_tcp("hooks.example.com", 443, 8.0)

    assert connecting.to == [(address, 443) for address in ADDRESSES]


async def test_a_name_with_one_address_inside_is_refused_whatever_its_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for inside in ("127.0.0.1", "10.0.0.7"):
        for addresses in ((ADDRESSES[0], inside), (inside, ADDRESSES[0])):
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", Named(*addresses))
            backend, connecting = guarded(monkeypatch)
            with pytest.raises(Forbidden, match=inside):
                await backend.connect_tcp("hooks.example.com", 443, 5.0)
            assert connecting.to == []


async def test_a_real_connection_is_made_to_the_address_that_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", Named("127.0.0.2", "127.0.0.1"))
        stream = await Guarded(allow_private=True).connect_tcp("hooks.example.com", port, 5.0)
        await stream.aclose()
