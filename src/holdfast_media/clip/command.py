"""`holdfast media clip`: cut a piece out of a video."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shlex
import shutil
import signal
import socket
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

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
    made,
    note,
    print_json,
    refused,
    run,
    sentence,
    without_password,
)
from holdfast_media.clip.resolving import is_address, local_path
from holdfast_media.settings import load
from holdfast_media.speech.whisper import DEFAULT_MODEL
from holdfast_media.words import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from holdfast_media.clip.task import ClipResult
    from holdfast_media.media import Media

LOOK_EVERY: Final = 0.2
CANCELED_WITHIN: Final = 10.0
"""Seconds that the worker has to end what was canceled, before it is ended with it."""
LONGEST_NAME: Final = 60
"""Letters of the source's name in that of a clip: file systems take 255 bytes."""
_CLOCK: Final = re.compile(r"(?:(\d+):([0-5]?\d)|(\d+)):([0-5]?\d(?:\.\d+)?)")
"""The first field may be as large as it likes: 90:00 is an hour and a half."""
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
    model: str | None = None,
    allow_network: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    storage: str | None = None,
    detach: Flag = False,
    url: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Cut a piece out of a video, to the frame.

    Example: holdfast media clip film.mp4 --start 1:02.5 --end 1:10 --out scene.mp4

    The clip is encoded anew, and holds exactly the frames from --start up to, but not including, --end. It is kept in the
    storage by what it is made of: asked for again, it is found and not cut again. The work is a job, which this command does
    itself: Ctrl-C cancels it, unless another command has asked for it first, and what fails for a while is tried again. Exit
    code 1 when it failed.

    Parameters
    ----------
    source
        A file, the http(s) address of a file, or of a web page when yt-dlp is installed.
    start
        Where it begins, from the first frame: 62.5, 1:02.5, 1:02:03 or 1m2s.
    end
        Where it ends; else with the source.
    out
        A file to write the clip into as well (--storage is where it is kept); what is there is replaced. A folder that is there
        gets it as SOURCE-START-END.mp4.
    fast
        Copy instead of encoding: at once and without loss, but from the key frame before --start on. The output says which.
    asr
        Also write down what is said, as WebVTT (extra `speech`).
    language
        What is spoken, such as en or de; else it is found out.
    model
        The model of speech recognition: a name, or a folder. Else HOLDFAST_MEDIA_SPEECH_MODEL, else small.
    allow_network
        A private network that the source may be fetched from, such as 10.0.0.0/8; may be given several times.
    storage
        Where all that is made is kept: a folder, or s3://bucket/prefix. Else HOLDFAST_MEDIA_STORAGE, else `media`.
    detach
        Only enqueue, and leave the work to other workers.
    url
        The store of jobs. Else HOLDFAST_URL, else `url` in holdfast.toml, else a file in the storage's folder.
    as_json
        Print JSON: stable keys.
    """
    try:
        args = (_whole(source), *_span(start, end))
    except (ValueError, OSError) as error:
        note(f"error: {refused(error) if isinstance(error, OSError) else error}")
        return USAGE
    if detach and out is not None:
        note("error: --out needs the clip, and --detach does not wait for it: leave out one of them")
        return USAGE
    if out is not None and (why := _against(out)):
        note(f"error: --out {out}: {why}. Fix: name another file, or a folder")
        return USAGE

    async def work(media: Media) -> int:
        if detach:
            handle = await media.clip.enqueue(*args, fast=fast, asr=asr, language=language)
            print_json({"job_id": handle.id}) if as_json else print(handle.id)
            return OK
        own = _own_queue(media, media.settings.speech_model if asr else None)
        mine = media.clip.options(queue=own, key_scope=own)
        handle = await mine.enqueue(*args, fast=fast, asr=asr, language=language)
        return await _watched(media, handle, args[0], own, out, as_json=as_json)

    options: dict[str, Any] = {"speech_model": model or load({}).speech_model or DEFAULT_MODEL} if asr else {}
    if allow_network:
        options["clip_networks"] = allow_network
    return run(Common(url=url, out=storage, as_json=as_json), work, create=True, **options)


def _span(start: str, end: str | None) -> tuple[float, float | None]:
    begin, until = seconds(start), None if end is None else seconds(end)
    if until is not None and until <= begin:
        raise ValueError(f"--end must be after --start, and {end} is not after {start}")
    return begin, until


def seconds(text: str) -> float:
    """Read a time: 62.5, 1:02.5, 90:00, 1:02:03.250, 1m2s, 500ms. Raises `ValueError`."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return round(float(text), 6)
    if (clock := _CLOCK.fullmatch(text)) is not None:
        return round(int(clock[1] or 0) * 3600 + int(clock[2] or clock[3]) * 60 + float(clock[4]), 6)
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


def _against(out: Path) -> str:
    """Return why a clip cannot be written there; empty: it can. Asked before one is made."""
    if os.path.isdir(out):  # noqa: PTH112  unlike Path.is_dir it never raises
        return made(out)
    return made(out.parent) or ("" if out.is_file() or not out.exists() else "it is no plain file")


def _own_queue(media: Media, model: str | None) -> str:
    """Return the queue of the commands that would do the same: on this machine, for this user, with these settings.

    What others have asked for may lie in folders and go to a storage that only their workers reach, so it is not ours to claim.
    """
    said = {
        one.name: getattr(media.settings, one.name) for one in fields(media.settings) if one.name not in {"scratch", "cache"}
    }
    if "://" not in said["storage"]:
        said["storage"] = str(Path(said["storage"]).expanduser().absolute())
    here = msgspec.json.encode([socket.gethostname(), os.getuid(), said, model], order="deterministic")
    return f"{media.settings.clip_queue}-{hashlib.sha256(here).hexdigest()[:12]}"


# --- watching -------------------------------------------------------------------------------------------------------------


async def _watched(
    media: Media, handle: Handle[ClipResult], source: str, queue: str, out: Path | None, *, as_json: bool
) -> int:
    """Work and watch until it has ended, or somebody interrupts."""
    stop = asyncio.Event()
    with _interrupted(stop):
        async with media.app.worker(concurrency=1, queues=[queue]) as worker:
            with _bar(draws=interactive() and not as_json) as show:
                await _until_ended(handle, stop, show)
            if stop.is_set():
                await _left(handle)
                await worker.stop(timeout=0)  # what it still runs is another command's, and given back
                return INTERRUPTED
    try:
        result = await handle.result()
    except (JobFailed, JobCanceled) as error:
        more = shlex.join(["holdfast", "jobs", "show", str(handle.id), "--url", without_password(media.app.url)])
        note(f"error: {sentence(str(error))} More: {more}")
        return ERROR
    if out is not None:
        try:
            out = await asyncio.to_thread(_copied, media, source, result, out)
        except OSError as error:
            note(f"error: {out} could not be written: {error.strerror}. The clip is made, and is {result.url}")
            return ERROR
    _told(handle.id, result, out, as_json=as_json)
    return OK


async def _left(handle: Handle[ClipResult]) -> None:
    """Cancel what was asked for, unless somebody else had asked for it before: then it is theirs."""
    if not handle.created:
        note(f"job {handle.id} goes on: another command has asked for it first")
        return
    await handle.cancel("interrupted")
    with suppress(JobFailed, JobCanceled, TimeoutError):
        await handle.result(timeout=CANCELED_WITHIN)


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


def _named(source: str, result: ClipResult) -> str:
    """Return what a clip is called in a folder of somebody: film-62.5-70.mp4."""
    path = Path(urlsplit(source).path) if is_address(source) else local_path(source)
    times = [f"{one:.3f}".rstrip("0").rstrip(".") for one in (result.asked_start, result.asked_end) if one is not None]
    return "-".join([path.stem[:LONGEST_NAME] or "clip", *times]) + f".{result.container}"


def _copied(media: Media, source: str, result: ClipResult, out: Path) -> Path:
    """Write a clip into a file, or into a folder: beside it first, then by one rename. Returns the file."""
    out = out / _named(source, result) if out.is_dir() else out
    work = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with media.storage.lend(result.key) as path:
            shutil.copyfile(path, work)
        work.replace(out)
    finally:
        work.unlink(missing_ok=True)
    return out


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
