"""Hints as a stream of Server-Sent Events, and what is to be known of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent

from holdfast.server.api.hearing import Full
from holdfast.server.api.table import Asked, Refused
from holdfast.wire.problems import Problem
from holdfast.wire.values import ms
from holdfast.wire.workers import ServerInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.notify.port import Hint

PING: Final = 15
"""Seconds between two comments that keep the line open."""
SLOWEST: Final = 30.0
"""Seconds that a client may take to receive an event before it is hung up on."""
LOOKED: Final = 1.0
"""Seconds after which it is looked again whether hints still reach the server."""
CHECKED: Final = 15.0
"""Seconds after which a stream that is silent asks again whether its key still stands; one that speaks asks each time."""


async def info(asked: Asked[None]) -> ServerInfo:
    """Return what is to be known of the server."""
    return ServerInfo(
        version=asked.context.version,
        time=await asked.store.now(),
        body_limit=asked.settings.body_limit,
        longest_wait_ms=ms(asked.settings.longest_poll),
    )


async def hints(asked: Asked[None]) -> EventSourceResponse:
    """Tell where there may be work, until the client hangs up, the key ends or the server stops."""
    if asked.hearing.full:
        problem = Problem(error="unavailable", message="too many requests wait here already", fix="wait, and try again")
        raise Refused(503, problem, retry_after=1)
    return EventSourceResponse(_events(asked), ping=PING, send_timeout=SLOWEST)


async def _events(asked: Asked[None]) -> AsyncIterator[ServerSentEvent]:
    try:
        with asked.hearing.ear() as ear:
            # from here on nothing is missed, and where hints do not reach the server itself the client is to poll
            healthy, checked_at = asked.hearing.healthy, asked.environment.monotonic()
            yield _event("open" if healthy else "deaf")
            while not asked.hearing.closing:
                hint = _within(await ear.hear(LOOKED), asked.principal.queues)
                now = asked.environment.monotonic()
                if hint or now - checked_at >= CHECKED:
                    checked_at = now
                    if not await asked.context.door.still(asked.principal):
                        return
                if asked.hearing.healthy is not healthy:
                    healthy = not healthy
                    yield _event("open" if healthy else "deaf")
                if hint:
                    yield _event("hint", hint)
    except Full:
        return


def _within(hint: Hint, queues: frozenset[str] | None) -> Hint:
    """Return what of a hint somebody may hear who may work on these queues: not which jobs of others have become ready."""
    return hint if queues is None else msgspec.structs.replace(hint, queues=hint.queues & queues, ready=())


def _event(kind: str, data: Any = None) -> ServerSentEvent:
    return ServerSentEvent(event=kind, data=msgspec.json.encode({} if data is None else data).decode())
