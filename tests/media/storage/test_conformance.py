"""What every storage promises, asked of each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast_media.errors import MediaError, Stopped
from holdfast_media.storage import Attempt, Storage, sha256_of
from tests.media.storage.tampering import damage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.storage.s3 import S3Storage
    from tests.media.transfer.served import Encoders

KEY = "out/42/720p/0001.m4s"
ATTEMPT = Attempt("job", 1, "token")


@pytest.fixture(autouse=True, scope="module")
def beforehand(encoders: Encoders, bucket: S3Storage) -> None:
    """Start the servers before the tests begin to count threads."""


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def content(storage: Storage, key: str = KEY) -> bytes:
    with storage.open(key) as reader:
        return reader.read()


def keys(storage: Storage, prefix: str = "out/") -> list[str]:
    return [one.key for one in storage.list(prefix)]


def test_it_is_a_storage(storage: Storage) -> None:
    assert isinstance(storage, Storage)


def test_what_was_put_is_found_with_its_facts(storage: Storage, file: Path) -> None:
    put = storage.put(KEY, file)
    found = storage.head(KEY)
    assert found is not None
    assert put.created
    assert not found.created
    assert (found.key, found.size, found.sha256) == (KEY, file.stat().st_size, sha256_of(file))
    assert (put.size, put.sha256, put.etag) == (found.size, found.sha256, found.etag)
    assert found.content_type == "video/iso.segment"
    assert found.modified.tzinfo is not None
    assert content(storage) == file.read_bytes()
    assert file.exists()


def test_an_empty_file_is_a_file(storage: Storage, tmp_path: Path) -> None:
    storage.put(KEY, written(tmp_path / "empty", b""))
    found = storage.head(KEY)
    assert found is not None
    assert found.size == 0
    assert content(storage) == b""
    with storage.lend(KEY) as path:
        assert path.read_bytes() == b""


def test_nothing_is_under_a_key_that_was_never_put(storage: Storage) -> None:
    assert storage.head(KEY) is None
    assert not storage.check(KEY)
    assert not storage.delete(KEY)
    for use in (lambda: storage.open(KEY), lambda: storage.lend(KEY).__enter__()):
        with pytest.raises(MediaError) as caught:
            use()
        assert caught.value.code == "NOT_FOUND"


def test_the_first_writer_wins_and_the_second_is_told(storage: Storage, file: Path, tmp_path: Path) -> None:
    first = storage.put(KEY, file)
    second = storage.put(KEY, written(tmp_path / "other", b"another"))
    assert first.created
    assert not second.created
    assert second.sha256 == first.sha256
    assert content(storage) == file.read_bytes()


def test_overwriting_replaces_content_and_checksum(storage: Storage, file: Path, tmp_path: Path) -> None:
    before = storage.put(KEY, file)
    after = storage.put(KEY, written(tmp_path / "other", b"another"), overwrite=True)
    assert after.created
    assert after.etag != before.etag
    assert after.sha256 == sha256_of(tmp_path / "other")
    assert content(storage) == b"another"
    assert storage.check(KEY)


def test_a_file_that_is_given_away_is_gone(storage: Storage, file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    storage.put(KEY, file, consume=True)
    assert not file.exists()
    assert content(storage) == data
    again = written(tmp_path / "again", b"late")
    assert not storage.put(KEY, again, consume=True).created
    assert not again.exists()


def test_a_wrong_checksum_publishes_nothing(storage: Storage, file: Path) -> None:
    with pytest.raises(MediaError) as caught:
        storage.put(KEY, file, sha256="0" * 64, consume=True)
    assert caught.value.code == "CHECKSUM_MISMATCH"
    assert caught.value.retryable
    assert storage.head(KEY) is None
    assert keys(storage) == []
    assert file.exists()


def test_what_is_no_checksum_is_refused(storage: Storage, file: Path) -> None:
    with pytest.raises(MediaError) as caught:
        storage.put(KEY, file, sha256="abc")
    assert caught.value.code == "BAD_CHECKSUM"


def test_content_is_read_from_any_byte_on(storage: Storage, file: Path) -> None:
    storage.put(KEY, file)
    data = file.read_bytes()
    for start in (0, 1, len(data) - 1, len(data), len(data) + 10):
        with storage.open(KEY, start) as reader:
            assert reader.read() == data[start:]


def test_a_lent_file_has_the_content(storage: Storage, file: Path) -> None:
    storage.put(KEY, file)
    shares: list[float] = []
    with storage.lend(KEY, on_progress=shares.append) as path:
        assert path.read_bytes() == file.read_bytes()
    assert shares[-1] == 1.0


def test_lists_are_by_key_and_by_prefix(storage: Storage, file: Path) -> None:
    for key in ("out/b/2.ts", "out/a.ts", "out/b/1.ts", "out/b.ts", "out/c/d/e.ts", "out/b-.ts"):
        storage.put(key, file)
    assert keys(storage) == ["out/a.ts", "out/b-.ts", "out/b.ts", "out/b/1.ts", "out/b/2.ts", "out/c/d/e.ts"]
    assert keys(storage, "out/b/") == ["out/b/1.ts", "out/b/2.ts"]
    assert keys(storage, "out/b") == ["out/b-.ts", "out/b.ts", "out/b/1.ts", "out/b/2.ts"]
    assert keys(storage, "out/none/") == []
    assert next(storage.list("out/a")).size == file.stat().st_size


def test_what_was_deleted_is_gone_and_may_be_put_again(storage: Storage, file: Path, tmp_path: Path) -> None:
    storage.put(KEY, file)
    assert storage.delete(KEY)
    assert storage.head(KEY) is None
    assert not storage.delete(KEY)
    assert storage.put(KEY, written(tmp_path / "new", b"new")).created
    assert content(storage) == b"new"


def test_damage_is_found(storage: Storage, file: Path) -> None:
    storage.put(KEY, file)
    assert storage.check(KEY)
    assert storage.check(KEY, sha256=sha256_of(file))
    assert not storage.check(KEY, sha256="0" * 64)
    damage(storage, KEY)
    assert not storage.check(KEY)


def test_progress_ends_at_one(storage: Storage, file: Path) -> None:
    shares: list[float] = []
    storage.put(KEY, file, on_progress=shares.append)
    assert shares
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_is_raised_before_the_publication_prevents_it(storage: Storage, file: Path) -> None:
    def refuse() -> None:
        raise PermissionError("the lease is lost")

    for overwrite in (False, True):
        with pytest.raises((PermissionError, MediaError), match="the lease is lost"):
            storage.put(KEY, file, overwrite=overwrite, before_publish=refuse)
        assert storage.head(KEY) is None
    assert keys(storage) == []


def test_a_reason_to_stop_ends_a_put(storage: Storage, file: Path) -> None:
    bound = storage.bind(getattr(storage, "_attempt", ATTEMPT), stop=lambda: "the job was canceled")
    with pytest.raises(Stopped):
        bound.put(KEY, file)
    assert storage.head(KEY) is None
    assert storage.put(KEY, file).created


def test_of_many_writers_at_once_none_leaves_a_mixture(storage: Storage, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{number}", bytes([number]) * 50_000) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        put = list(pool.map(lambda path: storage.put(KEY, path), files))
    data = content(storage)
    assert len(data) == 50_000
    assert len(set(data)) == 1
    assert storage.check(KEY)
    found = storage.head(KEY)
    assert found is not None
    assert found.sha256 == sha256_of(files[data[0]])
    assert any(one.created for one in put)


BAD_KEYS = [
    "",
    "/etc/passwd",
    "../up",
    "a/../../up",
    "a//b",
    "a/",
    "./a",
    ".hidden",
    "a/.holdfast/work/x",
    "a\\..\\b",
    "C:/x",
    "nul\0byte",
    "new\nline",
    "a/\u202eb",
    "cafe\u0301",
    "name.",
    "name ",
    "a/" + "x" * 201,
    "/".join(["x" * 100] * 6),
    "\udcff",
]


def test_keys_that_could_mean_something_else_are_refused(storage: Storage, file: Path) -> None:
    uses: list[Callable[[str], object]] = [
        storage.head,
        storage.open,
        storage.delete,
        storage.check,
        storage.url_for,
        lambda key: storage.put(key, file),
        lambda key: storage.lend(key).__enter__(),
    ]
    for key in BAD_KEYS:
        for use in uses:
            with pytest.raises(MediaError) as caught:
                use(key)
            assert caught.value.code == "BAD_KEY"


def test_names_of_people_are_keys(storage: Storage, file: Path) -> None:
    for key in ("out/Ünïcode ✓ [1080p] (final) #1 & 100%.mp4", "out/-dash", "out/a+b=c,d;e'f~.ts"):
        assert storage.put(key, file).key == key
        assert content(storage, key) == file.read_bytes()
        assert keys(storage, key) == [key]


def test_free_bytes_are_a_number_or_unknown(storage: Storage) -> None:
    free = storage.free_bytes()
    assert free is None or free > 0


def test_sweeping_leaves_what_is_published(storage: Storage, file: Path) -> None:
    storage.put(KEY, file)
    storage.sweep(0.0)
    assert content(storage) == file.read_bytes()


def test_no_token_is_shown() -> None:
    assert "token" not in repr(ATTEMPT)
