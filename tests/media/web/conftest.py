"""Films, a library made of one of them, its pages, and a browser."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tests.media.web.making import Made, make, make_films
from tests.server.ui.browser import ARGS, chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_films(tmp_path_factory.mktemp("films"))


@pytest.fixture(scope="session")
def made(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A library with a title that is ready. Not to be changed: copy it."""
    return make(tmp_path_factory.mktemp("made"), films)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = chromium()
    with sync_playwright() as playwright:
        args = [*ARGS, "--autoplay-policy=no-user-gesture-required", "--mute-audio"]
        one = playwright.chromium.launch(executable_path=found.path, args=args, env={**os.environ, **found.variables})
        yield one
        one.close()
