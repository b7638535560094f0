"""Films for all tests of clips, made once, and a place to make clips in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Retry
from holdfast_media.clip.settings import ClipSettings
from holdfast_media.clip.task import ClipResult, declare
from holdfast_media.storage import storage_from
from tests.media.clip import films

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast import Task
    from holdfast_media.storage import Storage


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("films")


@pytest.fixture(scope="session")
def film(shelf: Path) -> Path:
    """180 frames, 30 a second, key frames 2.5 s apart, with sound."""
    return films.make(shelf / "film.mp4")


@pytest.fixture(scope="session")
def other_film(shelf: Path) -> Path:
    """Of half the rate: the frames of a stretch have other numbers."""
    return films.make(shelf / "other-rate.mp4", rate="15", seconds=3)


@pytest.fixture
def nobody() -> Any:
    """Never gives a reason to stop."""
    return lambda: None


@dataclass
class Studio:
    """An app that makes clips, and what it keeps."""

    app: Holdfast
    settings: ClipSettings
    storage: Storage
    folder: Path
    task: Task[..., ClipResult]

    @property
    def scratch(self) -> Path:
        return self.settings.scratch

    def published(self) -> list[str]:
        return sorted(stored.key for stored in self.storage.list("clips"))

    def media(self) -> list[str]:
        return [key for key in self.published() if key.endswith((".mp4", ".mkv"))]

    def left(self) -> list[str]:
        """What is left in scratch."""
        return sorted(str(path.relative_to(self.scratch)) for path in self.scratch.rglob("*")) if self.scratch.exists() else []

    def file_of(self, result: ClipResult) -> Path:
        return self.folder / result.key

    async def clip(self, *args: Any, **kwargs: Any) -> ClipResult:
        """Ask for a clip and have a worker make it."""
        handle = await self.task.enqueue(*args, **kwargs)
        async with self.app.worker(poll=0.05):
            return await handle.result(timeout=60)


@pytest.fixture
async def studio(tmp_path: Path) -> AsyncIterator[Studio]:
    made = build(tmp_path)
    yield made
    await made.app.close()


def build(home: Path, *, url: str | None = None, **changes: Any) -> Studio:
    folder = home / "storage"
    storage = changes.pop("kept_in", None) or storage_from(str(folder))
    app = Holdfast(url or f"sqlite:///{home}/jobs.db")
    settings = ClipSettings(storage=lambda: storage, scratch=home / "scratch", retry=Retry(max_attempts=3, initial=0.05))
    settings = replace(settings, **changes)
    return Studio(app, settings, storage, folder, declare(app, settings))
