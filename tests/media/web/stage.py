"""The media pages as somebody sees them: a server that runs, a browser that has logged in, and an encoder that can be held."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast_media.errors import ENCODE_KILLED, MediaError, Stopped
from holdfast_media.ffmpeg import Progress
from holdfast_media.storage import storage_from
from holdfast_media.tasks import encoding
from holdfast_media.transcode import encode_chunks
from tests.media.web.making import CAPTIONS, Made

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    import pytest
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page

    from holdfast import Holdfast
    from holdfast_media import Media, Video
    from tests.server.ui.serving import Served


@dataclass
class Stage:
    """A library behind its pages."""

    made: Made
    films: Path
    serving: Served
    app: Holdfast
    media: Media
    context: BrowserContext
    heard: list[str] = field(default_factory=list)
    """What pages complained of."""

    @property
    def url(self) -> str:
        return self.serving.url

    def do(self, coroutine: Awaitable[Any]) -> Any:
        """Run something on the loop of the server."""

        async def work() -> Any:
            return await coroutine

        return self.serving.run(work(), 60)

    def add(self, film: str, title: str, **options: Any) -> Video:
        video: Video = self.do(self.media.library.add(self.films / film, title=title, **options))
        return video

    def worker(self, **options: Any) -> Callable[[], None]:
        """Start a worker on the loop of the server; returns what stops it."""
        stop, up = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with self.app.worker(poll=0.2, **options):
                up.set()
                await stop.wait()

        async def begin() -> asyncio.Task[None]:
            task = asyncio.create_task(work())
            await up.wait()
            return task

        task = self.serving.run(begin())

        async def end() -> None:
            stop.set()
            await task

        return lambda: self.serving.run(end(), 60)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.heard.append(message.text)

    def page(self, path: str) -> Page:
        page = self.context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.goto(f"{self.url}{path}")
        return page


async def warm(size: int = 4) -> None:
    """Have the threads of this loop begin now: begun later, they would look like those that a test has left behind."""
    barrier = threading.Barrier(size)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(size))
    await asyncio.gather(*(asyncio.to_thread(barrier.wait) for _ in range(size)))


def until(page: Page, question: str, timeout: float = 60.0) -> None:
    """Ask a page until the answer is yes. (Playwright's own way evaluates text in the page, which its policy forbids.)"""
    end = time.monotonic() + timeout
    while not page.evaluate(question):
        assert time.monotonic() < end, f"never: {question}"
        page.wait_for_timeout(50)


@dataclass
class Held:
    """Stands before the real encoder, and holds it until it is told to go on."""

    monkeypatch: pytest.MonkeyPatch
    holds: set[str] = field(default_factory=set)
    """Qualities whose chunks stand still half-way."""
    first: int = 0
    """The chunk that this begins with."""
    kills: set[tuple[str, int]] = field(default_factory=set)
    """Chunks whose first attempt fails as if ffmpeg had been killed."""
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        def held(source: Any, plan: Any, renditions: Any, chunk: Any, targets: Any, **options: Any) -> Any:
            (rendition,) = renditions
            if (rendition.name, chunk.index) in self.kills:
                self.kills.discard((rendition.name, chunk.index))
                raise MediaError(ENCODE_KILLED, "ffmpeg was killed.")
            if rendition.name in self.holds and chunk.index >= self.first:
                share = 0.35 + 0.15 * (chunk.index - self.first)
                options["on_progress"](Progress(fraction=share, seconds=0.0, frames=0, speed=None, remaining=None))
                while not self.gate.wait(0.05):
                    if reason := options["stop"]():
                        raise Stopped(reason)
            return encode_chunks(source, plan, renditions, chunk, targets, **options)

        self.monkeypatch.setattr(encoding, "encode_chunks", held)


def with_captions(made: Made) -> None:
    """Give the title subtitles, as if somebody had transcribed it."""
    key = f"videos/{made.video_id}/captions-0123456789abcdef.vtt"
    path = made.folder / "captions.vtt"
    path.write_text(CAPTIONS)
    storage_from(str(made.root)).put(key, path)
    with _connected(made) as connection:
        (text,) = connection.execute("SELECT result FROM media_version").fetchone()
        result = msgspec.json.decode(text) | {"captions": key}
        connection.execute("UPDATE media_version SET result = ?", (msgspec.json.encode(result).decode(),))


class _connected:  # noqa: N801  read as a verb
    def __init__(self, made: Made) -> None:
        self._connection = sqlite3.connect(made.folder / "jobs.db")

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.commit()
        self._connection.close()


def lines_of(text: str) -> Iterator[str]:
    """Return what a playlist names: other playlists and segments."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield line
        elif 'URI="' in line:
            yield line.partition('URI="')[2].partition('"')[0]
