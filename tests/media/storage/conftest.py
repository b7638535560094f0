"""Every storage there is, each behind the same port."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest

from holdfast_media.storage.cache import Cache
from holdfast_media.storage.local import LocalStorage
from holdfast_media.storage.retrying import Patience
from holdfast_media.storage.s3 import MEBI, S3Settings, S3Storage
from tests.media.storage.rclone import ACCESS, BUCKET, SECRET, RcloneS3
from tests.media.transfer.served import Encoders, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast_media.storage import Storage
    from holdfast_media.storage.http import HttpStorage

SHORT = Patience(seconds=10.0, first=0.02, longest=0.2)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[RcloneS3]:
    with RcloneS3() as server:
        yield server


@pytest.fixture(scope="session")
def s3_keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session")
def bucket(s3_server: RcloneS3, s3_keys: None) -> Iterator[S3Storage]:
    """All of the bucket: a client takes long to make."""
    storage = S3Storage(BUCKET, "", S3Settings(endpoint=s3_server.endpoint, part_size=5 * MEBI, patience=SHORT))
    yield storage
    storage.close()


@pytest.fixture
def s3(bucket: S3Storage, tmp_path: Path) -> S3Storage:
    """A prefix of its own; files of more than 5 MiB are sent in parts."""
    storage = copy(bucket)
    storage.prefix = f"{uuid4().hex}/"
    storage.cache = Cache(tmp_path / "cache")
    return storage


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "storage")


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoders]:
    """A server with a folder behind it, which is changed for each test."""
    folder = tmp_path_factory.mktemp("server")
    with serving(LocalStorage(folder / "storage"), folder / "uploads") as found:
        yield found


@pytest.fixture
def http(encoders: Encoders, tmp_path: Path) -> HttpStorage:
    """What the holder of a job may use: everything below `out/`, of which nothing is there."""
    behind = encoders.behind
    for one in list(behind.list()):
        behind.delete(one.key)
    storage: Any = encoders.storage(cache=tmp_path / "cache")
    storage.behind = behind
    return cast("HttpStorage", storage)


@pytest.fixture(params=["local", "s3", "http"])
def storage(request: pytest.FixtureRequest) -> Any:
    """Each of them."""
    found: Storage = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "made.bin"
    path.write_bytes(b"what was made " * 1000)
    return path
