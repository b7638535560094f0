"""Which addresses a source may be fetched from."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadSetting
from holdfast_media.clip.addresses import allowed, connect, networks
from holdfast_media.errors import MediaError, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",  # where clouds keep the keys of their machines
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1%eth0",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "fec0::1",
    "feff:ffff::1",
    "64:ff9b:1::1",
    "64:ff9b:1:fffe::7f00:1",
    "::127.0.0.1",
    "::10.0.0.1",
    "::8.8.8.8",
    "::ffff:0:7f00:1",
    "2001:0:7f00:1::f7f7:f7f7",
    "3fff::1",
    "5f00::1",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused(address: str) -> None:
    assert not allowed(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert allowed(address)


def test_a_network_that_was_named_is_allowed_and_no_other() -> None:
    extra = networks(["10.0.0.0/8"])
    assert allowed("10.1.2.3", extra)
    assert allowed("::ffff:10.1.2.3", extra)
    assert not allowed("192.168.1.1", extra)
    assert allowed("fec0::1", networks(["fec0::/10"]))


def test_what_is_no_network_is_refused_when_it_is_set() -> None:
    with pytest.raises(BadSetting, match=r"10\.0\.0\.0/8"):
        networks(["10.0.0.1/8"])


@pytest.fixture
def listening(request: pytest.FixtureRequest) -> Iterator[int]:
    with socket.create_server((getattr(request, "param", "127.0.0.1"), 0)) as server:
        yield server.getsockname()[1]


def nothing() -> None:
    pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "127.1", "0"])
def test_every_spelling_of_this_machine_is_refused(listening: int, host: str) -> None:
    with pytest.raises(MediaError) as error:
        connect(host, listening, extra=(), poll=nothing)
    assert (error.value.code, error.value.retryable) == ("ADDRESS_REFUSED", False)


@pytest.mark.parametrize("listening", ["127.0.0.2"], indirect=True)
def test_a_name_is_asked_once_and_the_address_that_was_judged_is_used(listening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to a public address first and to this machine then (DNS rebinding) gains nothing."""
    answers: list[str] = ["127.0.0.2", "127.0.0.1"]

    def look(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    with connect("rebound.example", listening, extra=networks(["127.0.0.2/32"]), poll=nothing) as connection:
        assert connection.getpeername()[0] == "127.0.0.2"
    assert answers == ["127.0.0.1"]


@pytest.mark.parametrize("listening", ["127.0.0.9"], indirect=True)
def test_only_the_allowed_addresses_of_a_name_are_used(listening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, listening)) for one in ("127.0.0.1", "127.0.0.9")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    extra = networks(["127.0.0.9/32"])
    with socket.create_server(("127.0.0.1", listening)), connect("two.example", listening, extra=extra, poll=nothing) as made:
        assert made.getpeername()[0] == "127.0.0.9"


def test_a_closed_port_may_open_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(MediaError) as error:
        connect("127.0.0.1", port, extra=networks(["127.0.0.0/8"]), poll=nothing)
    assert (error.value.code, error.value.retryable) == ("UPSTREAM_FAILURE", True)


def test_a_stop_ends_the_wait_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [never.wait(30)])

    def stop() -> None:
        raise Stopped("shutdown")

    with pytest.raises(Stopped):
        connect("slow.example", 80, extra=(), poll=stop)
    never.set()
