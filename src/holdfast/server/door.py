"""The door: who comes in, by a key, by the admin secret, or by a session of the dashboard."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.errors import StoreUnavailable
from holdfast.server import keys
from holdfast.server.keyring import remember
from holdfast.server.limits import Buckets, Guesses, TooMany
from holdfast.server.principal import Principal
from holdfast.store.port import Role

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from holdfast.core.environment import Environment
    from holdfast.server.keyring import Keyring
    from holdfast.server.settings import ServerSettings
    from holdfast.store.port import Key, Store

USE_NOTED: Final = 60.0
LEASES: Final = 10
"""Times `key_rate` that a key may keep or end leases: who is kept from that loses jobs, and jobs lose attempts. Such a request
is cheap, and more of them than this come from no worker."""
ADMIN: Final = "admin"
"""Whoever knows the admin secret."""

Sessions = Callable[["HTTPConnection"], Awaitable[Principal | None]]


async def no_sessions(_: HTTPConnection) -> None:
    """Know nobody by a cookie."""


class KeyDoor:
    """Asks for a bearer first, then for a session. An unknown key and a wrong secret take the same path.

    Raises `TooMany` for a key that makes too many requests, and for an address from which too many were refused.
    """

    def __init__(self, store: Store, keyring: Keyring, environment: Environment, settings: ServerSettings) -> None:
        self.sessions: Sessions = no_sessions
        """Who somebody is without a bearer: the dashboard knows."""
        self._store = store
        self._keyring = keyring
        self._environment = environment
        self._settings = settings
        self._admin = None if settings.admin_secret is None else keys.digest(settings.admin_secret)
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._requests = Buckets(environment, rate=settings.key_rate, burst=2 * settings.key_rate)
        self._leases = Buckets(environment, rate=LEASES * settings.key_rate, burst=2 * LEASES * settings.key_rate)
        self._guesses = Guesses(environment, a_minute=settings.failure_rate)
        self._welcome: OrderedDict[str, None] = OrderedDict()
        """Digests of what has let somebody in: of the whole key, for its beginning is public."""

    async def principal(self, request: HTTPConnection, *, keeps: bool = False) -> Principal | None:
        """Return who makes a request; `None` for nobody we know. `keeps`: it keeps or ends a lease."""
        if self._settings.open:
            return Principal("anyone", Role.ADMIN)
        given = keys.shown(request.headers.get("authorization", ""))
        if given is None:
            return await self.sessions(request)
        found = await self._shown(given, request)
        if found is None:
            return None
        buckets, rate = (self._leases, LEASES * self._settings.key_rate) if keeps else (self._requests, self._settings.key_rate)
        if wait := buckets.take(found.key or ADMIN):
            raise TooMany(f"too many requests with this key: {rate:g} a second are let through", wait)
        return found

    async def still(self, principal: Principal) -> bool:
        """Tell whether somebody who came in may still be here: a request may take long, and a key ends meanwhile."""
        if principal.key is None:
            return True
        key = await self._keyring.key(principal.key, believed=True)
        return key is not None and not await self._keyring.ended(key)

    async def _shown(self, given: str, request: HTTPConnection) -> Principal | None:
        """Return whose key is shown. Raises `TooMany` for an address from which too many wrong ones came."""
        # who was let in before stays in: one bad key behind a proxy must not shut out the good ones beside it
        digest = keys.digest(given)
        if digest in self._welcome or keys.matches(given, self._admin):
            if (found := await self._known(given, believed=True)) is None:
                self._welcome.pop(digest, None)
            else:
                await self._note_use(found)
            return found
        address = "" if request.client is None else request.client.host
        refusal = f"too many refused keys from this address: {self._settings.failure_rate:g} a minute are let through"
        async with self._guesses.guess(address, refusal) as guess:
            found = await self._known(given, believed=False)
            guess.right = found is not None
        if found is not None:
            remember(self._welcome, digest, None)
            await self._note_use(found)  # not before: a fleet that starts behind one address would wait for it one by one
        return found

    async def _known(self, given: str, *, believed: bool) -> Principal | None:
        """Look the key up and compare, whatever was given: nobody learns from the time it takes what was wrong.

        `believed`: the whole of it has let somebody in before. Of anything else its beginning must not tell whether a key in
        use begins so: the store is asked.
        """
        key = await self._keyring.key(keys.key_id(given) or "0" * keys.PUBLIC, believed=believed)
        is_admin = keys.matches(given, self._admin)
        is_key = keys.matches(given, None if key is None else key.digest)
        if is_admin:
            return Principal(ADMIN, Role.ADMIN)
        if key is None or not is_key or await self._keyring.ended(key):
            return None
        return principal_of(key)

    async def _note_use(self, principal: Principal) -> None:
        now, key_id = self._environment.monotonic(), principal.key
        if key_id is not None and now - self._noted.get(key_id, -USE_NOTED) >= USE_NOTED:
            remember(self._noted, key_id, now)
            with suppress(StoreUnavailable):  # for people alone: nobody is kept out for it
                await self._store.use_key(key_id)


def principal_of(key: Key) -> Principal:
    """Return who holds a key."""
    return Principal(
        key.name,
        key.role,
        queues=None if key.queues is None else frozenset(key.queues),
        actions=None if key.actions is None else frozenset(key.actions),
        key=key.id,
        expires=key.expires_at is not None,
    )
