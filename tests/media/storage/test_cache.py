"""Downloads that are kept: shared, checked, and never more than fits."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from holdfast_media.errors import MediaError
from holdfast_media.storage.cache import Cache, default_folder
from holdfast_media.storage.hashing import sha256_of
from holdfast_media.storage.port import Stored

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


class Source:
    """A content, and from where it was asked for."""

    def __init__(self, data: bytes, *, known: bool = True) -> None:
        self.data = data
        self.asked: list[int] = []
        sha256 = sha256_of(io.BytesIO(data)) if known else None
        self.stored = Stored(key="in/a", size=len(data), sha256=sha256, modified=datetime.now(UTC), etag=f"e{len(data)}")

    def read(self, start: int) -> BinaryIO:
        self.asked.append(start)
        return io.BytesIO(self.data[start:])


def lent(cache: Cache, source: Source) -> bytes:
    with cache.lend(source.stored, "s3://bucket/in/a", source.read) as path:
        return path.read_bytes()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", limit=1000)


@pytest.mark.parametrize("known", [True, False])
def test_a_content_is_downloaded_once(cache: Cache, known: bool) -> None:  # noqa: FBT001  both of them
    source = Source(b"x" * 500, known=known)
    assert lent(cache, source) == source.data
    assert lent(cache, source) == source.data
    assert source.asked == [0]


def test_many_who_want_it_at_once_download_it_once(cache: Cache) -> None:
    source = Source(os.urandom(900))
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: lent(cache, source), range(16))) == {source.data}
    assert source.asked == [0]


def test_what_broke_off_is_resumed(cache: Cache) -> None:
    source = Source(os.urandom(800))
    cache.folder.mkdir()
    (cache.folder / f"{source.stored.sha256}.part").write_bytes(source.data[:300])
    assert lent(cache, source) == source.data
    assert source.asked == [300]


@pytest.mark.parametrize("kept", [b"damaged" * 10, b"far too long" * 1000])
def test_what_was_kept_of_another_content_is_not_mixed_in(cache: Cache, kept: bytes) -> None:
    source = Source(os.urandom(800))
    cache.folder.mkdir()
    (cache.folder / f"{source.stored.sha256}.part").write_bytes(kept)
    for _ in range(2):
        try:
            assert lent(cache, source) == source.data
            break
        except MediaError as error:
            code = error.code
            assert code == "CHECKSUM_MISMATCH"
    assert lent(cache, source) == source.data
    assert source.asked[-1] == 0


def test_the_longest_unused_go_first_and_what_is_in_use_stays(cache: Cache) -> None:
    sources = [Source(bytes([number]) * 400) for number in range(4)]
    with cache.lend(sources[0].stored, "a", sources[0].read) as used:
        for number, source in enumerate(sources[1:], 1):
            lent(cache, source)
            os.utime(cache.folder / str(source.stored.sha256), (number, number))
        cache.trim()
        assert used.exists()
    whole = {path.name for path in cache.folder.iterdir() if not path.name.endswith((".lock", ".part"))}
    assert str(sources[0].stored.sha256) in whole
    assert str(sources[1].stored.sha256) not in whole
    assert len(whole) == 2


def test_a_content_larger_than_the_limit_is_lent_and_then_gone(cache: Cache) -> None:
    source = Source(bytes(5000))
    with cache.lend(source.stored, "a", source.read) as path:
        assert path.stat().st_size == 5000
    assert list(cache.folder.iterdir()) == []


def test_a_full_disk_leaves_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(bytes(500))
    monkeypatch.setattr("holdfast_media.storage.cache.shutil.disk_usage", lambda _: _Usage())
    with pytest.raises(MediaError) as caught:
        lent(cache, source)
    assert caught.value.code == "DISK_FULL"
    assert [path.name for path in cache.folder.iterdir() if not path.name.endswith(".lock")] == []


class _Usage:
    free = 10


def test_the_folder_is_the_user_s_unless_somebody_says_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "holdfast-media"
    monkeypatch.setenv("HOLDFAST_MEDIA_CACHE", str(tmp_path / "other"))
    assert default_folder() == tmp_path / "other"
