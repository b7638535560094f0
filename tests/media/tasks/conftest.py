"""A film, a ladder of two small qualities, and an application whose jobs are retried at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.media.tasks.films import film, ladder
from tests.media.tasks.making import made_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.media.tasks.studio import Studio


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the films are that several tests use: each is made once."""
    folder = tmp_path_factory.mktemp("films")
    film(folder / "film.mp4", seconds=6)
    ladder(folder / "ladder.toml", ("180p", 180, True), ("90p", 90, False))
    return folder


@pytest.fixture(scope="session")
def silent(films: Path) -> Path:
    """A film of two chunks, without sound."""
    return film(films / "silent.mp4", seconds=4, sound=False)


@pytest_asyncio.fixture
async def studio(tmp_path: Path, films: Path) -> AsyncIterator[Studio]:
    """An application on a SQLite file."""
    made = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films)
    yield made
    await made.close()
