"""The application of the tests: small, quick, and retried at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Holdfast
from tests.media.tasks.studio import Studio
from tests.media.worlds import media_on

if TYPE_CHECKING:
    from pathlib import Path


def made_on(url: str, folder: Path, films: Path, **options: object) -> Studio:
    app = Holdfast(url)
    settings = {
        "ladder": films / "ladder.toml",
        "chunk_seconds": 2,
        "segment_seconds": 2,
        "together": False,
        "retry_after": 0.05,
        "attempts": 3,
        "lease": 6,
        "pictures": False,
    }
    return Studio(url, folder, films, app, media_on(app, folder, **(settings | options)))
