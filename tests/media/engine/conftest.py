"""Sources of every kind, synthesised once for each process of a test run, and a transcode of one from end to end."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from holdfast_media.ffmpeg import find_ffmpeg
from tests.media.engine import sources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the source of this name (see `sources.RECIPES`); made when first asked for."""
    folder = tmp_path_factory.mktemp("sources")

    def make(name: str) -> Path:
        path = folder / name
        if not path.exists():
            subprocess.run([find_ffmpeg(), "-v", "error", "-y", *sources.RECIPES[name], path], check=True, cwd=folder)
        return path

    return make
