"""What is done to titles: made anew, tried again, deleted. The library writes each into the audit log."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.server import Problem
from holdfast_media.library import BadRequest, NotFailed, QualityState, VideoBusy
from holdfast_media.web.titles import HELPERS, video_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.server import Visit
    from holdfast_media.media import Media


class Acting:
    """Actions, and the pages that ask before them."""

    def __init__(self, media: Media) -> None:
        self._media = media

    async def ask_retranscode(self, visit: Visit) -> Response:
        """Ask what is to be made anew."""
        video = await video_of(visit, self._media)
        newest, published = video.newest, video.plays
        return visit.render(
            "media/retranscode.html",
            still=True,
            title=f"Re-transcode {video.title}?",
            section="media",
            video=video,
            qualities=[one.name for one in published.qualities if one.state is QualityState.READY] if published else [],
            busy=newest if newest is not None and newest.active else None,
            transcribes=self._media.transcriber is not None,
            **HELPERS,
        )

    async def retranscode(self, visit: Visit) -> Response:
        """Have a new version made: of all qualities, or of those that were chosen."""
        video = await video_of(visit, self._media)
        chosen = [] if visit.form is None else visit.form.getlist("quality")
        only = chosen if visit.field("which") == "some" else None
        if only == []:
            raise Problem(HTTPStatus.BAD_REQUEST, "No quality is chosen.", "Go back and choose some, or all.")
        try:
            found = await self._media.library.retranscode(
                video.id,
                qualities=only,
                fresh=bool(visit.field("fresh")),
                transcribe=bool(visit.field("transcribe")),
                replace=bool(visit.field("replace")),
                by=visit.who.name,
            )
        except VideoBusy:
            what = "Another version of this title is being made at this moment."
            fix = "Wait until it has ended, or ask again and have it given up for the new one."
            raise Problem(HTTPStatus.CONFLICT, what, fix) from None
        except BadRequest as error:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{error}.", "Go back and choose others, or all.") from None
        visit.told()
        number = "?" if found.newest is None else found.newest.number
        return visit.go(
            visit.link(f"/media/{video.id}"), f"Version {number} is being made. Until it is ready, what there is plays on."
        )

    async def retry(self, visit: Visit) -> Response:
        """Bring the failed newest version back."""
        video = await video_of(visit, self._media)
        try:
            await self._media.library.retry(video.id, by=visit.who.name)
        except NotFailed:
            raise Problem(HTTPStatus.CONFLICT, "This title has not failed.", "To make it anew, re-transcode it.") from None
        visit.told()
        return visit.go(visit.link(f"/media/{video.id}"), "It is tried again. What was completed is not encoded again.")

    async def ask_delete(self, visit: Visit) -> Response:
        """Ask whether a title is to be deleted."""
        video = await video_of(visit, self._media)
        return visit.render(
            "media/delete.html", still=True, title=f"Delete {video.title}?", section="media", video=video, **HELPERS
        )

    async def delete(self, visit: Visit) -> Response:
        """Delete a title, with its files and the work on it."""
        video = await video_of(visit, self._media)
        await self._media.library.delete(video.id, by=visit.who.name)
        visit.told()
        return visit.go(visit.link("/media"), f"{video.title} is deleted: what was being made of it stops, and its files go.")
