"""`HttpNotifier`: hints through a server's stream of Server-Sent Events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from holdfast.notify.channel import LONGEST_REST, Backoff, Channel
from holdfast.notify.hub import Hub
from holdfast.notify.port import NOTHING_HANDED, Hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.environment import Environment
    from holdfast.notify.hub import Mailbox
    from holdfast.notify.port import Handed, Listener, Serving

PATH: Final = "/api/v1/hints"
SILENT: Final = 40.0
"""Seconds without a word after which the line counts as dead: the server says something every 15."""
CONNECT: Final = 5.0

_decode = msgspec.json.Decoder(Hint).decode


class HttpNotifier:
    """Hints for a store behind a server. What is hinted here reaches this handle's own listeners; the server tells others.

    One that nobody listens to opens no connection.
    """

    def __init__(self, url: str, key: str, environment: Environment) -> None:
        parts = urlsplit(url)
        target = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._url = f"{target}{PATH}"
        self._key = key
        self._environment = environment
        self._hub = Hub()
        self._mailboxes: list[Mailbox] = []
        self._state = Channel(f"the server {target}")
        self._keeping: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._closed = False

    async def listen(self, listener: Listener, serving: Serving | None = None) -> None:  # noqa: ARG002  all hear all
        """Begin to hear hints. Returns once the server has been reached or has failed to answer."""
        if self._closed:
            raise RuntimeError("this notifier is closed: it hears nothing any more")
        self._mailboxes.append(self._hub.listen(listener))
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name="holdfast-hints")
        await self._tried.wait()

    @property
    def healthy(self) -> bool:
        """Whether hints arrive now, as far as the server has said."""
        return self._state.up and self._keeping is not None and not self._keeping.done()

    def hint(self, hint: Hint, *, told: bool = False) -> None:  # noqa: ARG002  the server tells the others
        """Reach its own listeners in the next turn of the loop."""
        if hint and not self._closed:
            self._hub.send(hint)

    def with_commit(self, hint: Hint) -> None:
        """Return nothing: the server sends what there is to send."""

    def heed(self) -> Handed:
        """Return nothing: everyone hears everything."""
        return NOTHING_HANDED

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Do nothing: others have heard."""

    def figures(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    async def close(self) -> None:
        """Hang up. Safe to call again."""
        self._closed = True
        self._tried.set()  # nobody shall wait for it any longer
        while self._mailboxes:
            self._hub.leave(self._mailboxes.pop())
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        """Keep the stream open for ever."""
        rest = Backoff(self._environment)
        timeout = httpx2.Timeout(CONNECT, read=SILENT)
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "text/event-stream"}
        async with httpx2.AsyncClient(timeout=timeout, headers=headers) as client:
            while True:
                began = self._environment.monotonic()
                self._state.lost(await self._hear(client))
                self._tried.set()
                if self._environment.monotonic() - began > LONGEST_REST:  # one that breaks at once is not tried at once again
                    rest.reset()
                await asyncio.sleep(rest.next())

    async def _hear(self, client: httpx2.AsyncClient) -> Exception | str:
        """Hear for as long as that goes well; returns why it no longer does."""
        try:
            async with client.stream("GET", self._url) as response:
                if response.status_code != httpx2.codes.OK:
                    return f"it answered with status {response.status_code}"
                async for event in httpx2.EventSource(response):
                    self._heard(event.event, event.data)
        except httpx2.HTTPError as error:
            return error
        return "the server ended the stream"

    def _heard(self, kind: str, data: str) -> None:
        if kind == "hint":
            try:
                hint = _decode(data)
            except msgspec.MsgspecError:
                hint = Hint()
            self._hub.send(hint or Hint(anything=True))  # one that cannot be read says what a newer version understands
        elif kind == "open":
            if self._state.restored():
                self._hub.send(Hint(anything=True))
            self._tried.set()
        elif kind == "deaf":
            self._state.lost("hints do not reach the server itself")
            self._tried.set()
