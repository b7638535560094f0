"""The SQLite store keeps every promise of the port, within one process and among several on one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.store.conformance import Harness, StoreConformance
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from pathlib import Path


def open_sqlite(url: str) -> SqliteStore:
    """Return a store for a child process, not yet opened."""
    return SqliteStore(url, SystemEnvironment())


class SqliteHarness(Harness):
    """A fresh file each time the data is to be clean."""

    opener = "tests.store.test_conformance_sqlite:open_sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0

    @property
    def url(self) -> str:
        return str(self.folder / f"jobs-{self.files}.db")

    async def clean(self) -> None:
        self.files += 1

    async def open(self) -> SqliteStore:
        store = open_sqlite(self.url)
        await store.open()
        return store


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)
