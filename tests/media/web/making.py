"""A library with a title that is ready, made once and copied; and the application on it as pages see it."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast_media import Media, VersionState
from tests.media.tasks.films import film, ladder

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 8
TITLE = "Otters at dusk"
CAPTIONS = "WEBVTT\n\n00:00.000 --> 00:08.000\nAn otter says hello.\n"


@dataclass
class Made:
    """Where everything is."""

    folder: Path
    video_id: str = ""

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'jobs.db'}"

    @property
    def root(self) -> Path:
        return self.folder / "media"

    def media(self, app: Holdfast, films: Path, **options: Any) -> Media:
        settings: dict[str, Any] = {
            "root": self.root,
            "scratch": self.folder / "scratch",
            "ladder": films / "ladder.toml",
            "reserve": 0,
            "chunk_seconds": 2,
            "segment_seconds": 2,
            "together": False,
            "retry_after": 0.05,
            "attempts": 3,
            "threads": 1,
            "lease": 6,
        }
        return Media(app, **(settings | options))

    def copied(self, folder: Path) -> Made:
        """Return the same somewhere else, for a test to change."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Made(folder, self.video_id)


def make_films(folder: Path) -> Path:
    film(folder / "otters.mp4", seconds=SECONDS)
    film(folder / "other.mp4", seconds=4)
    ladder(folder / "ladder.toml", ("180p", 180, True), ("90p", 90, False))
    return folder


def make(folder: Path, films: Path) -> Made:
    """Transcode a film, with subtitles as if somebody had transcribed it."""
    made = Made(folder)
    app = Holdfast(made.url)
    media = made.media(app, films)

    async def work() -> None:
        async with app.worker(concurrency=2, poll=0.1):
            video = await media.library.add(films / "otters.mp4", title=TITLE, ladder=str(films / "ladder.toml"))
            async with asyncio.timeout(240):
                # a row of a database tells nobody that it has changed
                while (newest := (await media.library.get(video.id)).newest) is None or newest.active:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert newest.state is VersionState.READY, newest
            made.video_id = video.id
        await media.close()
        await app.close()

    asyncio.run(work())
    return made
