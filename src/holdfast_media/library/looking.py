"""Looking at the jobs of the library, many at once: one question to the store, however many there are."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast import Action, State, connect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast import Holdfast, JobView

ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})


class Looking:
    """The store of an app as the library looks at it: a handle for each event loop, opened when it is first used."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._stores: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[str, Any]] = weakref.WeakKeyDictionary()

    async def jobs(self, ids: Sequence[str]) -> list[JobView | None]:
        """Return jobs by their ids, in the same order; `None` for one that is gone."""
        if not ids:
            return []
        store = await self._store()
        views: list[JobView | None] = await store.get([UUID(one) for one in ids])
        return views

    async def now(self) -> datetime:
        """Return the time by the clock that the store goes by."""
        store = await self._store()
        now: datetime = await store.now()
        return now

    async def cancel(self, ids: Sequence[str], reason: str, *, by: str = "") -> None:
        """Cancel those that have not ended, in this order; running ones are asked to stop."""
        if ids:
            store = await self._store()
            await store.cancel([UUID(one) for one in ids], by=by or "media", reason=reason)

    async def note(self, by: str, video_id: str, what: str) -> None:
        """Write into the audit log who did what to a video; nothing where nobody is named."""
        if by:
            store = await self._store()
            await store.note(Action.EXTENSION, [f"video {video_id}"], by=by, detail=f"media: {what}")

    async def close(self) -> None:
        """Close what this event loop has open."""
        found = self._stores.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[1].close()

    @staticmethod
    def why_ended(view: JobView | None) -> tuple[str, str] | None:
        """Return why nobody works any more on what a job was to do, as code and message; `None`: somebody does.

        One that has succeeded counts too: it has moved its version, which the guard of the move then finds, or somebody has
        completed it by hand.
        """
        if view is None:
            return "JOB_GONE", "the job that was to do it is gone: it was deleted"
        if view.state not in ENDED:
            return None
        if view.error is None:
            return "JOB_ENDED", f"{view.task} has {view.state}, and nothing came of it"
        return view.error.code, f"{view.task}: {view.error.message}"

    async def _store(self) -> Any:
        loop = asyncio.get_running_loop()
        url = self._app.url
        known = self._stores.get(loop)
        if known is not None and known[0] == url:
            return known[1]
        if known is not None:
            await known[1].close()
        store = connect(url)
        self._stores[loop] = (url, store)
        await store.open()
        return store
