"""`holdfast media serve`: the dashboard, the media pages and workers in one process, for one machine with films."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.server import ServerSettings, create_server, secured
from holdfast.server import serve as serve_on
from holdfast_media.cli.common import ERROR, OK, USAGE, Common, Flag, note, opened, processors
from holdfast_media.cli.finding import media_files
from holdfast_media.errors import MediaError
from holdfast_media.library import LibraryError
from holdfast_media.web.pages import media_pages

if TYPE_CHECKING:
    from holdfast_media.media import Media


def serve(
    *sources: Path,
    url: str | None = None,
    root: str | None = None,
    host: str = "127.0.0.1",
    port: int = 7878,
    open: Flag = False,  # noqa: A002  the name of the flag
    workers: int | None = None,
    ladder: str | None = None,
    encoder: str | None = None,
) -> int:
    """Serve the library in a browser: titles, a player, uploads, the dashboard; and transcode in the same process.

    Example: holdfast media serve films/ --root media

    Whoever comes logs in with a key (`holdfast keys add`) or the admin secret (HOLDFAST_ADMIN_SECRET); on a loopback address
    one is made for this run where there is neither. Ctrl-C ends it after what runs; what is left is done the next time.

    Parameters
    ----------
    sources
        Files, or folders of files, that are added to the library unless they are in it.
    url
        The store of jobs and videos. Else HOLDFAST_URL, else `url` in holdfast.toml, else a file in the root.
    root
        Where the output goes: a folder, or s3://bucket/prefix. Else HOLDFAST_MEDIA_STORAGE, else `media`.
    host
        The address to listen on.
    port
        The port; 0 is any that is free.
    open
        Let everybody in who reaches it: on a loopback address alone.
    workers
        How many jobs run at once in this process; 0 leaves the work to other workers.
    ladder
        The qualities: `default`, or a TOML file (see `holdfast media ladder`).
    encoder
        auto, x264, nvenc, qsv, vaapi or videotoolbox.
    """
    if workers is not None and workers < 0:
        note(f"error: --workers must be 0 or more, not {workers}")
        return USAGE
    slots = max(1, processors()) if workers is None else workers
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        media = opened(Common(url=url, out=root), create=True, ladder=_path(ladder), encoder=encoder)
        secret = os.environ.get("HOLDFAST_ADMIN_SECRET")
        settings, made = secured(media.app.url, ServerSettings(host=host, port=port, admin_secret=secret, open=open))
        if sources:
            asyncio.run(_add(media, sources))
    except LibraryError as error:
        note(f"error: {error}")
        return USAGE
    except MediaError as error:
        note(f"error: {error}")
        return ERROR
    queues = [media.settings.queue, media.settings.encode_queue, media.settings.clip_queue]
    server = create_server(
        media.app,
        settings,
        worker={"concurrency": slots, "queues": queues} if slots else None,
        extensions=[media_pages(media, uploads=_uploads(media))],
    )

    def told(address: str) -> None:
        note(f"watch on {address}/media, the dashboard is {address}/")
        if made is not None:
            note(f"the admin secret of this run: {made}")

    serve_on(server, told=told)
    return OK


def _path(ladder: str | None) -> str | None:
    return ladder if ladder in (None, "default") else str(Path(ladder or "").expanduser().absolute())


def _uploads(media: Media) -> Path | None:
    """Return a folder on the storage's own file system, so that an upload is moved there and not copied."""
    storage: Any = media.storage
    return storage.folder / ".uploads" if hasattr(storage, "folder") else None


async def _add(media: Media, sources: tuple[Path, ...]) -> None:
    """Add files that the library does not have yet."""
    storage: Any = media.storage
    try:
        for file in media_files(sources, but=getattr(storage, "folder", None)):
            await media.library.add(file, reference=f"file:{file}", title=file.stem)
    finally:
        await media.library.close()
