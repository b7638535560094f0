"""From a URL to a store, and every way a URL can be wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.connect import migrate, postgres_parts, same_store, sqlite_path
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.errors import BadSetting, BadUrl
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from pathlib import Path


def test_each_scheme_names_its_store(tmp_path: Path) -> None:
    assert isinstance(holdfast.connect("memory://"), MemoryStore)
    assert isinstance(holdfast.connect(f"sqlite:///{tmp_path}/jobs.db"), SqliteStore)
    assert isinstance(holdfast.connect("postgresql://localhost/jobs"), PostgresStore)
    assert isinstance(holdfast.connect("postgres://localhost/jobs"), PostgresStore)


def test_three_slashes_are_relative_and_four_absolute() -> None:
    assert sqlite_path("sqlite:///jobs.db") == "jobs.db"
    assert sqlite_path("sqlite:////var/lib/jobs.db") == "/var/lib/jobs.db"


def test_own_parameters_are_taken_out_of_a_postgres_url() -> None:
    url = "postgres://me:pw@host:5433/jobs?schema=mine&sslmode=require&prepare=off"
    assert postgres_parts(url) == ("postgresql://me:pw@host:5433/jobs?sslmode=require", "mine", False)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://localhost/jobs", r"'mysql' names no store .* postgresql://"),
        ("jobs.db", r"'jobs.db' names no store .* sqlite:///jobs.db"),
        ("", "names no store"),
        ("sqlite://jobs.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("postgresql://localhost/jobs?schema=", "schema= is empty"),
        ("postgresql://localhost/jobs?prepare=maybe", "neither 'on' nor 'off'"),
    ],
)
def test_a_wrong_url_is_refused_with_the_right_forms(url: str, says: str) -> None:
    with pytest.raises(BadUrl, match=says):
        holdfast.connect(url)


async def test_memory_has_nothing_to_migrate() -> None:
    with pytest.raises(BadUrl, match="no schema to migrate"):
        await migrate("memory://")


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_a_store_from_a_url_keeps_jobs(scheme: str, tmp_path: Path) -> None:
    store = holdfast.connect("memory://" if scheme == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    await store.open()
    await store.enqueue([NewJob(id=SystemEnvironment().job_id(), task="t")])
    assert (await store.stats()).count(State.READY) == 1
    await store.close()


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "import holdfast\n"
        "try: holdfast.connect('postgresql://localhost/jobs')\n"
        "except holdfast.MissingExtra as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'holdfast[postgres]'" in done.stdout
    assert "'asyncpg'" in done.stdout


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder, and nothing set in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    return tmp_path


async def test_an_app_without_a_url_works_on_the_store_that_the_settings_name_at_first_use(
    unset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = holdfast.Holdfast()
    (unset / "pyproject.toml").write_text('[tool.holdfast]\nurl = "sqlite:///from_file.db"')
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///from_environment.db")
    async with app:
        await app.stats()
    assert (unset / "from_environment.db").exists()
    monkeypatch.delenv("HOLDFAST_URL")
    assert app.url == "sqlite:///from_environment.db"
    assert holdfast.Holdfast().url == "sqlite:///from_file.db"


async def test_an_app_that_nobody_gave_a_url_says_how_to_give_one(unset: Path) -> None:
    app = holdfast.Holdfast(None)
    with pytest.raises(BadSetting, match=r"which store\?(.|\n)*HOLDFAST_URL(.|\n)*holdfast\.toml"):
        await app.stats()
    (unset / "holdfast.toml").write_text('url = "mysql://x"')
    with pytest.raises(BadUrl, match="mysql"):
        app.worker()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sqlite:///jobs.db", "sqlite:///./jobs.db", True),
        ("sqlite:///jobs.db", "sqlite:///other.db", False),
        ("postgres://me:a@host/db", "postgresql://me:b@host/db", True),
        ("postgresql://me@host/db", "postgresql://me@host/db?schema=mine", False),
        ("memory://", "sqlite:///jobs.db", False),
    ],
)
def test_two_urls_are_compared_by_what_they_name(one: str, other: str, same: bool) -> None:  # noqa: FBT001  a parameter
    assert same_store(one, other) is same
