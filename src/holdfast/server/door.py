"""The door: who comes in, by a key, by the admin secret, or by a session of the dashboard."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.server import keys
from holdfast.server.limits import Buckets, TooMany
from holdfast.server.principal import Principal
from holdfast.store.port import Role

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from holdfast.core.environment import Environment
    from holdfast.server.settings import ServerSettings
    from holdfast.store.port import Key, Store

T = TypeVar("T")

FRESH: Final = 0.5
"""Seconds that a key is believed without asking the store: a revocation is effective within a second."""
USE_NOTED: Final = 60.0
MOST_REMEMBERED: Final = 10_000
ADMIN: Final = "admin"
"""Whoever knows the admin secret."""

Sessions = Callable[["HTTPConnection"], Awaitable[Principal | None]]


async def no_sessions(_: HTTPConnection) -> None:
    """Know nobody by a cookie."""


class KeyDoor:
    """Asks for a bearer first, then for a session. An unknown key and a wrong secret take the same path.

    Raises `TooMany` for a key that makes too many requests, and for an address from which too many were refused.
    """

    def __init__(self, store: Store, environment: Environment, settings: ServerSettings) -> None:
        self.sessions: Sessions = no_sessions
        """Who somebody is without a bearer: the dashboard knows."""
        self._store = store
        self._environment = environment
        self._settings = settings
        self._admin = None if settings.admin_secret is None else keys.digest(settings.admin_secret)
        self._seen: OrderedDict[str, tuple[float, Key | None]] = OrderedDict()
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._requests = Buckets(environment, rate=settings.key_rate, burst=2 * settings.key_rate)
        self._failures = Buckets(environment, rate=settings.failure_rate / 60, burst=settings.failure_rate)

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """Return who makes a request; `None` for nobody we know."""
        if self._settings.open:
            return Principal("anyone", Role.ADMIN)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not given:
            return await self.sessions(request)
        address = "" if request.client is None else request.client.host
        # who was let in before stays in: one bad key behind a proxy must not shut out the good ones beside it
        known = keys.key_id(given.strip()) in self._noted or keys.matches(given.strip(), self._admin)
        if (wait := self._failures.wait(address)) and not known:
            raise TooMany(
                f"too many refused keys from this address: {self._settings.failure_rate:g} a minute are let through", wait
            )
        found = await self._known(given.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            self._failures.take(address)
            return None
        if wait := self._requests.take(found.key or ADMIN):
            raise TooMany(f"too many requests with this key: {self._settings.key_rate:g} a second are let through", wait)
        return found

    async def still(self, principal: Principal) -> bool:
        """Tell whether somebody who came in may still be here: a request may take long, and a key ends meanwhile."""
        if principal.key is None:
            return True
        key = await self._key(principal.key)
        return key is not None and self._valid(key)

    async def _known(self, given: str) -> Principal | None:
        """Look the key up and compare, whatever was given: nobody learns from the time it takes what was wrong."""
        key = await self._key(keys.key_id(given) or "0" * keys.PUBLIC)
        is_admin = keys.matches(given, self._admin)
        is_key = keys.matches(given, None if key is None else key.digest)
        if is_admin:
            return Principal(ADMIN, Role.ADMIN)
        if key is None or not is_key or not self._valid(key):
            return None
        await self._note_use(key)
        return principal_of(key)

    def _valid(self, key: Key) -> bool:
        return key.revoked_at is None and (key.expires_at is None or key.expires_at > self._environment.now())

    async def _key(self, key_id: str) -> Key | None:
        now = self._environment.monotonic()
        at, key = self._seen.get(key_id, (-FRESH, None))
        if now - at >= FRESH:
            key = await self._store.key(key_id)
            _remember(self._seen, key_id, (now, key))
        return key

    async def _note_use(self, key: Key) -> None:
        now = self._environment.monotonic()
        if now - self._noted.get(key.id, -USE_NOTED) >= USE_NOTED:
            _remember(self._noted, key.id, now)
            with suppress(StoreUnavailable):  # for people alone: nobody is kept out for it
                await self._store.use_key(key.id)


def principal_of(key: Key) -> Principal:
    """Return who holds a key."""
    return Principal(
        key.name,
        key.role,
        queues=None if key.queues is None else frozenset(key.queues),
        actions=None if key.actions is None else frozenset(key.actions),
        key=key.id,
    )


def _remember(table: OrderedDict[str, T], name: str, value: T) -> None:
    table[name] = value
    table.move_to_end(name)
    while len(table) > MOST_REMEMBERED:
        table.popitem(last=False)
