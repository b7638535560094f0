"""The upload page, and what its script sends: a beginning, parts with their hashes, and an end that makes a title of them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from holdfast_media.errors import NOT_FOUND, MediaError
from holdfast_media.transfer.apart import Heavy, apart
from holdfast_media.transfer.uploads import Busy, Incomplete, TooMany, trouble
from holdfast_media.web.incoming import Sending, reference_of
from holdfast_media.web.titles import HELPERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.server import Visit
    from holdfast_media.library import Video
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
        self._heavy = Heavy(incoming.limits.at_once)

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
            await self._sweep()
            found = await self._media.library.by_reference(self._incoming.reference(sending, visit.who.name))
            if found is not None:  # the answer to its completion was lost, or it is chosen once more
                return {"video": visit.link(f"/media/{found.id}")}
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
                await apart(part.close)
            return {"part": number}

        return await _told(work)

    async def complete(self, visit: Visit) -> Response:
        """Make a title of an upload, and have it transcoded: both in one transaction. Repeatable."""

        async def work() -> dict[str, Any]:
            video = await self._complete(visit)
            visit.told(queues=[self._media.settings.queue])
            return {"video": visit.link(f"/media/{video.id}")}

        return await _told(work)

    async def _complete(self, visit: Visit) -> Video:
        library = self._media.library
        try:
            asked = await self._asked(visit)
        except MediaError as error:
            # nothing is left of what was completed but its title
            found = await library.by_reference(reference_of(str(visit.request.path_params["upload"])))
            if error.code != NOT_FOUND or found is None:
                raise
            return found
        with ExitStack() as alone:  # until there is a title: who sweeps or forgets uploads keeps away
            key = await self._heavy.run(lambda: alone.enter_context(self._incoming.publishing(asked)))
            video = await library.add(key=key, title=asked.title, reference=asked.reference, by=visit.who.name)
            if video.source.key == key:
                await asyncio.to_thread(self._incoming.discard, asked)
            else:  # the same file became a title elsewhere at the same time
                await asyncio.to_thread(self._incoming.drop, asked)
        return video

    async def discard(self, visit: Visit) -> Response:
        """Forget an upload that is not complete."""
        try:
            asked = await self._asked(visit)
            await self._forget(asked)
        except MediaError:
            return visit.go(visit.link("/media/upload"), "That upload was gone already.")
        except Busy:
            return visit.go(visit.link("/media/upload"), "That upload is being written to at this moment. Try again.")
        return visit.go(visit.link("/media/upload"), f"The upload of {asked.name} is forgotten.")

    async def _sweep(self) -> None:
        """Forget what reached the storage and was left alone since."""
        for asked in await asyncio.to_thread(self._incoming.abandoned):
            with suppress(MediaError, Busy):
                await self._forget(asked)

    async def _forget(self, asked: Asked) -> None:
        """Remove an upload; what of it is in the storage only where it is not the source of a title."""
        with ExitStack() as alone:
            await asyncio.to_thread(alone.enter_context, self._incoming.alone(asked))
            title = await self._media.library.by_reference(asked.reference)
            await asyncio.to_thread(self._incoming.drop if title is None else self._incoming.discard, asked)

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
        return _refused(error)
    except msgspec.MsgspecError as error:
        return _json(HTTPStatus.BAD_REQUEST, {"code": "BAD_SHAPE", "message": str(error)})
    except Busy as error:
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"code": "BUSY", "message": str(error)}, {"Retry-After": "1"})
    except Incomplete as error:
        return _json(HTTPStatus.CONFLICT, {"code": "INCOMPLETE", "message": str(error)})
    except TooMany:
        message = "too many uploads are open: complete some, or have them forgotten on this page"
        return _json(HTTPStatus.TOO_MANY_REQUESTS, {"code": "TOO_MANY", "message": message})
    except TimeoutError:
        return _json(HTTPStatus.REQUEST_TIMEOUT, {"code": "TOO_SLOW", "message": "the part took too long to arrive"})
    except OSError as error:  # of the disk that uploads grow on
        return _refused(trouble(error))
    except ClientDisconnect:
        return Response(status_code=HTTPStatus.BAD_REQUEST)  # which nobody receives


def _refused(error: MediaError) -> Response:
    status = STATUSES.get(error.code, 503 if error.retryable else 400)
    return _json(status, {"code": error.code, "message": error.message})


def _json(status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), int(status), headers, media_type="application/json")
