"""The dashboard of an empty store, and clients that have logged in with each role."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from holdfast.server.settings import ServerSettings
from tests.server.ui.serving import SECRET, make, new_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.server.asgi import Server
    from holdfast.store.port import Role, Store

OWN = {"Sec-Fetch-Site": "same-origin"}


@dataclass
class Place:
    """A dashboard, as tests of its pages use it."""

    server: Server
    client: TestClient
    """Of the admin."""

    @property
    def store(self) -> Store:
        return self.server.context.store

    def do(self, coroutine: Any) -> Any:
        """Run something on the loop of the application."""

        async def work() -> Any:
            return await coroutine

        assert self.client.portal is not None
        return self.client.portal.call(work)

    def anyone(self) -> TestClient:
        """Return a client that nobody has logged in with."""
        client = TestClient(self.server, headers=OWN, follow_redirects=False)
        client.portal = self.client.portal
        return client

    def log_in(self, key: str) -> TestClient:
        """Return a client with a session of this key."""
        client = self.anyone()
        answer = client.post("/login", data={"secret": key})
        assert answer.status_code == 303, answer.text
        return client

    def having(self, role: Role, **options: Any) -> TestClient:
        """Return a client with a fresh key of this role."""
        return self.log_in(self.do(new_key(self.store, f"{role} one", role, **options)))


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield opened(stack, ServerSettings(admin_secret=SECRET, redacted=("iban",)))


def opened(stack: ExitStack, settings: ServerSettings) -> Place:
    """Return the dashboard of an empty store; its admin has logged in."""
    server = make("memory://", settings)
    base = "http://127.0.0.1" if settings.open else "http://testserver"
    client = stack.enter_context(TestClient(server, base, headers=OWN, follow_redirects=False))
    if not settings.open:
        assert client.post(f"{settings.prefix}/login", data={"secret": SECRET}).status_code == 303
    return Place(server, client)
