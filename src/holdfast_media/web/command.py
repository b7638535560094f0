"""`holdfast media serve`: the dashboard, the media pages and workers in one process, for one machine with films."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from holdfast.server import ServerSettings, create_server, secured
from holdfast.server import serve as serve_on
from holdfast_media.cli.common import ERROR, OK, USAGE, Common, Flag, make_scratch, note, opened, processors
from holdfast_media.cli.finding import media_files
from holdfast_media.errors import MediaError
from holdfast_media.library import LibraryError
from holdfast_media.tasks.graph import RETRY_SHARE
from holdfast_media.transfer import add_transfer
from holdfast_media.web.pages import media_pages

if TYPE_CHECKING:
    from holdfast_media.media import Media


def serve(
    *sources: Path,
    url: str | None = None,
    root: Annotated[str | None, Parameter(name=("--storage", "--root"))] = None,
    host: str = "127.0.0.1",
    port: int = 7878,
    open: Flag = False,  # noqa: A002  the name of the flag
    trusted_proxies: str | None = None,
    workers: int | None = None,
    remote: Flag = False,
    ladder: str | None = None,
    encoder: str | None = None,
    together: bool | None = None,
    model: str | None = None,
) -> int:
    """Serve the library in a browser: titles, a player, uploads, the dashboard; and transcode in the same process.

    Example: holdfast media serve films/ --storage media

    Whoever comes logs in with a key (`holdfast keys add`) or the admin secret (HOLDFAST_ADMIN_SECRET); on a loopback address
    one is made for this run where there is neither. Ctrl-C ends it after what runs; what is left is done the next time.
    Encoders that reach nothing but this server work with it, too: see docs/media/remote-encoders.md.

    Parameters
    ----------
    sources
        Files, or folders of files, that are added to the library unless they are in it.
    url
        The store of jobs and videos. Else HOLDFAST_URL, else `url` in holdfast.toml, else a file in the storage's folder.
    root
        Where all that is made is kept: a folder, or s3://bucket/prefix. Else HOLDFAST_MEDIA_STORAGE, else `media`.
    host
        The address to listen on.
    port
        The port; 0 is any that is free.
    open
        Let everybody in who reaches it: on a loopback address alone.
    trusted_proxies
        Addresses and networks of proxies, separated by commas, that are believed when they say for whom they ask, and
        whether by HTTPS. Else HOLDFAST_TRUSTED_PROXIES, else none is.
    workers
        How many jobs run at once in this process; 0 leaves the work to other workers.
    remote
        Leave the encoding to remote encoders; files are copied into the storage, where they get them.
    ladder
        The qualities: `default`, or a TOML file (see `holdfast media ladder`).
    encoder
        auto, x264, nvenc, qsv, vaapi or videotoolbox.
    together
        Encode each chunk in all qualities at once, which is the least work: there is something to watch when the last chunk is
        encoded. `--no-together`: quality by quality, the smallest first, which plays while the others are made.
    model
        What writes down what is said, where that is asked for: a model of faster-whisper, or a folder with one (extra
        `speech`). Else HOLDFAST_MEDIA_SPEECH_MODEL.
    """
    if workers is not None and workers < 0:
        note(f"error: --workers must be 0 or more, not {workers}")
        return USAGE
    slots = max(1, processors()) if workers is None else workers
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        options = {"ladder": _path(ladder), "encoder": encoder, "together": together, "speech_model": model}
        media = opened(Common(url=url, out=root), create=True, **options)
        make_scratch(media.settings.scratch)
        if media.transcriber is not None and not remote:
            media.transcriber.check()
        given = ServerSettings(
            host=host,
            port=port,
            admin_secret=os.environ.get("HOLDFAST_ADMIN_SECRET"),
            open=open,
            trusted_proxies=_split(trusted_proxies or os.environ.get("HOLDFAST_TRUSTED_PROXIES", "")),
        )
        settings, made = secured(media.app.url, given)
        if sources:
            asyncio.run(_add(media, sources, ladder=_path(ladder), copy=remote))
    except LibraryError as error:
        note(f"error: {error}")
        return USAGE
    except MediaError as error:
        note(f"error: {error}")
        return ERROR
    queues = [media.settings.queue, media.settings.clip_queue, *([] if remote else [media.settings.encode_queue])]
    server = create_server(
        media.app,
        settings,
        worker={"concurrency": slots, "queues": queues, "retry_share": RETRY_SHARE} if slots else None,
        extensions=[media_pages(media, uploads=_growing(media, "uploads"))],
    )
    add_transfer(server, media.storage, _growing(media, "transfers"), grants=media.grants)

    def told(address: str) -> None:
        note(f"watch on {address}/media, the dashboard is {address}/")
        if made is not None:
            note(f"the admin secret of this run: {made}")

    serve_on(server, told=told)
    return OK


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _path(ladder: str | None) -> str | None:
    return ladder if ladder in (None, "default") else str(Path(ladder or "").expanduser().absolute())


def _growing(media: Media, name: str) -> Path:
    """Return a folder on the storage's own file system, so that what has grown there is moved and not copied."""
    storage: Any = media.storage
    return storage.folder / f".{name}" if hasattr(storage, "folder") else media.settings.scratch / name


async def _add(media: Media, sources: tuple[Path, ...], *, ladder: str | None, copy: bool) -> None:
    """Add files that the library does not have yet; they keep a ladder that was named for them."""
    storage: Any = media.storage
    try:
        for file in media_files(sources, but=getattr(storage, "folder", None)):
            await media.library.add(file, reference=f"file:{file}", title=file.stem, ladder=ladder, copy=copy)
    finally:
        await media.library.close()
