"""A server with transfer routes over a folder, for a module; and what its encoders are asked with."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import httpx2
import pytest

from holdfast_media.storage.local import LocalStorage
from holdfast_media.transfer import Limits
from holdfast_media.transfer.limits import ArchiveLimits
from tests.media.transfer.served import Encoders, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEBI = 2**20
LIMITS = Limits(
    total=40 * MEBI,
    part=MEBI,
    parts=50,
    uploads=3,
    part_seconds=1.0,
    at_once=2,
    archive=ArchiveLimits(files=20, total=4 * MEBI, ratio=20),
)


@pytest.fixture(scope="module", autouse=True)
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoders]:
    folder = tmp_path_factory.mktemp("server")
    with serving(LocalStorage(folder / "storage"), folder / "uploads", limits=LIMITS) as found:
        found.uploads = folder / "uploads"
        yield found


@pytest.fixture
def behind(encoders: Encoders, tmp_path: Path) -> LocalStorage:
    """The storage of the server, with a source in it and nothing else."""
    storage = encoders.behind
    assert isinstance(storage, LocalStorage)
    for one in list(storage.list()):
        storage.delete(one.key)
    shutil.rmtree(encoders.uploads, ignore_errors=True)
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 1000)
    storage.put("in/film.mp4", source, consume=True)
    return storage


@pytest.fixture
def client(encoders: Encoders) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{encoders.url}/media/v1", timeout=20.0, verify=False) as client:
        yield client
