"""The guides to the frameworks lead from an empty folder to a program that works, with exactly the commands they give."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.integrations.installing import CLONE, ROOT, asked_for, brought_by, install_lines
from tests.integrations.pages import Page

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import PostgresServers


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The URL of an empty PostgreSQL database; none where the page's own SQLite file is used."""
    if request.param == "sqlite":
        return None
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    return servers[18].create_database()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    (empty := tmp_path / "shop").mkdir()
    return empty


def test_the_page_on_fastapi(folder: Path, database: str | None) -> None:
    page = Page("fastapi.md", folder, variables(database), database is not None)
    with page.followed():
        assert (folder / "shop.db").exists() is (database is None)


def test_the_page_on_flask(folder: Path, database: str | None) -> None:
    page = Page("flask.md", folder, variables(database), database is not None)
    with page.followed():
        assert "succeeded" in page.run("flask --app shop holdfast jobs ls")


def test_the_page_on_django(folder: Path) -> None:
    # on PostgreSQL the same is shown by the project of test_django.py, with less that has to be started
    page = Page("django.md", folder)
    with page.followed():
        assert "Holdfast: created" in page.seen["python manage.py migrate"]
        assert "succeeded" in page.run("python manage.py holdfast jobs ls")


@pytest.mark.parametrize("name", ["fastapi.md", "flask.md", "django.md"])
def test_what_a_page_installs_for_postgresql_brings_the_drivers(name: str) -> None:
    _, for_postgresql = install_lines((ROOT / "docs/guides" / name).read_text())
    drivers = {"asyncpg"} if name == "fastapi.md" else {"asyncpg", "psycopg", "psycopg-binary"}
    assert drivers <= brought_by(asked_for(for_postgresql))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fastapi.md", "flask.md", "django.md"])
def test_a_page_in_a_fresh_environment_of_its_own(folder: Path, name: str) -> None:
    with Page(name, folder, own=folder.parent / "environment").followed():
        pass


def test_every_line_of_pip_in_the_documentation_names_what_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = {page.name: install_lines(page.read_text()) for page in (ROOT / "docs/guides").glob("*.md")}
    named = [(page, one) for page, of_page in lines.items() for line in of_page for one in asked_for(line)]
    assert {page for page, _ in named} >= {"fastapi.md", "flask.md", "django.md", "testing.md"}
    for page, one in named:
        assert one.name != "holdfast" or one.extras <= set(extras), f"{page}: {one}"
    told = [line for of_page in lines.values() for line in of_page if re.search(rf"(?<!{re.escape(CLONE[:-8])})holdfast", line)]
    assert told == [], "Holdfast is on no index yet: install it from a clone"


def variables(database: str | None) -> dict[str, str]:
    return {} if database is None else {"DATABASE_URL": database}
