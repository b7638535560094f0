"""The media application on an app: `Media(app)` declares its tasks and has the library."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

from holdfast import BadSetting
from holdfast_media import settings as configuration
from holdfast_media.clip.scratch import own
from holdfast_media.clip.scratch import sweep as sweep_scratch
from holdfast_media.clip.task import declare as declare_clip
from holdfast_media.clip.wiring import settings_for
from holdfast_media.errors import MediaError
from holdfast_media.ffmpeg import SOFTWARE, capabilities, find_ffmpeg
from holdfast_media.library import Library
from holdfast_media.library.grid import Grids
from holdfast_media.storage import storage_from
from holdfast_media.tasks.declaring import declare
from holdfast_media.tasks.granting import grants

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType
    from typing import Self

    from holdfast import Holdfast
    from holdfast_media.library import Version
    from holdfast_media.library.grid import Grid
    from holdfast_media.speech.transcript import Transcriber
    from holdfast_media.storage import Storage
    from holdfast_media.transfer.grants import Grants


P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("holdfast.media")

LEFT_ALONE: Final = 24 * 3600.0
"""Seconds after which a folder of an attempt that nothing has touched is nobody's."""
SWEEP_EVERY: Final = 3600.0

_KNOWN: WeakKeyDictionary[Holdfast, ref[Media]] = WeakKeyDictionary()


def media_of(app: Holdfast) -> Media | None:
    """Return the media application that was made on an app; `None`: none was."""
    known = _KNOWN.get(app)
    return None if known is None else known()


async def _apart(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run blocking code in a thread of its own, which ends with it: one of the event loop's would outlive the worker."""
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        return await asyncio.wrap_future(pool.submit(function, *args, **kwargs))
    finally:
        pool.shutdown(wait=False)


def _hardware(ffmpeg: str | None) -> frozenset[str]:
    """Return what encodes in hardware; a machine without an ffmpeg still serves what needs none."""
    try:
        return capabilities(find_ffmpeg(ffmpeg))
    except MediaError as error:
        logger.warning("what encodes here is not known. %s", error)
        return frozenset()


def _transcriber(model: str | None) -> Transcriber | None:
    """Return who writes down what is said, by the settings; `None`: nobody does. What it needs is looked for when it works."""
    if model is None:
        return None
    from holdfast_media.speech.whisper import transcriber_of  # noqa: PLC0415  most applications have none

    return transcriber_of(model)


class Media:
    """Videos that are transcoded by the workers of an app.

        app = Holdfast("sqlite:///jobs.db")
        media = Media(app, root="media")

    Then `holdfast worker mymedia:app` does the work, and `await media.library.add("film.mp4")` asks for it. Whatever is not
    given here is as `HOLDFAST_MEDIA_…` or the table `[media]` of holdfast.toml says. Raises `BadSetting`.
    """

    def __init__(
        self,
        app: Holdfast,
        *,
        root: str | os.PathLike[str] | None = None,
        storage: Storage | str | None = None,
        transcriber: Transcriber | None = None,
        **options: Any,
    ) -> None:
        """Declare the tasks; `options` are those of `holdfast_media.settings.Settings`."""
        if root is not None and storage is not None:
            raise BadSetting("give root= (a folder) or storage= (a URL, or a storage of your own), not both")
        named = storage if isinstance(storage, str) else root
        self.app = app
        self.settings = configuration.load({**options, "storage": named})
        self.transcriber = _transcriber(self.settings.speech_model) if transcriber is None else transcriber
        self._storage = None if storage is None or isinstance(storage, str) else storage
        self.tasks = declare(app, self)
        self.clip = declare_clip(app, settings_for(self))
        self.library = Library(app, self.tasks.prepare, self.tasks.tidy, segment_seconds=self.settings.segment_seconds)
        self._grids = Grids(self.library.looking)
        app.lifespan(self._alongside)
        app.capabilities(self._found)
        _KNOWN[app] = ref(self)

    @property
    def storage(self) -> Storage:
        """Where artifacts are; opened when it is first used."""
        if self._storage is None:
            self._storage = storage_from(self.settings.storage, cache=self.settings.cache)
        return self._storage

    @property
    def grants(self) -> Grants:
        """What remote encoders may use of the storage, by the args of their jobs: for `transfer.with_transfer`."""
        return grants

    async def grid(self, version: Version | str) -> Grid:
        """Return the quality x chunk grid of a version, from its jobs as they stand. Cheap: ask as often as you draw.

        Given the version itself, one question is asked; given its id, one more. A version that is not planned yet has no rows:
        read it again with `library.version(id)`.
        """
        if isinstance(version, str):
            found = await self.library.version(version)
            if found is None:
                raise BadSetting(f"there is no version {version}")
            version = found
        return await self._grids.read(version)

    @asynccontextmanager
    async def _alongside(self) -> AsyncIterator[None]:
        """Have the tables made when a worker starts, where it has a database, and what others left on its disk swept.

        Raises `BadSetting` when somebody else owns the folder that it would work in.
        """
        own(self.settings.scratch)
        if not self.app.url.startswith(("http://", "https://")):
            await self.library.database.make()
        sweeping = asyncio.create_task(self._sweep_scratch(), name="holdfast-media-scratch")
        try:
            yield
        finally:
            sweeping.cancel()
            await asyncio.wait({sweeping})
            await self.library.database.close()

    async def _sweep_scratch(self) -> None:
        """Remove what killed workers have left on this machine, now and every hour: no job can do that for another machine."""
        while True:
            try:
                await _apart(sweep_scratch, self.settings.scratch, LEFT_ALONE)
            except OSError as error:
                logger.warning("what killed workers have left could not be removed: %s", error.strerror)
            await asyncio.sleep(SWEEP_EVERY)

    async def _found(self) -> frozenset[str]:
        """Return what this machine encodes with in hardware: by a trial encode, where it is not said that none is wanted."""
        if self.settings.encoder == SOFTWARE:
            return frozenset()
        return await _apart(_hardware, self.settings.ffmpeg)

    async def close(self) -> None:
        """Let go of what this event loop has open, and of the storage. Safe to call again; use opens it anew."""
        await self.library.close()
        if self._storage is not None:
            self._storage.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
