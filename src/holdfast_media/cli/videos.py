"""`holdfast media ls, show, delete`: the library on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast_media.cli.common import (
    COMMON,
    ERROR,
    OK,
    USAGE,
    Common,
    Flag,
    actor,
    counted,
    harmless,
    interactive,
    note,
    print_json,
    print_table,
    run,
)
from holdfast_media.library import VersionState, VideoState
from holdfast_media.tasks import layout
from holdfast_media.words import length, size

if TYPE_CHECKING:
    from holdfast_media.library import Version, Video
    from holdfast_media.media import Media


def ls(*, state: str | None = None, text: str | None = None, limit: int = 50, common: Common = COMMON) -> int:
    """List videos, newest first.

    Example: holdfast media ls --state failed

    Parameters
    ----------
    state
        Only those that are pending, processing, ready or failed.
    text
        Only those with this in their title.
    limit
        How many at most.
    """
    if state is not None and state not in set(VideoState):
        note(f"error: --state: {state!r} is none of {', '.join(VideoState)}")
        return USAGE
    if limit < 1:
        note(f"error: --limit must be 1 or more, not {limit}")
        return USAGE

    async def work(media: Media) -> int:
        videos = await media.library.list(state=state, text=text, limit=limit)
        if common.as_json:
            print_json([video_json(media, video) for video in videos])
        else:
            rows = [(video.id, video.state.value, video.title, _length(video), _note(video)) for video in videos]
            print_table(("ID", "STATE", "TITLE", "LENGTH", "NOTE"), rows, empty="no videos")
        return OK

    return run(common, work)


def show(video: str, /, *, common: Common = COMMON) -> int:
    """Show a video: its versions, their qualities, and the grid of one that is being made.

    Example: holdfast media show 01890a5d..9a8057

    Parameters
    ----------
    video
        Its id, or the beginning of it.
    """

    async def work(media: Media) -> int:
        found = await media.library.find(video)
        if common.as_json:
            print_json(video_json(media, found, whole=True))
            return OK
        _print_video(media, found)
        newest = found.newest
        if newest is not None and newest.active and interactive():
            from rich.console import Console  # noqa: PLC0415  only on a terminal

            from holdfast_media.cli import gridview  # noqa: PLC0415  as above

            console = Console(highlight=False)
            console.print(gridview.drawn(found.title, await media.grid(newest), width=console.width, version=newest))
        return OK

    return run(common, work)


def delete(*videos: str, yes: Flag = False, common: Common = COMMON) -> int:
    """Delete videos with their files; what is being made of them is stopped.

    Example: holdfast media delete 01890a5d --yes

    Parameters
    ----------
    videos
        Their ids, or the beginnings of them.
    yes
        Do it: without, it is only said what would be deleted.
    """
    if not videos:
        note("error: which video? holdfast media delete ID")
        return USAGE

    async def work(media: Media) -> int:
        found = [await media.library.find(one) for one in videos]
        for video in found:
            if yes:
                await media.library.delete(video.id, by=actor())
            print(harmless(f"{video.id}  {'deleted' if yes else 'would be deleted'}  {video.title}"))
        if not yes:
            note("nothing was deleted: give --yes to do it")
            return ERROR
        return OK

    return run(common, work)


def ladder_path(ladder: str | None) -> str | None:
    """Return a ladder as people elsewhere find it, by its whole path; what it says is read when it is asked for."""
    return ladder if ladder in (None, "default") else str(Path(ladder or "").expanduser().absolute())


# --- what is shown --------------------------------------------------------------------------------------------------------


def video_json(media: Media, video: Video, *, whole: bool = False) -> dict[str, Any]:
    """Return a video with stable keys; `whole`: with all its versions, else with the newest."""
    newest = video.newest
    shown = video.versions if whole else video.versions[:1]
    return {
        "id": video.id,
        "title": video.title,
        "state": video.state,
        "source": video.source.shown,
        "facts": video.facts,
        "published": video.published,
        "master": media.storage.url_for(layout.stable_master(video.id)) if video.published is not None else None,
        "error": None
        if newest is None or newest.state is not VersionState.FAILED
        else {"code": newest.code, "message": newest.message},
        "created_at": video.created_at,
        "versions": [_version_json(one) for one in shown],
    }


def no_subtitles(version: Version) -> str | None:
    """Return why a version is ready without the subtitles that were asked for; `None`: nothing is missing."""
    result = version.result or {}
    return f"{result['code']}: {result['message']}" if result.get("message") else None


def _version_json(version: Version) -> dict[str, Any]:
    return {
        "id": version.id,
        "number": version.number,
        "state": version.state,
        "code": version.code,
        "message": version.message,
        "result": version.result,
        "created_at": version.created_at,
        "finished_at": version.finished_at,
        "jobs": msgspec.to_builtins(version.jobs),
        "qualities": [msgspec.to_builtins(one) for one in version.qualities],
    }


def _length(video: Video) -> str:
    return length(video.facts["seconds"]) if video.facts is not None else ""


def _note(video: Video) -> str:
    newest = video.newest
    if newest is None or (newest.state is VersionState.PENDING and video.published is None):
        return ""
    if newest.state is VersionState.READY:
        return no_subtitles(newest) or ""
    if newest.state is VersionState.FAILED:
        return f"{newest.code}: {newest.message}"
    return f"version {newest.number} is {newest.state}"


def _print_video(media: Media, video: Video) -> None:
    print(harmless(f"{video.title}  {video.state}  {video.id}"))
    print(harmless(f"  source   {video.source.shown}"))
    if video.facts is not None:
        facts = video.facts
        picture = f"{facts['width']}x{facts['height']}, {facts['frames']} frames, " if "width" in facts else ""
        print(f"  length   {length(facts['seconds'])} ({picture}{size(facts['bytes'])})")
    if video.published is not None:
        print(f"  plays    {media.storage.url_for(layout.stable_master(video.id))}")
    for version in video.versions:
        mark = "  (plays)" if version.id == video.published else ""
        print(f"  version {version.number}  {version.state}{mark}")
        if version.message:
            print(harmless(f"    {version.code}: {version.message}"))
        elif missing := no_subtitles(version):
            print(harmless(f"    {missing}"))
        for quality in version.qualities:
            result = quality.result or {}
            made = (
                f"{result.get('encoder') or 'as before'}, {counted(result.get('chunks', 0), 'chunk')}"
                if result
                else quality.message or ""
            )
            print(harmless(f"    {quality.name}  {quality.state}  {made}"))
