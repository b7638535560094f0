"""An application at work: what tests ask of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast_media.errors import ENCODE_FAILED, MediaError, Stopped
from holdfast_media.tasks import encoding
from holdfast_media.tasks.work import EncodeResult
from holdfast_media.transcode import encode_chunks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from holdfast import Holdfast
    from holdfast_media import Media
    from holdfast_media.library import Video


@dataclass
class Studio:
    """An app with the media application, where its files are, and where the films are."""

    url: str
    folder: Path
    films: Path
    app: Holdfast
    media: Media
    patience: float = 240.0
    """Seconds that anything may take here: a busy machine is not a bug."""

    @property
    def film(self) -> Path:
        return self.films / "film.mp4"

    def home(self, video: Video) -> Path:
        return self.folder / "media" / "videos" / video.id

    def master(self, video: Video) -> Path:
        return self.home(video) / "master.m3u8"

    def worker(self, concurrency: int = 2) -> Any:
        return self.app.worker(concurrency=concurrency, poll=0.2)

    async def ended(self, video: Video) -> Video:
        """Wait until its newest version has ended, and return it then."""
        await self.until(lambda: self._ended(video.id))
        return await self.media.library.get(video.id)

    async def _ended(self, video_id: str) -> bool:
        newest = (await self.media.library.get(video_id)).newest
        return newest is not None and not newest.active

    async def until(self, question: Callable[[], Any]) -> None:
        """Ask until the answer is yes."""
        async with asyncio.timeout(self.patience):
            while True:
                answer = question()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.05)

    async def idle(self) -> None:
        """Wait until no job of the media application is waiting or running."""
        await self.until(self._idle)

    async def _idle(self) -> bool:
        return not (await self.app.stats())["live"]

    async def encodes(self, video: Video) -> list[EncodeResult]:
        """Return the results of all chunks of the newest version that are done."""
        newest = (await self.media.library.get(video.id)).newest
        assert newest is not None
        views = [view for ids in newest.jobs.encode.values() for view in await self.media.library.looking.jobs(ids)]
        return [msgspec.json.decode(view.result, type=EncodeResult) for view in views if view is not None and view.result]

    async def close(self) -> None:
        await self.media.close()
        await self.app.close()


@dataclass
class Encoder:
    """Stands before the real encoder: counts what it is asked for, and does something else for some of it."""

    monkeypatch: pytest.MonkeyPatch
    instead: Callable[[str, int, Callable[[], str | None]], None] = field(default=lambda *_: None)
    calls: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    """The qualities that it was asked for at once, and the chunk."""
    stopped: list[str] = field(default_factory=list)

    @property
    def asked(self) -> list[tuple[str, int]]:
        """Each quality and chunk."""
        return [(name, chunk) for names, chunk in self.calls for name in names]

    def __post_init__(self) -> None:
        def counted(source: Any, plan: Any, renditions: Any, chunk: Any, targets: Any, **options: Any) -> Any:
            self.calls.append((tuple(one.name for one in renditions), chunk.index))
            try:
                for rendition in renditions:
                    self.instead(rendition.name, chunk.index, options["stop"])
            except Stopped as error:
                self.stopped.append(error.reason)
                raise
            return encode_chunks(source, plan, renditions, chunk, targets, **options)

        self.monkeypatch.setattr(encoding, "encode_chunks", counted)


def failing(*names: str, at: int = 1) -> Callable[[str, int, Callable[[], str | None]], None]:
    """Fail for good in these qualities, in their second chunk."""

    def instead(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del stop
        if name in names and chunk == at:
            raise MediaError(ENCODE_FAILED, "the encoder gave up.")

    return instead
