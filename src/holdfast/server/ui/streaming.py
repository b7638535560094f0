"""The stream that tells an open page when to ask for itself anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sse_starlette import EventSourceResponse, ServerSentEvent

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit

HEARTBEAT: Final = 20
RETRY: Final = 3000
"""Milliseconds after which a browser comes again."""
CHECK: Final = 0.5
"""Seconds between two looks whether whoever listens may still do so."""
STALLED: Final = 60.0
"""Seconds that a client may leave an event unread before it is let go of."""


async def live(visit: Visit) -> Response:
    """Open the stream."""
    return EventSourceResponse(_events(visit), ping=HEARTBEAT, send_timeout=STALLED)


async def _events(visit: Visit) -> AsyncIterator[ServerSentEvent]:
    hub = visit.ui.live
    async with hub.watch(hub.seen(visit.request.headers.get("last-event-id"))) as mailbox:
        while not hub.closing and await _welcome(visit):
            snapshot = await mailbox.take(CHECK)
            if snapshot is not None:
                data, number = snapshot.told_of(visit.who.queues), hub.event_id(snapshot)
                yield ServerSentEvent(data, event="changed", id=number, retry=RETRY, sep="\n")


async def _welcome(visit: Visit) -> bool:
    """Tell whether a session still stands; where that cannot be known, the page will say why."""
    try:
        return await visit.ui.context.door.principal(visit.request) is not None
    except HoldfastError:
        return True
