"""From what somebody calls a source to a file here, and to its identity, from which recipes are made."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast_media import ffmpeg, room
from holdfast_media.clip import ytdlp
from holdfast_media.clip.addresses import networks
from holdfast_media.clip.fetching import Download, Limits, download, note_of
from holdfast_media.clip.gate import gate
from holdfast_media.errors import (
    BAD_SOURCE,
    INPUT_CHANGED,
    INPUT_EMPTY,
    INPUT_MISSING,
    SOURCE_NOT_FOUND,
    SOURCE_REFUSED,
    SOURCE_TOO_LARGE,
    MediaError,
    Stopped,
)
from holdfast_media.source import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast_media.clip.scratch import Scratch
    from holdfast_media.clip.settings import ClipSettings

PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})
"""Kinds of content that are no video, but may show one."""
AROUND: Final = 10 * 1024**2
"""Bytes of a page, and of what comes with a video, that are not counted among its own; with a twentieth of those."""
PARTIAL: Final = "source.part"
"""The file that a download is written into."""
FETCHED: Final = "source-"
"""The same when it is complete; its identity follows, so that no attempt takes one file for another."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A source that was found: all that a later attempt needs to know of it."""

    identity: str
    """The same for the same bytes; part of every recipe."""
    size: int | None
    modified: int | None = None
    """Of a local file: when it was changed, in nanoseconds."""


@dataclass(slots=True)
class Source:
    """A source: its identity at once, its file when it is asked for. Nothing is fetched that is not needed."""

    resolved: Resolved
    fetch: Callable[[Callable[[float], None]], Path]
    """Gives the file; fetches it where it is not here."""
    path: Path | None = None
    """Of a local source, as it was named; `None`: it comes from elsewhere."""

    def check_unchanged(self) -> None:
        """Raise `INPUT_CHANGED` when the local file is another than it was."""
        if self.path is not None and _version(_looked_at(self.path)) != (self.resolved.size, self.resolved.modified):
            raise MediaError(INPUT_CHANGED, "the source was changed while it was being cut; ask again when it is complete")


def is_address(source: str) -> bool:
    """Tell whether a source is behind http or https."""
    return source.lower().startswith(("http://", "https://"))


def local_path(source: str) -> Path:
    """Return the path of a local source; raises `BAD_SOURCE` for what is none."""
    if source.lower().startswith("file:"):
        parts = urlsplit(source)
        if parts.netloc not in {"", "localhost"}:
            raise MediaError(BAD_SOURCE, "a file: address with a host is on another machine")
        source = unquote(parts.path)
    path = Path(source)
    if not path.is_absolute():
        raise MediaError(BAD_SOURCE, "a source must be an http(s) address or a whole path: a worker has another working folder")
    return path


@contextmanager
def resolve(
    source: str,
    place: Scratch,
    settings: ClipSettings,
    *,
    earlier: Resolved | None,
    stop: Callable[[], str | None],
    on_progress: Callable[[float], None],
) -> Iterator[Source]:
    """Find a source. `earlier` is what an attempt before has found out.

    Raises `Stopped` and `MediaError`: what `fetching` and `ytdlp` say, `BAD_SOURCE`, `INPUT_MISSING`, `INPUT_EMPTY`, and
    `DISK_FULL` before it is fetched.
    """
    if not is_address(source):
        path = local_path(source)
        yield Source(_local(path, settings, earlier, stop), lambda _: path, path)
        return
    if earlier is not None and (kept := place.done / f"{FETCHED}{earlier.identity}").is_file():
        yield Source(earlier, lambda _: kept)
        return
    limits = Limits(
        max_bytes=settings.max_bytes,
        timeout=settings.fetch_timeout,
        stall=settings.fetch_stall,
        networks=networks(settings.networks),
    )
    with download(source, limits, stop) as coming:
        if coming.head.content_type in PAGES:
            coming.close()
            yield _here(_from_page(source, place, settings, stop, on_progress), place, stop)
        elif coming.head.etag is not None:
            # a strong ETag says as much about the bytes as a hash does, and says it before they are fetched
            known = f"{source}\n{coming.head.etag}\n{coming.head.size}"
            name = "etag-" + hashlib.sha256(known.encode()).hexdigest()
            yield Source(
                Resolved(identity=name, size=coming.head.size),
                lambda tell: place.finish(_fetched(coming, place, settings, tell), f"{FETCHED}{name}"),
            )
        else:
            yield _here(_fetched(coming, place, settings, on_progress), place, stop)


def _local(path: Path, settings: ClipSettings, earlier: Resolved | None, stop: Callable[[], str | None]) -> Resolved:
    if settings.folders is not None:
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(os.path.realpath(folder)) for folder in settings.folders):
            raise MediaError(SOURCE_REFUSED, "the source is not in one of the folders that sources may be in")
    size, modified = _version(_looked_at(path))
    if not size:
        raise MediaError(INPUT_EMPTY, "the source has no bytes")
    if earlier is not None and (earlier.size, earlier.modified) == (size, modified):
        return earlier
    return Resolved(identity=identity(path, stop=stop), size=size, modified=modified)


def _looked_at(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MediaError(INPUT_MISSING, "there is no such file on this machine") from None
    except OSError as error:
        raise MediaError(INPUT_MISSING, f"the source cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise MediaError(BAD_SOURCE, "the source is no plain file")
    if not os.access(path, os.R_OK):
        raise MediaError(INPUT_MISSING, "the source may not be read")
    return status


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _here(work: Path, place: Scratch, stop: Callable[[], str | None]) -> Source:
    """Return a source whose identity is known only now that all of it is here."""
    found = Resolved(identity=identity(work, stop=stop), size=work.stat().st_size)
    made = place.finish(work, f"{FETCHED}{found.identity}")
    return Source(found, lambda _: made)


def _fetched(coming: Download, place: Scratch, settings: ClipSettings, on_progress: Callable[[float], None]) -> Path:
    _check_room(coming.head.size or 0, place, settings)
    earlier = place.left_by_others(PARTIAL)
    work = place.work(PARTIAL)
    try:
        coming.into(work, earlier=earlier[0] if earlier else None, on_progress=on_progress)
    except BaseException:
        place.keep(work, note_of(work))
        raise
    if work.stat().st_size == 0:
        raise MediaError(SOURCE_NOT_FOUND, "the server sent a file without a byte")
    return work


def _check_room(needed: int, place: Scratch, settings: ClipSettings) -> None:
    """Raise `DISK_FULL` when what is about to be fetched would not fit; nobody says of every source how large it is."""
    room.check_room(needed, settings.reserve, [("scratch", room.free_bytes(place.folder))])


def _from_page(
    url: str,
    place: Scratch,
    settings: ClipSettings,
    stop: Callable[[], str | None],
    on_progress: Callable[[float], None],
) -> Path:
    _check_room(0, place, settings)
    most = settings.max_bytes
    with gate(networks(settings.networks), most + most // 20 + AROUND) as proxy:
        made = None
        try:
            made = ytdlp.fetch(
                url,
                place.folder,
                program=ytdlp.find_ytdlp(settings.ytdlp),
                proxy=proxy.address,
                ffmpeg=settings.ffmpeg or ffmpeg.find_ffmpeg(),
                wanted=settings.ytdlp_format,
                max_bytes=most,
                timeout=settings.ytdlp_timeout,
                on_progress=on_progress,
                stop=lambda: stop() or ("too many bytes" if proxy.exceeded else None),
            )
        except (MediaError, Stopped):
            if not proxy.exceeded or stop() is not None:
                raise
        if made is None or proxy.exceeded:  # also when it believes that it has it all: what was ended looks like the end
            raise MediaError(SOURCE_TOO_LARGE, f"more came than the {most:,} bytes that a video may have")
        return made
