"""From a URL to a storage, and what is said where that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_media.errors import MediaError
from holdfast_media.storage import storage_from
from holdfast_media.storage.http import HttpStorage
from holdfast_media.storage.local import LocalStorage
from holdfast_media.storage.s3 import MEBI, S3Storage


@pytest.mark.parametrize(
    ("url", "folder"),
    [("/srv/media", "/srv/media"), ("file:///srv/my%20media", "/srv/my media"), ("file://localhost/srv", "/srv")],
)
def test_paths_are_folders(url: str, folder: str) -> None:
    storage = storage_from(url)
    assert isinstance(storage, LocalStorage)
    assert storage.folder == Path(folder)


def test_s3_is_told_in_its_url(s3_keys: None) -> None:
    storage = storage_from("s3://films/a/b/?endpoint=http://127.0.0.1:9000&region=eu-1&part_mib=32&conditional=no&checksum=md5")
    assert isinstance(storage, S3Storage)
    assert (storage.bucket, storage.prefix) == ("films", "a/b/")
    assert storage.settings.endpoint == "http://127.0.0.1:9000"
    assert storage.settings.region == "eu-1"
    assert storage.settings.part_size == 32 * MEBI
    assert storage.url_for("x.mp4") == "s3://films/a/b/x.mp4"
    storage.close()


def test_a_server_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", "hf_secret")
    storage = storage_from("https://jobs.example.com/holdfast/")
    assert isinstance(storage, HttpStorage)
    assert storage.url_for("in/a b.mp4") == "https://jobs.example.com/holdfast/media/v1/files/in/a%20b.mp4"
    assert "hf_secret" not in repr(storage) + str(vars(storage))
    storage.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "is no storage"),
        ("ftp://host/x", "is no storage"),
        ("s3:///prefix", "is no storage"),
        ("file://host/x", "is no storage"),
        ("s3://b?what=1", "no option of S3"),
        ("s3://b?conditional=maybe", "one of auto, yes, no"),
        ("s3://b?part_mib=1", "5 to 5000"),
        ("s3://b?part_mib=x", "not possible"),
        ("s3://user:secret@b/p", "do not belong into a URL"),
        ("https://jobs.example.com", "needs a key"),
    ],
)
def test_what_is_no_storage_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, url: str, says: str) -> None:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    with pytest.raises(MediaError, match=says) as caught:
        storage_from(url)
    assert caught.value.code == "BAD_STORAGE"
    assert not caught.value.retryable
