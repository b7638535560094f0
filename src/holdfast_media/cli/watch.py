"""`holdfast media watch`: the grid of what is being made, wherever its workers are, as the database tells of it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast_media.cli.common import (
    COMMON,
    ERROR,
    INTERRUPTED,
    OK,
    Common,
    Flag,
    command,
    harmless,
    interactive,
    note,
    print_json,
    run,
    sentence,
)
from holdfast_media.cli.videos import no_subtitles, video_json
from holdfast_media.library import VersionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.live import Live

    from holdfast_media.library import Version, Video
    from holdfast_media.library.grid import Grid
    from holdfast_media.media import Media

LOOK_EVERY: Final = 0.25
SWEEP_EVERY: Final = 5.0
"""Seconds between two sweeps: a title that nobody works on any more ends as failed, and the watching with it."""
DRAWN: Final = 4
"""Titles that are drawn at once."""


def watch(video: str | None = None, /, *, once: Flag = False, common: Common = COMMON) -> int:
    """Watch a title while it is made, here or on other machines: its quality x chunk grid, until it is ready or failed.

    Example: holdfast media watch 01890a5d

    On a terminal the grid is drawn and fills; elsewhere a line is printed each time that something has been done. Ctrl-C ends
    the watching and not the work. Exit code 1 when a title failed.

    Parameters
    ----------
    video
        Its id, or the beginning of it. Left out: every title that is being made now.
    once
        Print where it stands, and end.
    """

    async def work(media: Media) -> int:
        ids = (
            [one.video_id for one in await media.library.active()] if video is None else [(await media.library.find(video)).id]
        )
        if not ids and not common.as_json:
            note("nothing is being made")
            return OK
        if not once:
            await _until_ended(media, ids, common)
        return await _told(media, ids, common, shows=once)

    try:
        return run(common, work)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _until_ended(media: Media, ids: Sequence[str], common: Common) -> None:
    if common.as_json:
        await _watch(media, ids, _Nothing())
    elif interactive():
        from rich.console import Console  # noqa: PLC0415  only on a terminal
        from rich.live import Live  # noqa: PLC0415  as above

        with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
            await _watch(media, ids, _Picture(media, live, len(ids)))
    else:
        await _watch(media, ids, _Lines(media))


async def _watch(media: Media, ids: Sequence[str], on: _Shown) -> None:
    left, swept = set(ids), -SWEEP_EVERY
    while True:
        if time.monotonic() - swept >= SWEEP_EVERY:
            await media.library.sweep()
            swept = time.monotonic()
        active = [one for one in await media.library.active() if one.video_id in left]
        left = {one.video_id for one in active}
        if not left:
            return
        await on.show(active)
        await asyncio.sleep(LOOK_EVERY)


# --- while it is made -----------------------------------------------------------------------------------------------------


class _Shown(Protocol):
    """Where what is being made is shown."""

    async def show(self, active: Sequence[Version]) -> None:
        """Show where these stand."""


class _Nothing:
    async def show(self, active: Sequence[Version]) -> None:
        """Show nothing: there is one document, at the end."""


class _Picture:
    """The grids on a terminal."""

    def __init__(self, media: Media, live: Live, total: int) -> None:
        self._media = media
        self._live = live
        self._total = total
        self._titles = _Titles(media)

    async def show(self, active: Sequence[Version]) -> None:
        from rich.console import Group  # noqa: PLC0415  only on a terminal
        from rich.text import Text  # noqa: PLC0415  as above

        from holdfast_media.cli import gridview  # noqa: PLC0415  as above

        working = [one for one in active if one.state is VersionState.PROCESSING] or list(active)
        parts: list[RenderableType] = [
            gridview.drawn(await self._titles.of(one), await self._media.grid(one), width=self._live.console.width, version=one)
            for one in working[:DRAWN]
        ]
        if self._total > 1:
            parts.append(Text(f"{self._total - len(active)} of {self._total} titles have ended", style="dim"))
        self._live.update(Group(*parts, gridview.legend()), refresh=True)


class _Lines:
    """A line for each title, whenever more of it is done."""

    def __init__(self, media: Media) -> None:
        self._media = media
        self._titles = _Titles(media)
        self._printed: dict[str, str] = {}

    async def show(self, active: Sequence[Version]) -> None:
        for version in active:
            text = _line(version.video_id, await self._titles.of(version), await self._media.grid(version))
            if self._printed.get(version.video_id) != text:
                self._printed[version.video_id] = text
                print(text, flush=True)  # whoever reads it reads it now


class _Titles:
    """What videos are called, asked once."""

    def __init__(self, media: Media) -> None:
        self._media = media
        self._known: dict[str, str] = {}

    async def of(self, version: Version) -> str:
        """Return the title of the video that this is a version of."""
        if version.video_id not in self._known:
            video = await self._media.library.look(version.video_id)
            self._known[version.video_id] = "?" if video is None else video.title
        return self._known[version.video_id]


def _line(video_id: str, title: str, grid: Grid) -> str:
    from holdfast_media.cli import gridview  # noqa: PLC0415  it loads what draws on terminals

    return harmless(f"{video_id}  {grid.state}  {gridview.account(grid)}  {title}")


# --- at the end -----------------------------------------------------------------------------------------------------------


async def _told(media: Media, ids: Sequence[str], common: Common, *, shows: bool) -> int:
    """Say where titles stand; `shows`: with the grid."""
    videos = [video for video in [await media.library.look(one) for one in ids] if video is not None]
    if common.as_json:
        print_json([await _json(media, video) for video in videos])
    else:
        for video in videos:
            await _print(media, video, common, shows=shows)
        if gone := len(ids) - len(videos):
            note(f"{gone} of them {'was' if gone == 1 else 'were'} deleted")
    failed = any(video.newest is not None and video.newest.state is VersionState.FAILED for video in videos)
    return ERROR if failed or len(videos) < len(ids) else OK


async def _print(media: Media, video: Video, common: Common, *, shows: bool) -> None:
    newest = video.newest
    if newest is None:
        print(harmless(f"{video.id}  {video.state}  {video.title}"))
        return
    grid = await media.grid(newest)
    if interactive():
        from rich.console import Console  # noqa: PLC0415  only on a terminal

        from holdfast_media.cli import gridview  # noqa: PLC0415  as above

        console = Console(highlight=False)
        console.print(gridview.drawn(video.title, grid, width=console.width, version=newest))
        if shows and newest.active:
            console.print(gridview.legend())
    print(_line(video.id, video.title, grid))
    if newest.state is VersionState.FAILED:
        why = sentence(f"{newest.code}: {newest.message}")
        note(harmless(f"error: {video.title}: {why} To try again: {command(common, 'retry', video.id)}"))
    elif missing := no_subtitles(newest):
        note(harmless(f"{video.title}: {sentence(missing)}"))


async def _json(media: Media, video: Video) -> dict[str, Any]:
    grid = None if video.newest is None else msgspec.to_builtins(await media.grid(video.newest))
    return video_json(media, video) | {"grid": grid}
