"""What open pages ask for anew, made once for all of those who may see the same.

While anything runs every open page is told so each second, and asks. Twenty overviews would have the store add up twenty times
what has not changed in between, at the cost of the workers that wait for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from starlette.responses import Response

MOST: Final = 200
"""Pages that are kept; those that nobody has asked for the longest go first."""
PACE: Final = 10.0
"""A page rests for so many times what making it took: it keeps the server and the store busy for a tenth of the time."""
LONGEST: Final = 5.0
"""Seconds that a page waits for its turn at most."""


@dataclass(slots=True)
class _Page:
    made: bytes = b""
    version: int | None = None
    """Of what was seen in the store when it was made; `None`: it is not to be shown any more."""
    rests_until: float = 0.0
    outdated: int = 0
    """How often somebody has seen something newer."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Shared:
    """The pages that are shared. Belongs to one event loop."""

    def __init__(
        self,
        version: Callable[[], int | None],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._version = version
        self._monotonic = monotonic
        self._sleep = sleep
        self._pages: OrderedDict[Hashable, _Page] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return a page as of what was last seen in the store: as somebody else got it, or made now.

        A costly one waits for its turn. It is not answered with an old one: nothing might follow that tells of the last change.
        """
        if self._version() is None:  # nobody looks at the store, so nobody knows what is old
            return await make()
        page = self._kept(key)
        async with page.turn:
            if page.version is not None and page.version == self._version():
                return HTMLResponse(page.made)
            if (rest := page.rests_until - self._monotonic()) > 0:
                await self._sleep(min(rest, LONGEST))
            version, outdated, begun = self._version(), page.outdated, self._monotonic()
            response = await make()
            ended = self._monotonic()
            page.rests_until = ended + min(LONGEST, PACE * (ended - begun))
            good = response.status_code == HTTPStatus.OK and outdated == page.outdated
            page.made, page.version = (bytes(response.body), version) if good else (b"", None)
            return response

    def seen(self, key: Hashable) -> None:
        """Note that somebody has loaded a page whole: it must not go back to how it was before."""
        if (page := self._pages.get(key)) is not None:
            page.outdated += 1
            page.version = None

    def _kept(self, key: Hashable) -> _Page:
        page = self._pages.setdefault(key, _Page())
        self._pages.move_to_end(key)
        while len(self._pages) > MOST:
            self._pages.popitem(last=False)
        return page
