"""`holdfast media clip`: cut a piece out of a video."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from holdfast import Handle, JobCanceled, JobFailed, State
from holdfast_media.cli.common import (
    ERROR,
    INTERRUPTED,
    OK,
    USAGE,
    Common,
    Flag,
    harmless,
    interactive,
    note,
    print_json,
    run,
    size,
)
from holdfast_media.clip.resolving import is_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from holdfast_media.clip.task import ClipResult
    from holdfast_media.media import Media
    from holdfast_media.speech.transcript import Transcriber

LOOK_EVERY: Final = 0.2
_CLOCK: Final = re.compile(r"(?:(\d+):)?([0-5]?\d):([0-5]?\d(?:\.\d+)?)")
_PLAIN: Final = re.compile(r"\d+(?:\.\d+)?")
_UNITS: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


def clip(
    source: str,
    /,
    *,
    start: str = "0",
    end: str | None = None,
    out: Path | None = None,
    fast: Flag = False,
    asr: Flag = False,
    language: str | None = None,
    model: str = "small",
    allow_network: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    storage: str | None = None,
    detach: Flag = False,
    url: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Cut a piece out of a video, to the frame.

    Example: holdfast media clip film.mp4 --start 1:02.5 --end 1:10 --out scene.mp4

    The clip is encoded anew, and holds exactly the frames from --start up to, but not including, --end. It is kept in the
    storage by what it is made of: asked for again, it is found and not cut again. The work is a job: Ctrl-C cancels it, and
    what fails for a while is tried again. Exit code 1 when it failed.

    Parameters
    ----------
    source
        A file, the http(s) address of a file, or of a web page when yt-dlp is installed.
    start
        Where it begins, from the first frame: 62.5, 1:02.5, 1:02:03 or 1m2s.
    end
        Where it ends; else with the source.
    out
        Write it into this file as well; what is there is replaced.
    fast
        Copy instead of encoding: at once and without loss, but from the key frame before --start on. The output says which.
    asr
        Also write down what is said, as WebVTT (extra `speech`).
    language
        What is spoken, such as en or de; else it is found out.
    model
        The model of speech recognition: a name such as small, or a folder.
    allow_network
        A private network that the source may be fetched from, such as 10.0.0.0/8; may be given several times.
    storage
        Where clips are kept: a folder, or s3://bucket/prefix. Else HOLDFAST_MEDIA_STORAGE, else `media`.
    detach
        Only enqueue, and leave the work to other workers.
    url
        The store of jobs. Else HOLDFAST_URL, else `url` in holdfast.toml, else a file in the folder of the storage.
    as_json
        Print JSON: stable keys.
    """
    try:
        args = (_whole(source), *_span(start, end))
    except ValueError as error:
        note(f"error: {error}")
        return USAGE
    if detach and out is not None:
        note("error: --out needs the clip, and --detach does not wait for it: leave out one of them")
        return USAGE

    async def work(media: Media) -> int:
        handle = await media.clip.enqueue(*args, fast=fast, asr=asr, language=language)
        if detach:
            print_json({"job_id": handle.id}) if as_json else print(handle.id)
            return OK
        return await _watched(media, handle, out, as_json=as_json)

    options: dict[str, Any] = {"transcriber": _transcriber(model) if asr else None}
    if allow_network:
        options["clip_networks"] = allow_network
    return run(Common(url=url, out=storage, as_json=as_json), work, create=True, **options)


def _span(start: str, end: str | None) -> tuple[float, float | None]:
    begin, until = seconds(start), None if end is None else seconds(end)
    if until is not None and until <= begin:
        raise ValueError(f"--end must be after --start, and {end} is not after {start}")
    return begin, until


def seconds(text: str) -> float:
    """Read a time: 62.5, 1:02.5, 1:02:03.250, 1m2s, 500ms. Raises `ValueError`."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return round(float(text), 6)
    if (clock := _CLOCK.fullmatch(text)) is not None:
        return round(int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3]), 6)
    if text and (units := _UNITS.fullmatch(text)) is not None:
        sizes = zip(units.groups(), (3600, 60, 1, 0.001), strict=True)
        return round(sum(float(number or 0) * unit for number, unit in sizes), 6)
    raise ValueError(f"{text!r} is no time: write 62.5, 1:02.5, 1:02:03 or 1m2s")


def _whole(source: str) -> str:
    """Return a source as workers elsewhere find it. Raises `ValueError` for a file that is not there."""
    if is_address(source) or source.lower().startswith("file:"):
        return source
    path = Path(source).expanduser().absolute()
    if not path.is_file():
        raise ValueError(f"{harmless(source)} {'is no file' if path.exists() else 'does not exist'}")
    return str(path)


def _transcriber(model: str) -> Transcriber:
    from holdfast_media.speech.whisper import FasterWhisper  # noqa: PLC0415  only with --asr

    folder = Path(model).expanduser()
    return FasterWhisper(model=str(folder.absolute()) if folder.is_dir() else model)


# --- watching -------------------------------------------------------------------------------------------------------------


async def _watched(media: Media, handle: Handle[ClipResult], out: Path | None, *, as_json: bool) -> int:
    """Work and watch until it has ended, or somebody interrupts."""
    stop = asyncio.Event()
    with _interrupted(stop):
        async with media.app.worker(concurrency=1, queues=[media.settings.clip_queue]):
            with _bar(draws=interactive() and not as_json) as show:
                await _until_ended(handle, stop, show)
            if stop.is_set():
                await handle.cancel("interrupted")
                return INTERRUPTED
    try:
        result = await handle.result()
    except (JobFailed, JobCanceled) as error:
        note(f"error: {error}. More: holdfast jobs show {handle.id} --url {media.app.url}")
        return ERROR
    if out is not None:
        await asyncio.to_thread(_copied, media, result.key, out)
    _told(handle.id, result, out, as_json=as_json)
    return OK


@contextmanager
def _interrupted(stop: asyncio.Event) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM end the watching, and keep the worker's log lines away meanwhile: jobs have their own."""
    loop, logger = asyncio.get_running_loop(), logging.getLogger("holdfast")
    before = logger.level
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _until_ended(handle: Handle[ClipResult], stop: asyncio.Event, show: Callable[[float, str], None]) -> None:
    while not stop.is_set():
        view = await handle.view()
        if view.state in {State.SUCCEEDED, State.FAILED, State.CANCELED}:
            return
        show(view.progress or 0.0, view.step or view.state)
        try:
            await asyncio.wait_for(stop.wait(), LOOK_EVERY)
        except TimeoutError:
            continue


@contextmanager
def _bar(*, draws: bool) -> Iterator[Callable[[float, str], None]]:
    """Give what shows how far it is, on a terminal alone."""
    if not draws:
        yield lambda _percent, _stage: None
        return
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  as above

    columns = (TextColumn("{task.description:<9}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn())
    with Progress(*columns, console=Console(highlight=False), transient=True) as progress:
        bar = progress.add_task("waiting", total=100)
        yield lambda percent, stage: progress.update(bar, completed=percent, description=stage)


def _copied(media: Media, key: str, out: Path) -> None:
    """Write an artifact into a file: beside it first, then by one rename."""
    out.parent.mkdir(parents=True, exist_ok=True)
    work = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with media.storage.lend(key) as path:
            shutil.copyfile(path, work)
        work.replace(out)
    finally:
        work.unlink(missing_ok=True)


def _told(job_id: UUID, result: ClipResult, out: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"job_id": job_id, **msgspec.to_builtins(result), "out": None if out is None else str(out)})
        return
    how = "found, not cut again" if result.reused else "copied" if result.encoder == "copy" else "encoded"
    frames = f", {result.frames} frames" if result.frames else ""
    print(
        f"{result.url if out is None else out}: {result.start:.3f} s to {result.end:.3f} s{frames}, {size(result.size)}, {how}"
    )
    if result.key_frame is not None and result.start < result.asked_start - 0.0005:
        earlier = result.asked_start - result.start
        print(f"  begins with the key frame at {result.key_frame:.3f} s, {earlier:.3f} s before what was asked for")
    if result.captions is not None:
        print(f"  what is said: {result.captions}" + (f" ({result.language})" if result.language else ""))
