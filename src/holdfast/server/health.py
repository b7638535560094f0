"""Whether the server lives, and whether it is any use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from holdfast.server.context import Context
    from holdfast.server.keeping import Keeping

IN_TIME: Final = 2.0
"""Seconds within which the store must answer."""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str = ""


class Health(msgspec.Struct, frozen=True):
    """How it stands, and with what."""

    ok: bool
    checks: list[Check]


def health_routes(context: Context, keeping: Keeping | None) -> list[BaseRoute]:
    """Return `/health/live`, which asks nobody, and `/health/ready`, which asks the store. Neither asks for a key."""

    async def live(_: Request) -> Response:
        return _answer(Health(ok=True, checks=[]))

    async def ready(_: Request) -> Response:
        checks = [await _store(context)] + ([] if keeping is None else [_loops(keeping)])
        return _answer(Health(ok=all(check.ok for check in checks), checks=checks))

    return [Route("/health/live", live, methods=["GET"]), Route("/health/ready", ready, methods=["GET"])]


async def _store(context: Context) -> Check:
    try:
        async with asyncio.timeout(IN_TIME):
            await context.store.now()
    except TimeoutError:
        return Check("store", ok=False, detail=f"no answer within {IN_TIME:g} s")
    except HoldfastError as error:
        return Check("store", ok=False, detail=type(error).__name__)  # no more to those who have no key
    return Check("store", ok=True)


def _loops(keeping: Keeping) -> Check:
    dead = keeping.dead()
    return Check("loops", ok=not dead, detail=", ".join(dead))


def _answer(health: Health) -> Response:
    return Response(msgspec.json.encode(health), 200 if health.ok else 503, media_type="application/json")
