"""`holdfast media transcode`: add files, have them transcoded, and watch."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from holdfast_media.cli.common import (
    COMMON,
    ERROR,
    INTERRUPTED,
    OK,
    USAGE,
    Common,
    Flag,
    interactive,
    length,
    note,
    print_json,
    processors,
    run,
    size,
)
from holdfast_media.cli.finding import media_files
from holdfast_media.cli.videos import video_json
from holdfast_media.library import Asked, VersionState
from holdfast_media.library.refusals import BadRequest
from holdfast_media.settings import seconds
from holdfast_media.tasks import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from holdfast_media.library import Version, Video
    from holdfast_media.media import Media

LOOK_EVERY: Final = 0.25
SWEEP_EVERY: Final = 20
"""Looks between two sweeps for versions that nobody works on any more."""
DRAWN: Final = 4
"""Videos that are drawn at once."""


def transcode(
    *sources: Path,
    ladder: str | None = None,
    chunk_seconds: Annotated[str | None, Parameter(alias="--chunk")] = None,
    workers: int | None = None,
    encoder: str | None = None,
    detach: Flag = False,
    common: Common = COMMON,
) -> int:
    """Transcode files, or every media file of a folder, into HLS in several qualities.

    Example: holdfast media transcode film.mp4 --out media

    The work is kept as jobs: Ctrl-C ends this program after what runs, and the same command later goes on from there. What is
    done is not done again. Exit code 1 when a video failed.

    Parameters
    ----------
    sources
        Files, or folders with media files.
    ladder
        The qualities: `default`, or a TOML file (see `holdfast media ladder`).
    chunk_seconds
        How much one job encodes: what a killed worker costs at most.
    workers
        How many jobs run at once in this process; 0 leaves the work to other workers.
    encoder
        auto, x264, nvenc, qsv, vaapi or videotoolbox.
    detach
        Only enqueue, and leave the work to other workers.
    """
    if not sources:
        note("error: which file? holdfast media transcode FILE")
        return USAGE
    if workers is not None and workers < 0:
        note(f"error: --workers must be 0 or more, not {workers}")
        return USAGE
    slots = 0 if detach else workers if workers is not None else max(1, processors())
    try:
        chunk = None if chunk_seconds is None else seconds(chunk_seconds)
    except ValueError as error:
        note(f"error: --chunk-seconds {error}")
        return USAGE
    path = _ladder_path(ladder)

    async def work(media: Media) -> int:
        files = media_files(sources, but=_folder(media))
        asked = Asked(ladder=path, chunk_seconds=chunk)
        videos = [await _asked_for(media, file, asked) for file in files]
        if detach:
            return _told(media, videos, common)
        return await _watched(media, [video.id for video in videos], slots, common)

    return run(common, work, create=True, encoder=encoder)


def _ladder_path(ladder: str | None) -> str | None:
    """Return a ladder as workers elsewhere find it: by its whole path."""
    return ladder if ladder in (None, "default") else str(Path(ladder or "").expanduser().absolute())


def _folder(media: Media) -> Path | None:
    storage = media.settings.storage
    return None if "://" in storage else Path(storage).expanduser().absolute()


async def _asked_for(media: Media, file: Path, asked: Asked) -> Video:
    """Have a file transcoded, unless that is done or under way: so the same command may be given again and again."""
    library = media.library
    found = await library.by_reference(f"file:{file}")
    if found is None:
        return await library.add(
            file, reference=f"file:{file}", ladder=asked.ladder, chunk_seconds=asked.chunk_seconds, title=file.stem
        )
    newest = found.newest
    if newest is None or newest.state is VersionState.CANCELED:
        return await library.retranscode(found.id, ladder=asked.ladder, chunk_seconds=asked.chunk_seconds)
    same = (newest.asked.ladder, newest.asked.chunk_seconds) == (asked.ladder, asked.chunk_seconds)
    if newest.active:
        if not same:
            raise BadRequest(
                f"{file.name} is being transcoded with other settings. Wait until that has ended, or give it up: "
                f"holdfast media delete {found.id}"
            )
        return found
    if not same or _changed(file, newest):
        return await library.retranscode(found.id, ladder=asked.ladder, chunk_seconds=asked.chunk_seconds)
    return await library.retry(found.id) if newest.state is VersionState.FAILED else found


def _changed(file: Path, version: Version) -> bool:
    """Tell whether a file has changed since it was probed."""
    origin: dict[str, Any] = (version.plan or {}).get("origin", {})
    now = file.stat()
    return bool(origin) and (origin.get("size"), origin.get("modified")) != (now.st_size, now.st_mtime_ns)


# --- watching -------------------------------------------------------------------------------------------------------------


async def _watched(media: Media, ids: Sequence[str], slots: int, common: Common) -> int:
    """Work and watch until all have ended, or somebody interrupts."""
    asked_to_stop = asyncio.Event()
    with _signals(asked_to_stop), _quiet():
        if slots:
            queues = [media.settings.queue, media.settings.encode_queue]
            async with media.app.worker(concurrency=slots, queues=queues, capabilities=_capabilities(media)):
                await _view(media, ids, asked_to_stop, draws=interactive() and not common.as_json)
                if asked_to_stop.is_set():
                    note(
                        "stopping: what runs may take 30 s to end; Ctrl-C again ends it at once. The same command goes on later"
                    )
        else:
            await _view(media, ids, asked_to_stop, draws=interactive() and not common.as_json)
    if asked_to_stop.is_set():
        return INTERRUPTED
    return _told(media, [await media.library.get(one) for one in ids], common)


def _capabilities(media: Media) -> Sequence[str]:
    """Return what this machine encodes with, where that matters: finding out costs a trial encode for each."""
    if media.settings.hardware is None:
        return ()
    from holdfast_media.ffmpeg import available, find_ffmpeg  # noqa: PLC0415  only where hardware is asked for

    return sorted(available(find_ffmpeg(media.settings.ffmpeg)))


async def _view(media: Media, ids: Sequence[str], stop: asyncio.Event, *, draws: bool) -> None:
    if draws:
        from rich.console import Console  # noqa: PLC0415  only on a terminal
        from rich.live import Live  # noqa: PLC0415  as above

        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            await _until_ended(media, ids, stop, lambda text: live.update(text, refresh=True), console.width)
    else:
        await _until_ended(media, ids, stop, None, 0)


async def _until_ended(media: Media, ids: Sequence[str], stop: asyncio.Event, show: Any, width: int) -> None:
    wanted = set(ids)
    looks = 0
    titles: dict[str, str] = {}
    while not stop.is_set():
        if looks % SWEEP_EVERY == 0:
            await media.library.sweep()
        looks += 1
        active = [one for one in await media.library.active() if one.video_id in wanted]
        if not active:
            return
        if show is not None:
            show(await _drawn(media, active, titles, total=len(ids), width=width))
        try:
            await asyncio.wait_for(stop.wait(), LOOK_EVERY)
        except TimeoutError:
            continue


async def _drawn(media: Media, active: Sequence[Version], titles: dict[str, str], *, total: int, width: int) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  only on a terminal
    from rich.text import Text  # noqa: PLC0415  as above

    from holdfast_media.cli import gridview  # noqa: PLC0415  as above

    working = [one for one in active if one.state is VersionState.PROCESSING] or list(active)
    parts: list[RenderableType] = []
    for version in working[:DRAWN]:
        if version.video_id not in titles:
            video = await media.library.look(version.video_id)
            titles[version.video_id] = "?" if video is None else video.title
        parts.append(gridview.drawn(titles[version.video_id], await media.grid(version), width=width))
    if total > 1:
        parts.append(Text(f"{total - len(active)} of {total} videos have ended", style="dim"))
    parts.append(gridview.legend())
    return Group(*parts)


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


def _told(media: Media, videos: Sequence[Video], common: Common) -> int:
    failed = [video for video in videos if video.newest is not None and video.newest.state is VersionState.FAILED]
    if common.as_json:
        print_json([video_json(media, video) for video in videos])
        return ERROR if failed else OK
    for video in videos:
        print(_line(media, video))
        if video.error is not None:
            note(f"error: {video.title}: {video.error}. To try again: holdfast media retry {video.id}")
    return ERROR if failed else OK


def _line(media: Media, video: Video) -> str:
    newest = video.newest
    result = (newest.result if newest is not None else None) or {}
    where = media.storage.url_for(layout.stable_master(video.id))
    if newest is None or newest.state is not VersionState.READY:
        return f"{video.id}  {video.state if newest is None else newest.state}  {video.title}"
    account = f"{', '.join(result.get('qualities', ())) or 'sound'}; {length(result.get('seconds', 0))}"
    if result.get("chunks"):
        account += f", {result['chunks']} chunks ({result['redone']} done again, {result['reused']} reused)"
    if result.get("frames"):
        account += f", {result['frames']} frames"
    return f"{video.id}  ready  {video.title}: {account}, {size(result.get('bytes', 0))}\n  {where}"
