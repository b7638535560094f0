"""Who has logged in: a random id in a cookie, and what it stands for in the memory of this server.

A session says nothing by itself: the key that it was begun with is asked for again every half a second at most, so that a
revoked one is out within a second, whichever server revoked it. A session is known to the server that began it: behind several
of them, have the balancer send a browser to the same one, or log in once on each.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.server import keys
from holdfast.server.door import principal_of
from holdfast.server.limits import Guesses, TooMany
from holdfast.server.principal import Principal
from holdfast.store.port import Action, Role

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from holdfast.core.environment import Environment
    from holdfast.server.keyring import Keyring
    from holdfast.server.settings import ServerSettings
    from holdfast.store.port import Key, Store

COOKIE: Final = "holdfast_session"
LONGEST: Final = 12 * 3600.0
"""Seconds after which a session ends by itself."""
MOST: Final = 10_000
"""Sessions that are kept; the oldest go first."""
PEOPLE: Final = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
ADMIN: Final = "admin"
"""How the holder of the admin secret is called."""
TOO_MANY: Final = "Too many logins from this address were refused. Wait a minute, then try again."


@dataclass(slots=True)
class _Session:
    principal: Principal
    digest: str
    """Of the key it was begun with."""
    began: float


@dataclass(frozen=True, slots=True)
class Refused:
    """A login that was refused, in words for the one who tried."""

    why: str
    wait: bool = False
    """Whether too many were refused from that address."""


class Sessions:
    """The sessions of this server. Belongs to one event loop."""

    def __init__(self, store: Store, keyring: Keyring, environment: Environment, settings: ServerSettings) -> None:
        self._store = store
        self._keyring = keyring
        self._environment = environment
        self._settings = settings
        self._admin = None if settings.admin_secret is None else keys.digest(settings.admin_secret)
        self._sessions: dict[str, _Session] = {}
        self._guesses = Guesses(environment, a_minute=settings.failure_rate)

    async def log_in(self, secret: str, address: str) -> tuple[str, Principal] | Refused:
        """Begin a session for the holder of a key or of the admin secret; returns its id. Audited, whatever the answer."""
        now = self._environment.monotonic()
        try:
            async with self._guesses.guess(address, TOO_MANY) as guess:
                found = await self._holder(secret.strip())
                guess.right = not isinstance(found, Refused)
        except TooMany as refused:
            return Refused(str(refused), wait=True)
        if isinstance(found, Refused):
            await self._store.note(Action.LOGIN_FAILED, by="nobody", detail=f"from {address}: {found.why}")
            return found
        principal, digest = found
        await self._store.note(Action.LOGIN, [principal.key or "admin secret"], by=principal.name, detail=f"from {address}")
        session_id = secrets.token_urlsafe(32)
        self._sessions[session_id] = _Session(principal, digest, began=now)
        while len(self._sessions) > MOST:
            self._sessions.pop(next(iter(self._sessions)))
        return session_id, principal

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """Return who holds the session of a request's cookie; `None`: nobody, or no longer."""
        session_id = request.cookies.get(COOKIE, "")
        session = self._sessions.get(session_id)
        if session is None:
            return None
        if self._environment.monotonic() - session.began > LONGEST:
            self._sessions.pop(session_id, None)
            return None
        if session.principal.key is not None:
            key = await self._keyring.key(session.principal.key, believed=True)
            if key is None or key.digest != session.digest or await self._flaw(key) is not None:
                self._sessions.pop(session_id, None)
                return None
            session.principal = principal_of(key)
        return session.principal

    async def log_out(self, request: HTTPConnection) -> None:
        """End the session of a request's cookie. Audited."""
        session = self._sessions.pop(request.cookies.get(COOKIE, ""), None)
        if session is not None:
            await self._store.note(Action.LOGOUT, [session.principal.key or "admin secret"], by=session.principal.name)

    def set_cookie(self, response: Response, session_id: str, path: str, *, secure: bool) -> None:
        """Have a browser keep a session: for this server alone, out of reach of scripts; `secure`: over HTTPS alone."""
        response.set_cookie(
            COOKIE,
            session_id,
            max_age=int(LONGEST),
            path=path,
            secure=secure,
            httponly=True,
            samesite="strict",
        )

    async def _holder(self, secret: str) -> tuple[Principal, str] | Refused:
        key = await self._keyring.key(keys.key_id(secret) or "0" * keys.PUBLIC, believed=False)
        is_key = keys.matches(secret, None if key is None else key.digest)
        if keys.matches(secret, self._admin):
            return Principal(ADMIN, Role.ADMIN), ""
        if key is None or not is_key:
            return Refused("This is neither a key that is known here nor the admin secret.")
        if (flaw := await self._flaw(key)) is not None:
            return Refused(flaw)
        await self._store.use_key(key.id)
        return principal_of(key), key.digest

    async def _flaw(self, key: Key) -> str | None:
        """Say why a key does not open the dashboard."""
        if key.revoked_at is not None:
            return "This key was revoked."
        if await self._keyring.expired(key):
            return "This key has expired."
        if key.role not in PEOPLE:
            return f"This is the key of a {key.role}: people log in with the key of a viewer, an operator or an admin."
        return None
