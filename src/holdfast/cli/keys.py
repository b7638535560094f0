"""`holdfast keys`: who is let in by a server."""

from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, actor, run
from holdfast.cli.output import Column
from holdfast.core.spans import span
from holdfast.finding import Mistake, NotThere, seconds
from holdfast.server.keys import digest, lifetime, new_key, new_secret, successor
from holdfast.server.principal import RIGHTS, Right, actions_flaw
from holdfast.store.port import Key, Role, Store

LIVE: Final = "live"
NEVER: Final = "never"
COLUMNS = (
    Column("id"),
    Column("name", shrinks=True),
    Column("role"),
    Column("state"),
    Column("queues", shrinks=True),
    Column("may", goes=True),
    Column("last used"),
    Column("expires"),
)


def add(
    name: str,
    /,
    *,
    role: Role = Role.WORKER,
    queues: str | None = None,
    actions: str | None = None,
    expires: str | None = None,
    common: Common = COMMON,
) -> None:
    """Make a key, and show it: this once, for only its digest is kept.

    Example: holdfast keys add render-farm --role worker --queues video --expires 90d

    Parameters
    ----------
    name
        Whose it is: shown wherever it is used.
    role
        viewer, operator, admin (people and scripts), worker, client (machines).
    queues
        Only these, separated by commas; else all.
    actions
        Only these of what the role may, separated by commas; else all of it.
    expires
        When it ends: 90d, 12h; else never.
    """
    allowed = None if actions is None else _names(actions, "--actions")
    if (flaw := actions_flaw(role, allowed or ())) is not None:
        raise Mistake(f"--actions: {flaw}")
    length = None if expires is None else seconds(expires, "--expires")
    wanted_queues = None if queues is None else _names(queues, "--queues")

    async def work(store: Store) -> str:
        text, key_id = new_key()
        ends = None if length is None else await store.now() + timedelta(seconds=length)
        key = Key(id=key_id, name=name, role=role, digest=digest(text), queues=wanted_queues, actions=allowed, expires_at=ends)
        await store.add_key(key, by=actor())
        return text

    _show_once(run(common, work, create=True), common)


def ls(*, common: Common = COMMON) -> None:
    """List the keys: whose they are, what they may do, when they were last used.

    Example: holdfast keys ls
    """

    async def work(store: Store) -> None:
        now = await store.now()
        keys = await store.keys()
        if common.as_json:
            output.print_json({"keys": [_json(key) for key in keys]})
            return
        rows = [
            (
                key.id,
                key.name,
                key.role.value,
                _state(key, now),
                "all" if key.queues is None else ",".join(key.queues),
                ",".join(sorted(Right(right).value for right in RIGHTS[key.role]) if key.actions is None else key.actions),
                output.when(key.used_at, now),
                output.moment(key.expires_at) if key.expires_at else "never",
            )
            for key in keys
        ]
        output.print_table(COLUMNS, rows, empty="no keys: make one with `holdfast keys add NAME`")

    run(common, work)


def rotate(key: str, /, *, overlap: str = "24h", expires: str | None = None, common: Common = COMMON) -> None:
    """Make a key like another one, which ends a while later: both work meanwhile.

    Example: holdfast keys rotate render-farm --overlap 1h

    Parameters
    ----------
    key
        The id of the key, or its name where no other live key has it.
    overlap
        How long the old one still works.
    expires
        When the new one ends: 90d, 12h, never; else it lives as long as the old one was made for.
    """
    within = seconds(overlap, "--overlap")
    told = None if expires in (None, NEVER) else seconds(expires, "--expires")

    async def work(store: Store) -> str:
        now = await store.now()
        old = _only(await _find(store, key, now), key)
        text, new = successor(old, now, told if expires is not None else lifetime(old))
        if not await store.rotate_key(old.id, new, within, by=actor()):
            ended = "was revoked" if old.revoked_at else "has expired"
            raise Mistake(f"the key {old.id} ({old.name}) {ended}. Make a new one: holdfast keys add {old.name}")
        output.note(f"the old key, {old.id}, ends in {span(within)}")
        return text

    _show_once(run(common, work), common)


def revoke(key: str, /, *, all: Yes = False, common: Common = COMMON) -> None:  # noqa: A002  the name of the flag
    """End a key: within a second nobody is let in by it any more.

    Example: holdfast keys revoke render-farm --all

    Parameters
    ----------
    key
        The id of the key, or its name where no other live key has it.
    all
        End every live key of that name: after a rotation there are two.
    """

    async def work(store: Store) -> list[Key]:
        found = await _find(store, key, await store.now())
        for one in found if all else [_only(found, key, "Say which by its id, or end them all with --all")]:
            await store.revoke_key(one.id, by=actor())
        return found

    revoked = run(common, work)
    if common.as_json:
        output.print_json({"keys": [{"id": one.id, "name": one.name} for one in revoked]})
        return
    for one in revoked:
        print(f"{one.id} ({one.name}) is revoked")


def secret() -> None:
    """Print a fresh admin secret, for HOLDFAST_ADMIN_SECRET. It is kept nowhere.

    Example: holdfast keys secret
    """
    print(new_secret())


def _show_once(text: str, common: Common) -> None:
    if common.as_json:
        output.print_json({"key": text, "id": text.split("_")[1]})
        return
    print(text)
    output.note("keep it: it is not shown again")


async def _find(store: Store, wanted: str, now: datetime) -> list[Key]:
    """Return the key of an id, whatever became of it, or the live ones of a name."""
    if known := await store.keys([wanted]):
        return known
    named = [key for key in await store.keys() if key.name == wanted and _state(key, now) == LIVE]
    if not named:
        raise NotThere(f"there is no live key {wanted!r}. See: holdfast keys ls")
    return named


def _only(found: list[Key], wanted: str, fix: str = "Say which by its id") -> Key:
    if len(found) > 1:
        raise Mistake(f"several live keys are named {wanted!r}: {', '.join(key.id for key in found)}. {fix}")
    return found[0]


def _state(key: Key, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else LIVE


def _names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise Mistake(f"{option} names nothing: leave it out for all")
    return names


def _json(key: Key) -> dict[str, Any]:
    return {name: value for name, value in output.fields(key).items() if name != "digest"}
