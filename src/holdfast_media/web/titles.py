"""The list of titles, and the page of one: where it stands, and what can be watched of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from holdfast.server import Problem, Right
from holdfast_media.library import VersionState, VideoNotFound, VideoState
from holdfast_media.web import showing
from holdfast_media.words import length, size

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.server import Visit
    from holdfast_media.library import Version, Video
    from holdfast_media.media import Media

SHOWN: Final = 24
LONGEST_SEARCH: Final = 200
LONGEST_NUMBER: Final = 8
"""Digits of the number of a chunk."""
STATES: Final = tuple(VideoState)


@dataclass(frozen=True, slots=True)
class Entry:
    """A title in the list."""

    video: Video
    percent: float | None
    """How far its newest version is; `None`: nobody works on it."""
    poster: str | None


class Titles:
    """Pages that look at the library."""

    def __init__(self, media: Media) -> None:
        self._media = media

    async def all(self, visit: Visit) -> Response:
        """Show the titles, newest first."""
        params = visit.request.query_params
        text, state, after = params.get("q", "").strip()[:LONGEST_SEARCH], params.get("state", ""), params.get("after", "")
        found = await self._media.library.list(
            state=state if state in STATES else None, limit=SHOWN + 1, after=after or None, text=text or None
        )
        entries = [
            Entry(video, await self._percent(video.versions[0]), _address(visit, video, showing.poster_of(video.versions)))
            for video in found[:SHOWN]
        ]
        return visit.render(
            "media/titles.html",
            title="Media",
            section="media",
            now=datetime.now(UTC),
            entries=entries,
            states=STATES,
            state=state if state in STATES else "",
            q=text,
            first=not after,
            more=found[SHOWN - 1].id if len(found) > SHOWN else "",
            adds=visit.may(Right.ENQUEUE, self._media.settings.queue),
            **HELPERS,
        )

    async def one(self, visit: Visit) -> Response:
        """Show a title: the player, the grid of a version, and the versions there are."""
        video = await video_of(visit, self._media)
        version = _chosen(visit, video)
        now = datetime.now(UTC)
        grid = None
        if version is not None:
            grid = showing.shown_grid(await self._media.grid(version), version, first=_first(visit), now=now)
        playing = showing.playing(video)
        return visit.render(
            "media/title.html",
            title=video.title,
            section="media",
            now=now,
            video=video,
            made=version,
            grid=grid,
            playing=playing,
            player=None if playing is None else _player(visit, video, playing),
            steers=visit.may(Right.STEER, self._media.settings.queue),
            failed=video.newest is not None and video.newest.state is VersionState.FAILED,
            **HELPERS,
        )

    async def _percent(self, version: Version) -> float | None:
        return (await self._media.grid(version)).percent if version.active else None


async def video_of(visit: Visit, media: Media) -> Video:
    """Return the video of the path."""
    try:
        return await media.library.get(str(visit.request.path_params["video_id"]))
    except VideoNotFound:
        raise Problem(HTTPStatus.NOT_FOUND, "There is no such title: it was never added, or it was deleted.") from None


HELPERS: Final[dict[str, Any]] = {"size": size, "length": length, "looks": showing.LOOKS}


def _chosen(visit: Visit, video: Video) -> Version | None:
    wanted = visit.request.query_params.get("version", "")
    return next((one for one in video.versions if str(one.number) == wanted), video.newest)


def _first(visit: Visit) -> int:
    """Return the chunk that the grid of a long film is to be shown from; 0: all of it."""
    wanted = visit.request.query_params.get("chunk", "")
    return int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) < LONGEST_NUMBER else 0


def _address(visit: Visit, video: Video, name: str | None) -> str | None:
    return None if name is None else visit.link(f"/media/{video.id}/files/{name}")


def _player(visit: Visit, video: Video, playing: showing.Playing) -> dict[str, Any]:
    """Return what the script of the player is told."""
    return {
        "version": playing.version,
        "master": _address(visit, video, playing.master),
        "qualities": json.dumps([{"name": name, "folder": folder} for name, folder in playing.qualities]),
        "poster": _address(visit, video, playing.poster) or "",
        "track": _address(visit, video, playing.track) or "",
        "captions": _address(visit, video, playing.captions) or "",
        "picture": "yes" if playing.picture else "",
        "sound": "yes" if playing.sound else "",
    }
