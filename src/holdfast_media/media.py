"""The media application on an app: `Media(app)` declares its tasks and has the library."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from holdfast import BadSetting
from holdfast_media import settings as configuration
from holdfast_media.clip.task import declare as declare_clip
from holdfast_media.clip.wiring import settings_for
from holdfast_media.library import Library
from holdfast_media.library.grid import Grids
from holdfast_media.storage import storage_from
from holdfast_media.tasks.declaring import declare
from holdfast_media.tasks.granting import grants

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Self

    from holdfast import Holdfast
    from holdfast_media.library import Version
    from holdfast_media.library.grid import Grid
    from holdfast_media.speech.transcript import Transcriber
    from holdfast_media.storage import Storage
    from holdfast_media.transfer.grants import Grants


_KNOWN: WeakKeyDictionary[Holdfast, ref[Media]] = WeakKeyDictionary()


def media_of(app: Holdfast) -> Media | None:
    """Return the media application that was made on an app; `None`: none was."""
    known = _KNOWN.get(app)
    return None if known is None else known()


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
        self.transcriber = transcriber
        self._storage = None if storage is None or isinstance(storage, str) else storage
        self.tasks = declare(app, self)
        self.clip = declare_clip(app, settings_for(self))
        self.library = Library(app, self.tasks.prepare, self.tasks.tidy)
        self._grids = Grids(self.library.looking)
        app.lifespan(self._alongside)
        _KNOWN[app] = ref(self)

    @property
    def storage(self) -> Storage:
        """Where artifacts are; opened when it is first used."""
        if self._storage is None:
            self._storage = storage_from(self.settings.storage)
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
        """Have the tables made when a worker starts; one behind a server has no database, and needs none."""
        if not self.app.url.startswith(("http://", "https://")):
            await self.library.database.make()
        try:
            yield
        finally:
            await self.library.database.close()

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
