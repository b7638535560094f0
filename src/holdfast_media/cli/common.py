"""What the commands of `holdfast media` share: the library they talk to, how they print, how mistakes are told."""

import asyncio
import getpass
import os
import re
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from cyclopts import Parameter

from holdfast import BadSetting, Holdfast, HoldfastError
from holdfast_media.clip.scratch import own
from holdfast_media.errors import LADDER_INVALID, MediaError
from holdfast_media.library import BadRequest, VideoNotFound
from holdfast_media.media import Media

T = TypeVar("T")

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
INTERRUPTED: Final = 130
OTHER_FOLDER: Final = "name another folder: --storage, or HOLDFAST_MEDIA_STORAGE"
OTHER_SCRATCH: Final = "name another folder: HOLDFAST_MEDIA_SCRATCH"
OWN_DATABASE: Final = ".holdfast.db"
"""In the folder of the storage: the jobs and videos of those who named no store."""
_PASSWORD: Final = re.compile(r"(//[^/@:]*):[^/@]*@")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """The options that every command about the library has."""

    url: str | None = None
    """The store of jobs and videos. Else HOLDFAST_URL, else `url` in holdfast.toml, else a file in the storage's folder."""

    out: Annotated[str | None, Parameter(name=("--storage", "--out"))] = None
    """Where all that is made is kept: a folder, or s3://bucket/prefix. Else HOLDFAST_MEDIA_STORAGE, else `media`."""

    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False
    """Print JSON: stable keys, ISO times."""


COMMON: Final = Common()
Flag = Annotated[bool, Parameter(negative="")]
"""A flag that is on or left out."""


def run(common: Common, work: Callable[[Media], Awaitable[int | None]], *, create: bool = False, **options: Any) -> int:
    """Run `work` with the media application of the command line; returns the exit code.

    `create` makes the file of a store that nobody named; without it such a file must be there.
    """
    try:
        media = opened(common, create=create, **options)
        return asyncio.run(_within(media, work)) or OK
    except VideoNotFound as error:
        note(f"error: {error}")
        return NOT_FOUND
    except BadRequest as error:
        note(f"error: {error}")
        return USAGE
    except MediaError as error:
        note(f"error: {error}")
        return USAGE if error.code == LADDER_INVALID else ERROR  # the ladder was named here
    except (HoldfastError, TimeoutError, BrokenPipeError):
        raise  # told where all commands end; some of them are errors of the system too
    except OSError as error:
        note(f"error: {refused(error)}. Fix: mend that, or name another file or folder")
        return ERROR


def refused(error: OSError) -> str:
    """Return what the system did not do, as one says it: the file, and why."""
    why = error.strerror or str(error)
    return why if error.filename is None else f"{error.filename}: {why}"


def opened(common: Common, *, create: bool, **options: Any) -> Media:
    """Return the media application on the store and storage that the command line and the settings name."""
    url = named_store(common.url)
    media = Media(Holdfast(url or "sqlite:///unused.db"), storage=common.out, **options)
    folder = local_folder(media.settings.storage)
    if folder is not None and os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112  never raise
        raise BadSetting(f"{folder} is a file, not a folder. Fix: {OTHER_FOLDER}")
    if url is not None:
        return media
    if folder is None:
        raise BadSetting(
            "which store? The output goes elsewhere, so the jobs need a place of their own. Say it in one of three ways:\n"
            "  --url sqlite:///jobs.db\n  export HOLDFAST_URL=postgresql://user@host/database\n"
            '  url = "…" in holdfast.toml'
        )
    if create and (why := made(folder)):
        raise BadSetting(f"{why}. Fix: {OTHER_FOLDER}")
    if not create and not (folder / OWN_DATABASE).exists():
        raise BadSetting(
            f"there is no library here: neither --url, HOLDFAST_URL nor holdfast.toml name a store, and {folder} has none. "
            f"Begin with: {command(common, 'transcode', 'FILE')}"
        )
    return Media(Holdfast(f"sqlite:///{folder / OWN_DATABASE}"), root=folder, **options)


def local_folder(storage: str) -> Path | None:
    """Return the folder of a storage; `None`: it is elsewhere."""
    path = storage.removeprefix("file://")
    return None if "://" in path else Path(path).expanduser().absolute()


def made(folder: Path) -> str:
    """Make a folder unless it is there; returns why nothing can be written into it, empty: something can."""
    if why := unusable(folder):
        return why
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return refused(error)
    return ""


def unusable(folder: Path) -> str:
    """Return why nothing can be written into a folder, which is there or would be made; empty: nothing speaks against it."""
    there = nearest(folder)
    if not there.is_dir():
        return f"{there} is a file, not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"nothing may be written into {there}"


def make_scratch(folder: Path) -> None:
    """Make the folder that jobs work in unless it is there; raises `BadSetting` where nobody could work."""
    try:
        why = unusable(folder)
        if not why:
            own(folder)
    except OSError as error:
        why = refused(error)
    if why:
        raise BadSetting(f"{why}. Fix: {OTHER_SCRATCH}")


def nearest(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that is there."""
    while not os.path.lexists(folder):
        folder = folder.parent
    return folder


def named_store(said: str | None) -> str | None:
    """Return the store that was said, or that the settings name; `None`: nobody named one."""
    if said is not None:
        return said
    try:
        return Holdfast().url
    except BadSetting:
        return None


async def _within(media: Media, work: Callable[[Media], Awaitable[int | None]]) -> int | None:
    try:
        return await work(media)
    finally:
        await media.close()
        await media.app.close()


def actor() -> str:
    """Return who acts, for the audit log: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for its user
        user = "cli"
    return f"{user}@{socket.gethostname()}"


def command(common: Common, *words: str) -> str:
    """Return a command to be typed here, with the options that this one needed to find the library."""
    said = [] if common.out is None else ["--storage", common.out]
    if common.url is not None:
        said += ["--url", without_password(common.url)]
    return shlex.join(["holdfast", "media", *words, *said])


def without_password(url: str) -> str:
    """Return the URL of a store as it may be printed: what is printed ends in logs."""
    return _PASSWORD.sub(r"\1:***@", url)


# --- printing -------------------------------------------------------------------------------------------------------------


def interactive() -> bool:
    """Tell whether a person looks at standard output."""
    return sys.stdout.isatty()


def note(text: str) -> None:
    """Say something that is not the result, on standard error."""
    print(text, file=sys.stderr)


def print_json(value: object) -> None:
    """Write one JSON document."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, empty: str) -> None:
    """Draw a table on a terminal; write tab-separated lines elsewhere."""
    if not interactive():
        for row in rows:
            print("\t".join(harmless(text) for text in row))
        return
    if not rows:
        print(empty)
        return
    from rich.console import Console  # noqa: PLC0415  takes longer to load than most commands take to run
    from rich.table import Table  # noqa: PLC0415  as above
    from rich.text import Text  # noqa: PLC0415  as above

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(text), style=STYLES.get(text, "")) for text in row))
    Console(highlight=False).print(table)


STYLES: Final = {
    "pending": "cyan",
    "processing": "yellow",
    "ready": "green",
    "failed": "bold red",
    "canceled": "dim",
    "replaced": "dim",
    "ok": "green",
    "warn": "bold yellow",
    "fail": "bold red",
}


def harmless(text: str) -> str:
    """Return a text without characters that a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter == " " else "\N{REPLACEMENT CHARACTER}" for letter in text)


def sentence(text: str) -> str:
    """Return a text that ends as a sentence does, once."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def counted(count: int, noun: str, several: str = "") -> str:
    """Return how many there are: 1 chunk, 2 chunks; `several` where an s is not enough."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or noun + 's'}"


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
