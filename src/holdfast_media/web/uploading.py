"""The upload page, and what its script sends: a beginning, parts with their hashes, and an end that makes a title of them."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from holdfast_media.errors import MediaError
from holdfast_media.transfer.uploads import Busy, Incomplete, TooMany
from holdfast_media.web import showing
from holdfast_media.web.incoming import Sending
from holdfast_media.web.titles import HELPERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.server import Visit
    from holdfast_media.media import Media
    from holdfast_media.web.incoming import Asked, Incoming

SHA256: Final = "holdfast-sha256"
LARGEST: Final = 16 * 1024
PIECE: Final = 1024 * 1024
STATUSES: Final = {
    "TOO_LARGE": 413,
    "CHECKSUM_MISMATCH": 422,
    "BAD_CHECKSUM": 400,
    "NOT_FOUND": 404,
    "DISK_FULL": 507,
}


class Uploading:
    """Uploads of people who have logged in."""

    def __init__(self, media: Media, incoming: Incoming) -> None:
        self._media = media
        self._incoming = incoming

    async def page(self, visit: Visit) -> Response:
        """Show where files are chosen, how large they may be, and what was begun and is not complete."""
        most, open_ = await asyncio.gather(
            asyncio.to_thread(self._incoming.most), asyncio.to_thread(self._incoming.open, visit.who.name)
        )
        return visit.render(
            "media/upload.html",
            still=True,
            title="Upload",
            section="media",
            most=most,
            limit=self._incoming.limits.total,
            unfinished=open_,
            hours=round(self._incoming.limits.idle / 3600),
            **HELPERS,
        )

    async def begin(self, visit: Visit) -> Response:
        """Begin an upload, or find out what of it is there."""

        async def work() -> dict[str, Any]:
            sending = msgspec.json.decode(await _body(visit), type=Sending)
            asked, have = await asyncio.to_thread(self._incoming.begin, sending, visit.who.name)
            about = asked.about
            return {"id": asked.id, "part_size": about.part_size, "parts": about.parts, "have": have, "title": asked.title}

        return await _told(work)

    async def part(self, visit: Visit) -> Response:
        """Take one part. It counts when it is whole and what its SHA-256 says."""

        async def work() -> dict[str, Any]:
            asked = await self._asked(visit)
            number, sha256 = visit.request.path_params["number"], visit.request.headers.get(SHA256, "")
            part = await asyncio.to_thread(self._incoming.part, asked, number, sha256)
            try:
                async with asyncio.timeout(self._incoming.limits.part_seconds):
                    await _received(visit, part.write)
                await asyncio.to_thread(part.finish)
            finally:
                part.close()
            return {"part": number}

        return await _told(work)

    async def complete(self, visit: Visit) -> Response:
        """Make a title of an upload, and have it transcoded: both in one transaction. Repeatable."""

        async def work() -> dict[str, Any]:
            asked = await self._asked(visit)
            await visit.note([asked.title], f"upload {asked.name!r}, {showing.size(asked.size)}")
            key = await asyncio.to_thread(self._incoming.publish, asked)
            video = await self._media.library.add(key=key, title=asked.title, reference=asked.reference)
            await asyncio.to_thread(self._incoming.discard, asked)
            visit.told(queues=[self._media.settings.queue])
            return {"video": visit.link(f"/media/{video.id}")}

        return await _told(work)

    async def discard(self, visit: Visit) -> Response:
        """Forget an upload that is not complete."""
        try:
            asked = await self._asked(visit)
            if await self._media.library.by_reference(asked.reference) is None:
                await asyncio.to_thread(self._incoming.drop, asked)
        except MediaError:
            return visit.go(visit.link("/media/upload"), "That upload was gone already.")
        return visit.go(visit.link("/media/upload"), f"The upload of {asked.name} is forgotten.")

    async def _asked(self, visit: Visit) -> Asked:
        return await asyncio.to_thread(self._incoming.get, str(visit.request.path_params["upload"]), visit.who.name)


async def _received(visit: Visit, write: Callable[[bytes], None]) -> None:
    """Write a body as it comes, in a thread: neither the disk nor the hash may stop the event loop."""
    waiting = bytearray()
    async for data in visit.request.stream():
        waiting += data
        if len(waiting) >= PIECE:
            await asyncio.to_thread(write, bytes(waiting))
            waiting.clear()
    if waiting:
        await asyncio.to_thread(write, bytes(waiting))


async def _body(visit: Visit) -> bytes:
    data = b""
    async for piece in visit.request.stream():
        data += piece
        if len(data) > LARGEST:
            raise MediaError("TOO_LARGE", f"the request has more than {LARGEST:,} bytes")
    return data


async def _told(work: Callable[[], Awaitable[dict[str, Any]]]) -> Response:
    """Answer a script: what came of it, or why nothing did."""
    try:
        return _json(HTTPStatus.OK, await work())
    except MediaError as error:
        status = STATUSES.get(error.code, 503 if error.retryable else 400)
        return _json(status, {"code": error.code, "message": error.message})
    except msgspec.MsgspecError as error:
        return _json(HTTPStatus.BAD_REQUEST, {"code": "BAD_SHAPE", "message": str(error)})
    except Busy as error:
        return _json(HTTPStatus.CONFLICT, {"code": "BUSY", "message": str(error)})
    except Incomplete as error:
        return _json(HTTPStatus.CONFLICT, {"code": "INCOMPLETE", "message": str(error)})
    except TooMany:
        message = "too many uploads are open: complete some, or have them forgotten on this page"
        return _json(HTTPStatus.TOO_MANY_REQUESTS, {"code": "TOO_MANY", "message": message})
    except TimeoutError:
        return _json(HTTPStatus.REQUEST_TIMEOUT, {"code": "TOO_SLOW", "message": "the part took too long to arrive"})
    except ClientDisconnect:
        return Response(status_code=HTTPStatus.BAD_REQUEST)  # which nobody receives


def _json(status: int, value: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), int(status), media_type="application/json")
