"""Sending alerts: signed, within a time, to nowhere that they must not go."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec
import pytest
from standardwebhooks import Webhook

from holdfast import BadSetting, Fatal, Retryable
from holdfast.server.alerts import delivering
from holdfast.server.alerts.delivering import send
from holdfast.server.alerts.guarding import is_public
from holdfast.server.alerts.kinds import Alert, AlertKind, Form
from holdfast.server.alerts.target import Target, targets_of
from tests.server.alerts.hook import Endless, Hook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
WAIT = 5.0
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
ALERT = Alert(
    kind=AlertKind.JOB_MAX_RETRIES_EXCEEDED, text="job 7 (<script> & co) has failed", count=1, about=({"job_id": "7"},)
)


@pytest.fixture(autouse=True)
async def resolving() -> AsyncIterator[None]:
    """Names are resolved in threads of the event loop, which end with it."""
    yield
    await asyncio.get_running_loop().shutdown_default_executor()


def target(hook: Hook, **more: Any) -> Target:
    about: dict[str, Any] = {"name": "ops", "url": hook.url, "secret": SECRET, "allow_private": True}
    return Target(**about | more)


async def sent(to: Target) -> delivering.Delivery:
    return await send(to, ALERT, NOON, message_id="msg_1", agent="Holdfast/test")


async def test_what_is_sent_can_be_verified_by_anybody_who_has_the_secret() -> None:
    async with Hook(200) as hook:
        delivery = await sent(target(hook))

    (received,) = hook.received
    assert (delivery.status, received.path) == (200, "/hook")
    assert received.headers["webhook-id"] == "msg_1"
    body = Webhook(SECRET).verify(received.body.decode(), received.headers)
    assert body == {
        "type": "job_max_retries_exceeded",
        "timestamp": "2026-11-17T12:00:00Z",
        "data": {"text": ALERT.text, "count": 1, "about": [{"job_id": "7"}]},
    }


async def test_slack_gets_a_text_in_which_nothing_is_a_link() -> None:
    async with Hook() as hook:
        await sent(target(hook, secret=None, form=Form.SLACK))

    (received,) = hook.received
    assert msgspec.json.decode(received.body) == {
        "text": "*job_max_retries_exceeded*: job 7 (&lt;script&gt; &amp; co) has failed"
    }
    assert "webhook-signature" not in received.headers


@pytest.mark.parametrize(
    ("status", "error"), [(500, Retryable), (503, Retryable), (429, Retryable), (404, Retryable), (410, Fatal)]
)
async def test_a_refusal_is_an_error_with_the_status_as_its_code(status: int, error: type[Exception]) -> None:
    async with Hook(status) as hook:
        with pytest.raises(error) as raised:
            await sent(target(hook))

    assert getattr(raised.value, "code", None) == f"HTTP_{status}"


async def test_a_redirect_is_not_followed() -> None:
    async with Hook() as other, Hook(307, headers=f"location: {other.url}\r\n") as hook:
        with pytest.raises(Fatal, match="redirects, and alerts go nowhere else"):
            await sent(target(hook))

    assert other.received == []


async def test_who_does_not_answer_is_given_up_after_a_time() -> None:
    async with Hook(silent=True) as hook:
        with patch.object(delivering, "TIMEOUT", 0.2), pytest.raises(Retryable, match="did not answer within") as raised:
            await sent(target(hook))

    assert raised.value.code == "TIMEOUT"


async def test_the_time_holds_for_the_whole_delivery_and_not_for_each_of_its_pieces() -> None:
    async with Endless("HTTP/1.1 200 -\r\nx-slow: ", b"y", rest=0.05) as hook, asyncio.timeout(WAIT):
        with patch.object(delivering, "TIMEOUT", 0.3), pytest.raises(Retryable, match="did not answer within") as raised:
            await sent(target(hook))

    assert raised.value.code == "TIMEOUT"


@pytest.mark.parametrize(("piece", "rest"), [(b"x" * 65_536, 0.0), (b"x", 0.05)])
async def test_whoever_accepts_and_then_talks_without_end_has_accepted(piece: bytes, rest: float) -> None:
    chunk = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    async with Endless("HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n", chunk, rest=rest) as hook, asyncio.timeout(WAIT):
        with patch.object(delivering, "TIMEOUT", 0.3):
            delivery = await sent(target(hook))

    assert delivery.status == 200
    assert hook.sent < 50_000_000, "more was taken than what lies in the buffers of a connection"


async def test_what_a_receiver_says_to_its_refusal_is_in_the_error_in_short_and_without_secrets() -> None:
    said = "no\nchannel of token=hunter2 " + "x" * 10_000
    async with Endless(f"HTTP/1.1 400 -\r\ncontent-length: {10_000_000}\r\n\r\n", said.encode(), rest=0.01) as hook:
        async with asyncio.timeout(WAIT):
            with pytest.raises(Retryable, match=r"answered with 400: no channel of token=\[redacted\] x+…$") as raised:
                await sent(target(hook))

    assert len(str(raised.value)) < 300


async def test_nobody_at_the_address_is_an_error_that_names_the_host_alone() -> None:
    async with Hook() as hook:
        pass
    with pytest.raises(Retryable, match=rf"^127\.0\.0\.1:{hook.port}: ") as raised:
        await sent(target(hook))

    assert raised.value.code == "UNREACHABLE"
    assert "/hook" not in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
async def test_an_address_of_this_machine_is_refused_when_the_connection_is_made(host: str) -> None:
    async with Hook() as hook:
        with pytest.raises(Fatal, match=r"allow_private = true in \[alerts\.ops\]") as raised:
            await sent(target(hook, url=f"http://{host}:{hook.port}/", allow_private=False))

    assert raised.value.code == "FORBIDDEN_TARGET"
    assert hook.received == []


async def test_a_name_that_leads_inside_is_refused_whatever_else_it_leads_to() -> None:
    async def resolved(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("93.184.215.14", 80)), (2, 1, 6, "", ("10.0.0.7", 80))]

    with (
        patch.object(asyncio.get_running_loop(), "getaddrinfo", resolved),
        pytest.raises(Fatal, match=r"is 10\.0\.0\.7, an address of this machine or of a private network"),
    ):
        await sent(Target(name="ops", url="http://hooks.example.com/", secret=SECRET))


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "172.16.0.1", "192.168.1.1", "127.9.9.9", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1"),
        *("255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1%eth0", "fc00::1", "fec0::1", "ff0e::1", "3fff::1", "5f00::1"),
        # those that stand for one of IPv4: mapped, compatible, translated, NAT64, NAT64 of a local network, 6to4, Teredo
        *("::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8", "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("64:ff9b:1::808:808", "2002:7f00:1::1", "2002:a00:1::1", "2001:0:808:808::f5ff:fffe", "2001:0:808:808::3fff:fdd2"),
    ],
)
def test_these_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:8.8.8.8"),
        *("64:ff9b::808:808", "2002:808:808::1"),  # the first is how a machine without IPv4 reaches 8.8.8.8
    ],
)
def test_these_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"url": "ftp://x", "secret": SECRET}, "alerts.ops: url must be such as https://"),
        ({"url": "https://", "secret": SECRET}, "alerts.ops: url must be such as"),
        ({"url": "https://x:port/", "secret": SECRET}, "alerts.ops: url must be such as"),
        ({"url": "https://x"}, "alerts.ops: it has no secret"),
        ({"url": "https://x", "secret": "hunter2"}, "make one with: holdfast alerts secret"),
        ({"url": "https://x", "secret": "whsec_c2hvcnQ="}, "base64 of 24 to 64 bytes"),
        ({"url": "https://x", "secret": SECRET, "cooldown": -1}, "cooldown must be"),
        ({"url": "https://x", "secret": SECRET, "events": ["nonsense"]}, "alerts.ops: Invalid enum value 'nonsense'"),
        ({"url": "https://x", "secret": SECRET, "colour": "red"}, "alerts.ops: Object contains unknown field `colour`"),
        ({}, "alerts.ops: Object missing required field `url`"),
    ],
)
def test_a_target_that_cannot_be_is_refused_with_its_name(about: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSetting) as raised:
        targets_of({"ops": about})

    assert says in str(raised.value)


def test_a_target_hears_of_everything_unless_told_otherwise() -> None:
    (one,) = targets_of({"ops": {"url": "https://hooks.example.com/x", "secret": SECRET}})

    assert (one.events, one.cooldown, one.allow_private) == (tuple(AlertKind), 300.0, False)
