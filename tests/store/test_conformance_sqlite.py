"""The SQLite store keeps every promise of the port, within one process and among several on one file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.store.conformance import Harness, ProcessConformance, StoreConformance
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine has such a place: promises are tested here, not the speed of its disk."""
    if os.access("/dev/shm", os.W_OK):
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-") as name:
            yield Path(name)
    else:
        yield tmp_path


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def harness(self, folder: Path) -> SqliteHarness:
        return SqliteHarness(folder)


class TestSqliteProcesses(ProcessConformance):
    @pytest.fixture
    def harness(self, folder: Path) -> SqliteHarness:
        return SqliteHarness(folder)
