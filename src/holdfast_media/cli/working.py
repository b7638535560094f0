"""Working on videos and watching them until they have ended: what `transcode`, `retranscode` and `retry` have in common."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from holdfast_media.cli.common import (
    ERROR,
    INTERRUPTED,
    OK,
    Common,
    command,
    counted,
    harmless,
    interactive,
    note,
    print_json,
    processors,
    sentence,
)
from holdfast_media.cli.videos import no_subtitles, video_json
from holdfast_media.errors import DISK_FULL
from holdfast_media.library import BadRequest, VersionState
from holdfast_media.library.grid import CellState
from holdfast_media.settings import load
from holdfast_media.speech.whisper import transcriber_of
from holdfast_media.tasks import layout
from holdfast_media.tasks.graph import RETRY_SHARE
from holdfast_media.words import length, size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from rich.console import RenderableType

    from holdfast_media.library import Asked, Version, Video
    from holdfast_media.library.grid import Cell, Grid
    from holdfast_media.media import Media

LOOK_EVERY: Final = 0.25
SWEEP_EVERY: Final = 20
"""Looks between two sweeps for versions that nobody works on any more."""
WAITS_EVERY: Final = 4
"""Looks between two looks for what is waited for: room on the disk, leases of workers that are gone."""
SILENT: Final = 0.4
"""Of a lease: when no more has been heard of its worker for that long, it has missed a heartbeat, and is probably gone."""
TELL_EVERY: Final = 5.0
"""Seconds between two lines about how far it is, where nothing is drawn."""
SHOWN: Final = 4
"""Videos that are drawn, or told of, at once."""


def slots_of(workers: int | None, *, detach: bool) -> int:
    """Return how many jobs run at once in this process, by the flags; raises `BadRequest`."""
    if workers is not None and workers < 0:
        raise BadRequest(f"--workers must be 0 or more, not {workers}")
    return 0 if detach else max(1, processors()) if workers is None else workers


def is_as_asked(version: Version, asked: Asked) -> bool:
    """Tell whether a version has the ladder, the chunks and the subtitles that are asked for; what was not said is as it is."""
    same = asked.rungs in (None, version.asked.rungs) and asked.chunk_seconds in (None, version.asked.chunk_seconds)
    return same and (version.asked.transcribe or not asked.transcribe)


def have_it_heard(media: Media) -> None:
    """See that there is somebody who writes down what is said; raises `MediaError` with what to install."""
    if media.transcriber is None:
        media.transcriber = transcriber_of()
    media.transcriber.check()


def model_said(media: Media) -> list[str]:
    """Return the option that names the model of speech recognition, where this command was given one."""
    model = media.settings.speech_model
    return [] if model is None or model == load({}).speech_model else ["--model", model]


def encoding_said(media: Media) -> list[str]:
    """Return the options that say how to encode, where this command was given some."""
    settings, usual = media.settings, load({})
    encoder = [] if settings.encoder == usual.encoder else ["--encoder", settings.encoder]
    together = "--together" if settings.together else "--no-together"
    return encoder if settings.together == usual.together else [*encoder, together]


def left_to_others(media: Media, video: Video, common: Common) -> int:
    """Say what was asked for, and who does it; returns the exit code."""
    newest = video.newest
    if common.as_json:
        print_json([video_json(media, video)])
        return OK
    state = "" if newest is None else f"  version {newest.number} is {newest.state}"
    print(harmless(f"{video.id}{state}  {video.title}"))
    note(f"left to other workers (holdfast media serve, holdfast worker MODULE:APP). See: {command(common, 'watch', video.id)}")
    return OK


async def watched(media: Media, ids: Sequence[str], slots: int, common: Common) -> int:
    """Work and watch until all have ended, or somebody interrupts; returns the exit code. Without slots others do the work."""
    asked_to_stop = asyncio.Event()
    with _signals(asked_to_stop), _quiet():
        if slots:
            queues = [media.settings.queue, media.settings.encode_queue]
            async with media.app.worker(concurrency=slots, queues=queues, retry_share=RETRY_SHARE):
                await _view(media, ids, asked_to_stop, common)
                if asked_to_stop.is_set():
                    note(
                        "stopping: what runs may take 30 s to end; Ctrl-C again ends it at once. The same command goes on later"
                    )
        else:
            await _view(media, ids, asked_to_stop, common)
    if asked_to_stop.is_set():
        return INTERRUPTED
    return told(media, [await media.library.get(one) for one in ids], common)


async def _view(media: Media, ids: Sequence[str], stop: asyncio.Event, common: Common) -> None:
    titles: dict[str, str] = {}
    if not interactive() or common.as_json:
        await _until_ended(media, ids, stop, _Lines(media, titles).show)
        return
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.live import Live  # noqa: PLC0415  as above

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        async def draw(active: Sequence[Version]) -> None:
            live.update(await _drawn(media, active, titles, total=len(ids), width=console.width), refresh=True)

        await _until_ended(media, ids, stop, draw)


async def _until_ended(
    media: Media, ids: Sequence[str], stop: asyncio.Event, show: Callable[[Sequence[Version]], Awaitable[None]]
) -> None:
    wanted = set(ids)
    looks = 0
    said: set[str] = set()
    while not stop.is_set():
        if looks % SWEEP_EVERY == 0:
            await media.library.sweep()
        looks += 1
        active = [one for one in await media.library.active() if one.video_id in wanted]
        if not active:
            return
        await show(active)
        if looks % WAITS_EVERY == 0:
            await _tell_of_room(media, active, said)
            await _tell_of_silence(media, active, said)
        try:
            await asyncio.wait_for(stop.wait(), LOOK_EVERY)
        except TimeoutError:
            continue


class _Lines:
    """Where nobody draws: a line for each title that has come further, on standard error, now and then."""

    def __init__(self, media: Media, titles: dict[str, str]) -> None:
        self._media = media
        self._titles = titles
        self._printed: dict[str, str] = {}
        self._looked_at = -math.inf

    async def show(self, active: Sequence[Version]) -> None:
        """Print what has changed, unless that was done a moment ago."""
        if (now := time.monotonic()) - self._looked_at < TELL_EVERY:
            return
        self._looked_at = now
        from holdfast_media.cli import gridview  # noqa: PLC0415  it loads what draws on terminals

        for version in _worked_on(active):
            grid = await self._media.grid(version)
            text = f"{grid.state}  {gridview.account(grid)}  {await _title(self._media, version, self._titles)}"
            if self._printed.get(version.video_id) != text:
                self._printed[version.video_id] = text
                note(harmless(f"{version.video_id}  {text}"))


async def _tell_of_room(media: Media, active: Sequence[Version], said: set[str]) -> None:
    """Say once of each video that it waits for room on the disk: it would wait in silence, for as long as nobody makes some."""
    for version in active:
        if version.video_id in said:
            continue
        cells = [cell for cell in _jobs(await media.grid(version)) if cell.state is CellState.WAITING]
        message = next((cell.message for cell in cells if cell.message.startswith(DISK_FULL)), None)
        if message is not None:
            said.add(version.video_id)
            note(f"waiting: {harmless(message)}")


async def _tell_of_silence(media: Media, active: Sequence[Version], said: set[str]) -> None:
    """Say once of each job how long a silent worker is waited for, as after a command that was killed and is given again."""
    now = None
    for version in active:
        for cell in _jobs(await media.grid(version)):
            if cell.state is not CellState.RUNNING or cell.heard_at is None or cell.held_until is None or cell.job_id in said:
                continue
            now = now or await media.library.looking.now()
            if cell.heard_at + SILENT * (cell.held_until - cell.heard_at) < now < cell.held_until:
                said.add(cell.job_id)
                left = math.ceil((cell.held_until - now).total_seconds())
                note(harmless(f"waiting up to {left} s for worker {cell.worker}, which is silent: then another has its work"))


def _jobs(grid: Grid) -> list[Cell]:
    single = (grid.prepare, grid.audio, grid.finalize, *(row.package for row in grid.rows))
    return [cell for cell in (*single, *grid.cells) if cell is not None]


async def _drawn(media: Media, active: Sequence[Version], titles: dict[str, str], *, total: int, width: int) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  only on a terminal
    from rich.text import Text  # noqa: PLC0415  as above

    from holdfast_media.cli import gridview  # noqa: PLC0415  as above

    parts: list[RenderableType] = [
        gridview.drawn(await _title(media, version, titles), await media.grid(version), width=width, version=version)
        for version in _worked_on(active)
    ]
    if total > 1:
        parts.append(Text(f"{total - len(active)} of {total} videos have ended", style="dim"))
    parts.append(gridview.legend())
    return Group(*parts)


def _worked_on(active: Sequence[Version]) -> Sequence[Version]:
    """Return those that are shown: a few of those that are worked on; where none is yet, of those that wait."""
    return ([one for one in active if one.state is VersionState.PROCESSING] or list(active))[:SHOWN]


async def _title(media: Media, version: Version, known: dict[str, str]) -> str:
    if version.video_id not in known:
        video = await media.library.look(version.video_id)
        known[version.video_id] = "?" if video is None else video.title
    return known[version.video_id]


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Have the first Ctrl-C drain, and the second end at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def asked() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep log lines out of the picture; what went wrong is in the library and with the jobs."""
    logger = logging.getLogger("holdfast")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


# --- the end --------------------------------------------------------------------------------------------------------------


def told(media: Media, videos: Sequence[Video], common: Common) -> int:
    """Print where videos stand; returns the exit code: an error when one has failed."""
    failed = [video for video in videos if video.newest is not None and video.newest.state is VersionState.FAILED]
    if common.as_json:
        print_json([video_json(media, video) for video in videos])
        return ERROR if failed else OK
    for video in videos:
        print(_line(media, video))
        if video.error is not None:
            again = command(common, "retry", video.id, *model_said(media), *encoding_said(media))
            note(harmless(f"error: {video.title}: {sentence(video.error)} To try again: {again}"))
        elif video.newest is not None and (missing := no_subtitles(video.newest)):
            note(harmless(f"{video.title}: {sentence(missing)}"))
    return ERROR if failed else OK


def _line(media: Media, video: Video) -> str:
    newest = video.newest
    result = (newest.result if newest is not None else None) or {}
    where = media.storage.url_for(layout.stable_master(video.id))
    if newest is None or newest.state is not VersionState.READY:
        return f"{video.id}  {video.state if newest is None else newest.state}  {video.title}"
    account = f"{', '.join(result.get('qualities', ())) or 'sound'}; {length(result.get('seconds', 0))}"
    if result.get("chunks"):
        account += f", {counted(result['chunks'], 'chunk')} ({result['redone']} redone)"
        account += f", {counted(result['encodes'], 'encode')} ({result['reused']} reused)"
    if result.get("frames"):
        account += f", {counted(result['frames'], 'frame')}"
    return f"{video.id}  ready  {video.title}: {account}, {size(result.get('bytes', 0))}\n  {where}"
