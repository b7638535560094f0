"""Behind proxies: who it is that asks, and whether by HTTPS; and what nobody is to be believed."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.errors import BadSetting
from holdfast.server.keys import new_key
from holdfast.server.proxies import Proxies
from holdfast.server.settings import ServerSettings
from holdfast.system import SystemEnvironment
from tests.server.conftest import Asking
from tests.server.served import bearer, serving
from tests.server.ui.conftest import OWN, Place, opened
from tests.server.ui.serving import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Receive, Scope, Send

PROXY, OTHER_PROXY = "10.0.0.7", "10.1.2.3"
TRUSTED = (PROXY, "10.1.0.0/16", "2001:db8::/32")
ANN, BOB = "203.0.113.7", "198.51.100.2"


def seen(
    client: str, forwarded: Iterable[str] = (), proto: Iterable[str] = (), trusted: tuple[str, ...] = TRUSTED
) -> tuple[str, str]:
    """Return as whom, and by what, a request counts that reaches the server from this address with these headers."""
    found: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        found.append(scope)

    headers = [(b"x-forwarded-for", one.encode()) for one in forwarded]
    headers += [(b"x-forwarded-proto", one.encode()) for one in proto]
    scope: Any = {"type": "http", "client": (client, 5000), "scheme": "http", "headers": headers}
    asyncio.run(Proxies(app, trusted)(scope, None, None))  # type: ignore[arg-type]  # nothing is received or sent
    assert scope["client"] == (client, 5000), "the scope of others is left as it is"
    return found[0]["client"][0], found[0]["scheme"]


@pytest.mark.parametrize(
    ("client", "forwarded", "asks"),
    [
        (PROXY, [ANN], ANN),
        (f"::ffff:{PROXY}", [ANN], ANN),
        (PROXY, [f"{ANN}, {OTHER_PROXY}"], ANN),
        (PROXY, [ANN, OTHER_PROXY], ANN),
        (PROXY, [f"{ANN}:4321"], ANN),
        (PROXY, ["[2001:db9::5]:443"], "2001:db9::5"),
        ("2001:db8::1", ["2001:db9::5"], "2001:db9::5"),
        (PROXY, [], PROXY),
        (PROXY, [""], PROXY),
        (PROXY, [OTHER_PROXY], OTHER_PROXY),
        # what stands before who asked the proxy is what that one has sent: it may be anything
        (PROXY, [f"{BOB}, {ANN}"], ANN),
        (PROXY, [f"{OTHER_PROXY}, {ANN}"], ANN),
        (PROXY, [BOB, ANN], ANN),
        (PROXY, ["unknown"], PROXY),
        (PROXY, [f"{BOB}, unknown"], PROXY),
        (PROXY, [f"{BOB}, <b>x</b>, {OTHER_PROXY}"], OTHER_PROXY),
        # who is no proxy of ours is believed nothing
        (BOB, [ANN], BOB),
        (BOB, [f"{ANN}, {PROXY}"], BOB),
        ("testclient", [ANN], "testclient"),
    ],
)
def test_who_asks_is_the_first_from_the_end_who_is_no_trusted_proxy(client: str, forwarded: list[str], asks: str) -> None:
    assert seen(client, forwarded)[0] == asks


@pytest.mark.parametrize(
    ("client", "proto", "scheme"),
    [
        (PROXY, ["https"], "https"),
        (PROXY, ["HTTPS"], "https"),
        (PROXY, ["http, https"], "https"),
        (PROXY, ["https, http"], "http"),
        (PROXY, [], "http"),
        (PROXY, ["gopher"], "http"),
        (BOB, ["https"], "http"),
    ],
)
def test_https_is_what_the_nearest_proxy_says_and_nobody_else(client: str, proto: list[str], scheme: str) -> None:
    assert seen(client, [ANN], proto)[1] == scheme


def refused(ask: Asking, forwarded: str) -> int:
    """Return how a wrong key is answered that a proxy passes on for somebody."""
    return ask.client.get("/server", headers=bearer(new_key()[0]) | {"X-Forwarded-For": forwarded}).status_code


def test_who_guesses_behind_a_trusted_proxy_shuts_nobody_else_out() -> None:
    with serving(Holdfast("memory://"), housekeeping=False, failure_rate=3.0, trusted_proxies=("127.0.0.0/8",)) as served:
        ask = Asking(served)
        guesses = [refused(ask, f"192.0.2.{number}, {ANN}") for number in range(5)]
        other = refused(ask, BOB)
        ask.client.close()
    assert guesses == [401] * 3 + [429] * 2, "whatever it puts before its own address"
    assert other == 401


def test_nobody_is_believed_unless_proxies_are_named() -> None:
    """Not even on the same machine: an address of one's own for each guess would be as good as no limit."""
    with serving(Holdfast("memory://"), housekeeping=False, failure_rate=3.0) as served:
        ask = Asking(served)
        guesses = [refused(ask, f"192.0.2.{number}") for number in range(5)]
        ask.client.close()
    assert guesses == [401] * 3 + [429] * 2


def through_proxy(place: Place) -> TestClient:
    """Return a client whose requests come from the proxy."""
    client = TestClient(place.server, headers=OWN, follow_redirects=False, client=(PROXY, 5000))
    client.portal = place.client.portal
    return client


def test_the_cookie_of_a_login_over_https_is_for_https_alone() -> None:
    """Its forms come from pages of HTTPS then, and the audit log tells who has logged in."""
    said = {"X-Forwarded-Proto": "https", "X-Forwarded-For": ANN}
    with ExitStack() as stack:
        place = opened(stack, ServerSettings(admin_secret=SECRET, trusted_proxies=(PROXY,)))
        proxy = through_proxy(place)
        answer = proxy.post("/login", data={"secret": SECRET}, headers=said | {"Origin": "https://testserver"})
        assert answer.status_code == 303
        assert "; Secure" in answer.headers["set-cookie"]
        assert place.do(place.store.audits(limit=1))[0].detail == f"from {ANN}"
        plain = proxy.post("/login", data={"secret": SECRET}, headers={"X-Forwarded-For": ANN})
        assert "; Secure" not in plain.headers["set-cookie"]
        insecure = proxy.post("/login", data={"secret": SECRET}, headers=said | {"Origin": "http://testserver"})
        assert insecure.status_code == 403
    with ExitStack() as stack:
        place = opened(stack, ServerSettings(admin_secret=SECRET))
        answer = place.anyone().post("/login", data={"secret": SECRET}, headers=said)
        assert "; Secure" not in answer.headers["set-cookie"], "anybody may say so"


@pytest.mark.parametrize("named", ["proxy.example.com", "10.0.0.7/8", "*", ""])
def test_a_proxy_is_named_by_its_address(named: str) -> None:
    with pytest.raises(BadSetting, match="trusted_proxies must be addresses or networks"):
        ServerSettings(trusted_proxies=(named,))


BASIC = {"Authorization": "Basic YW5uOmh1bnRlcjI="}


def test_what_a_proxy_was_shown_by_a_browser_is_no_key_that_failed() -> None:
    """It asks for a password of its own and passes it on: nobody has guessed, and the dashboard's own login goes on."""
    with ExitStack() as stack:
        place = opened(stack, ServerSettings(admin_secret=SECRET, failure_rate=1.0))
        browser = place.anyone()
        for _ in range(5):
            assert browser.get("/", headers=BASIC).headers["location"] == "/login"
            assert browser.get("/api/v1/server", headers=BASIC).status_code == 401
        assert browser.post("/login", data={"secret": SECRET}, headers=BASIC).status_code == 303
        assert browser.get("/", headers=BASIC).status_code == 200
        assert browser.get("/api/v1/server", headers=BASIC).status_code == 200
        ids = {"ids": [str(SystemEnvironment().job_id())]}
        assert browser.post("/api/v1/jobs/cancel", json=ids, headers=BASIC).status_code == 200
        # a browser sends it from pages of others too: it is no proof that none led it astray
        elsewhere = BASIC | {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
        assert browser.post("/api/v1/jobs/cancel", json=ids, headers=elsewhere).status_code == 403
