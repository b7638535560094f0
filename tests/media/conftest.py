"""What the tests of the media application share: a world to add videos to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from holdfast import Holdfast
from tests.media.worlds import KINDS, World, media_on, url_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.postgres import PostgresServers


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    servers: PostgresServers | None = request.getfixturevalue("postgres_servers") if kind == "postgres" else None
    return url_for(kind, tmp_path, servers)


@pytest_asyncio.fixture
async def world(url: str, tmp_path: Path) -> AsyncIterator[World]:
    app = Holdfast(url)
    media = media_on(app, tmp_path)
    yield World(url, tmp_path, app, media)
    await media.close()
    await app.close()
