"""The files of titles, from the storage to browsers: what can be played, and nothing else.

Which files those are is said by the library, not by the request: the folders of qualities that are ready, of the sound and the
pictures, and the playlists. Chunks, sources and whatever else lies in the storage are not served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response

from holdfast_media.errors import NOT_FOUND, MediaError
from holdfast_media.library import QualityState, VersionState
from holdfast_media.storage import checked_key
from holdfast_media.tasks import layout
from holdfast_media.transfer.apart import Reading, Sent
from holdfast_media.transfer.ranges import asked

if TYPE_CHECKING:
    from holdfast.server import Visit
    from holdfast_media.library import Version, Video
    from holdfast_media.media import Media
    from holdfast_media.storage import Stored

logger = logging.getLogger("holdfast.media")

FRESH: Final = 1.0
"""Seconds that what the library said of a video is believed: a deleted one is gone within them."""
AGAIN: Final = 0.2
"""Seconds after which it is asked again for a file that was not among them."""
MOST: Final = 256
FOR_GOOD: Final = "private, max-age=31536000, immutable"
"""Folders hold the recipe of what is in them in their names: what is under one never changes."""
ASK_AGAIN: Final = "private, no-cache"
PLAYED: Final = frozenset({".m3u8", ".mp4", ".m4s", ".m4a"})
SEEN: Final = frozenset({".jpg", ".vtt"})
WATCHED: Final = frozenset({VersionState.PENDING, VersionState.PROCESSING, VersionState.READY, VersionState.REPLACED})
"""Versions that somebody may be watching."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What of a video may be had."""

    played: frozenset[str]
    """Prefixes of playlists and segments."""
    seen: frozenset[str]
    """Prefixes of pictures."""
    keys: frozenset[str]
    """Files by themselves."""
    at: float

    def covers(self, key: str) -> bool:
        """Tell whether a file is among them."""
        folder, _, name = key.rpartition("/")
        ending = PurePosixPath(name).suffix
        return (
            key in self.keys
            or (f"{folder}/" in self.played and ending in PLAYED)
            or (f"{folder}/" in self.seen and ending in SEEN)
        )


class Files:
    """Serves files, with ranges. Belongs to one event loop."""

    def __init__(self, media: Media) -> None:
        self._media = media
        self._known: OrderedDict[str, Allowed] = OrderedDict()

    async def serve(self, visit: Visit) -> Response:
        """Send a file, or a part of it."""
        video_id = str(visit.request.path_params["video_id"])
        key = f"{layout.home(video_id)}{visit.request.path_params['name']}"
        try:
            checked_key(key)
            found = await asyncio.to_thread(self._media.storage.head, key) if await self._may(video_id, key) else None
            if found is not None:
                return await self._answer(visit, found)
        except MediaError as error:
            if error.code not in (NOT_FOUND, "BAD_KEY"):
                logger.warning("%s could not be sent: %s", key, error)
                return PlainTextResponse("The storage does not answer.", HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "1"})
        return PlainTextResponse("There is no such file.", HTTPStatus.NOT_FOUND)

    async def _answer(self, visit: Visit, found: Stored) -> Response:
        what = asked(visit.request.headers, found.etag, found.size)
        headers = {
            "ETag": f'"{found.etag}"',
            "Accept-Ranges": "bytes",
            "Content-Type": found.content_type,
            "Cache-Control": ASK_AGAIN if found.key.endswith("/master.m3u8") else FOR_GOOD,
        }
        if what.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return Response(status_code=what.status, headers={"Content-Range": f"bytes */{found.size}"})
        if what.status in (HTTPStatus.NOT_MODIFIED, HTTPStatus.PRECONDITION_FAILED):
            return Response(status_code=what.status, headers=headers)
        headers["Content-Length"] = str(what.length)
        if what.status == HTTPStatus.PARTIAL_CONTENT:
            headers["Content-Range"] = f"bytes {what.start}-{what.start + what.length - 1}/{found.size}"
        if visit.request.method == "HEAD":
            return Response(status_code=what.status, headers=headers)
        reading = await Reading.of(lambda: self._media.storage.open(found.key, what.start))
        return Sent(reading, found.key, what.length, what.status, headers)

    async def _may(self, video_id: str, key: str) -> bool:
        known, now = self._known.get(video_id), time.monotonic()
        age = FRESH if known is None else now - known.at
        if known is None or age >= FRESH or (age >= AGAIN and not known.covers(key)):
            video = await self._media.library.look(video_id)
            known = allowed(video, now)
            self._known[video_id] = known
            self._known.move_to_end(video_id)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return known.covers(key)


def allowed(video: Video | None, at: float = 0.0) -> Allowed:
    """Return what of a video may be had; nothing of one that is deleted."""
    played: set[str] = set()
    seen: set[str] = set()
    keys: set[str] = set()
    for version in () if video is None else video.versions:
        plan = version.plan or {}
        if version.state is not VersionState.CANCELED and plan.get("pictures_folder"):
            seen.add(plan["pictures_folder"])
        if version.state in WATCHED:
            played |= _folders(version)
            keys |= {layout.stable_master(version.video_id), layout.version_master(version.video_id, version.number)}
            keys |= {key for key in ((version.result or {}).get("captions"),) if key}
    return Allowed(frozenset(played), frozenset(seen), frozenset(keys), at)


def _folders(version: Version) -> set[str]:
    """Return the folders of what is packaged."""
    ready = {one.result["folder"] for one in version.qualities if one.state is QualityState.READY and one.result is not None}
    sound = (version.plan or {}).get("audio_folder")
    return ready | ({sound} if sound else set())
