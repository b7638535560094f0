"""Logging in and out, the audit log, and keys."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from holdfast.finding import Mistake, seconds
from holdfast.server import keys as making
from holdfast.server.principal import RIGHTS, Right, actions_flaw
from holdfast.server.ui.frame import Problem
from holdfast.server.ui.sessions import COOKIE, Refused
from holdfast.store.port import Action, Key, Role

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit

LINES: Final = 100
NEVER: Final = "never"


async def login(visit: Visit) -> Response:
    """Show the page to log in on."""
    if visit.principal is not None:
        return visit.go(visit.link("/"))
    return _login(visit, visit.request.query_params.get("next", ""))


async def log_in(visit: Visit) -> Response:
    """Begin a session."""
    address = visit.request.client.host if visit.request.client is not None else "?"
    found = await visit.ui.sessions.log_in(visit.field("secret"), address)
    if isinstance(found, Refused):
        status = HTTPStatus.TOO_MANY_REQUESTS if found.wait else HTTPStatus.UNAUTHORIZED
        return _login(visit, visit.field("next"), flaw=found.why, status=status)
    session_id, _ = found
    to = visit.field("next")
    own = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    response = visit.go(f"{visit.request.scope.get('root_path', '')}{to}" if own else visit.link("/"))
    visit.ui.sessions.set_cookie(response, session_id, visit.root, secure=visit.is_secure)
    return response


async def log_out(visit: Visit) -> Response:
    """End a session."""
    await visit.ui.sessions.log_out(visit.request)
    response = visit.go(visit.link("/login"))
    response.delete_cookie(COOKIE, path=visit.root)
    return response


async def audit(visit: Visit) -> Response:
    """Show who did what, newest first: of every queue, and so to those alone who may look at all of them."""
    if visit.who.queues is not None:
        raise Problem(
            HTTPStatus.FORBIDDEN,
            f"The audit log tells of every queue, and {visit.who.name} may look at some.",
            "Log in with a key that is not narrowed to queues, or ask somebody who has one.",
        )
    params = visit.request.query_params
    actor, action, before = params.get("actor", "").strip(), params.get("action", ""), params.get("before", "")
    lines = await visit.store.audits(
        limit=LINES + 1,
        before=int(before) if before.isascii() and before.isdecimal() else None,
        actor=actor or None,
        action=Action(action) if action in set(Action) else None,
    )
    return visit.render(
        "audit.html",
        title="Audit",
        section="audit",
        now=await visit.store.now(),
        lines=lines[:LINES],
        more=lines[LINES - 1].no if len(lines) > LINES else None,
        first=not before,
        actor=actor,
        action=action,
        actions=list(Action),
    )


async def keys(visit: Visit) -> Response:
    """Show the keys."""
    return await _keys(visit)


async def add_key(visit: Visit) -> Response:
    """Make a key, and show it this once."""
    _need_unbound(visit)
    text, key_id = making.new_key()
    role, expires = visit.field("role"), visit.field("expires").strip()
    if role not in set(Role):
        raise Mistake(f"{role!r} is no role")
    queues, actions = _names(visit.field("queues")), _names(visit.field("actions"))
    if (flaw := actions_flaw(Role(role), actions)) is not None:
        raise Mistake(flaw)
    key = Key(
        id=key_id,
        name=visit.field("name").strip(),
        role=Role(role),
        digest=making.digest(text),
        queues=queues or None,
        actions=actions or None,
        created_by=visit.who.name,
        expires_at=await visit.store.now() + timedelta(seconds=seconds(expires, "expires")) if expires else None,
    )
    await visit.store.add_key(key, by=visit.who.name)
    return await _keys(visit, fresh=text, made=key)


async def ask_rotate(visit: Visit) -> Response:
    """Ask for how long a key is to work on beside the one that takes over from it."""
    _need_unbound(visit)
    key = await _live_key(visit)
    return visit.render("rotate.html", still=True, title=f"Rotate the key of {key.name}?", section="keys", key=key)


async def rotate_key(visit: Visit) -> Response:
    """Make a key like another one, which ends a while later, and show it this once."""
    _need_unbound(visit)
    old, now = await _live_key(visit), await visit.store.now()
    overlap, expires = seconds(visit.field("overlap").strip(), "overlap"), visit.field("expires").strip()
    told = None if expires in ("", NEVER) else seconds(expires, "expires")
    text, new = making.successor(old, now, told if expires else making.lifetime(old), by=visit.who.name)
    if not await visit.store.rotate_key(old.id, new, overlap, by=visit.who.name):
        raise _ended(old)
    return await _keys(visit, fresh=text, made=new, instead_of=old, overlap=overlap)


async def ask_revoke(visit: Visit) -> Response:
    """Ask whether a key is to end."""
    key = await _key(visit)
    return visit.render(
        "revoke.html",
        still=True,
        title=f"Revoke the key of {key.name}?",
        section="keys",
        what="key",
        key=key,
        action=visit.link(f"/keys/{key.id}/revoke"),
        back=visit.link("/keys"),
        count=0,
    )


async def revoke_key(visit: Visit) -> Response:
    """End a key."""
    key = await _key(visit)
    await visit.store.revoke_key(key.id, by=visit.who.name)
    return visit.go(visit.link("/keys"), f"The key {key.id} of {key.name} is revoked.")


def _need_unbound(visit: Visit) -> None:
    """Refuse whose own key is narrowed, whatever key it asks for."""
    if bounds := visit.who.bounds:
        raise Problem(
            HTTPStatus.FORBIDDEN,
            f"{visit.who.name} makes no keys: its own key is narrowed {' and '.join(bounds)}, "
            "and a key that it makes could reach further or live longer.",
            "Log in with the admin secret, or with an admin's key that is not narrowed and does not end.",
        )


def _login(visit: Visit, to: str, *, flaw: str = "", status: int = 200) -> Response:
    settings = visit.ui.context.settings
    return visit.render(
        "login.html", title="Log in", status=int(status), next=to, flaw=flaw, has_secret=settings.admin_secret is not None
    )


async def _keys(
    visit: Visit,
    fresh: str | None = None,
    made: Key | None = None,
    instead_of: Key | None = None,
    overlap: float = 0.0,
) -> Response:
    return visit.render(
        "keys.html",
        still=fresh is not None,
        title="Keys",
        section="keys",
        now=await visit.store.now(),
        keys=await visit.store.keys(),
        rights={role: sorted(RIGHTS[role]) for role in Role},
        fresh=fresh,
        made=made,
        instead_of=instead_of,
        overlap=overlap,
        revokes=visit.may(Right.KEYS),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


async def _live_key(visit: Visit) -> Key:
    key = await _key(visit)
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= await visit.store.now()):
        raise _ended(key)
    return key


def _ended(key: Key) -> Problem:
    ended = "was revoked" if key.revoked_at else "has expired"
    return Problem(HTTPStatus.CONFLICT, f"The key {key.id} of {key.name} {ended}: none takes over from it.", "Make a new key.")


async def _key(visit: Visit) -> Key:
    found = await visit.store.keys([str(visit.request.path_params["key_id"])])
    if not found:
        raise Problem(HTTPStatus.NOT_FOUND, "There is no such key.", "The page of the keys shows those there are.")
    return found[0]
