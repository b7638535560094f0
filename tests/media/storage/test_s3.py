"""S3 as it is: servers that die, connections that break, answers that are lost, and settings that are wrong."""

from __future__ import annotations

import os
import threading
import time
from copy import copy
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSResponse

from holdfast_media.errors import MediaError, Stopped
from holdfast_media.storage import Attempt
from holdfast_media.storage.cache import Cache
from holdfast_media.storage.retrying import Patience, Transient
from holdfast_media.storage.s3 import MEBI, S3Settings, S3Storage
from tests.media.storage.conftest import SHORT
from tests.media.storage.rclone import ACCESS, BUCKET, SECRET, RcloneS3
from tests.media.storage.ways import way

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "out/film.mp4"


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """Four parts: of 5 MiB, and a bit."""
    path = tmp_path / "big.mp4"
    path.write_bytes(os.urandom(15 * MEBI + 3))
    return path


def opened(endpoint: str, tmp_path: Path, **settings: Any) -> S3Storage:
    own = S3Settings(**{"endpoint": endpoint, "part_size": 5 * MEBI, "patience": SHORT, "conditional": "no", **settings})
    return S3Storage(BUCKET, f"t{os.urandom(6).hex()}", own, cache=Cache(tmp_path / "cache"))


def uploads(storage: S3Storage) -> list[str]:
    try:
        found = storage.client.list_multipart_uploads(Bucket=storage.bucket, Prefix=storage.prefix)
    except storage.client.exceptions.NoSuchUpload:  # so says rclone where there is none
        return []
    return [one["Key"] for one in found.get("Uploads", [])]


def test_a_large_file_is_sent_in_parts(s3: S3Storage, big: Path) -> None:
    shares: list[float] = []
    stored = s3.put(KEY, big, on_progress=shares.append)
    assert stored.created
    assert len(shares) == 4
    assert shares[-1] == 1.0
    assert s3.check(KEY)
    assert uploads(s3) == []
    with s3.lend(KEY) as path:
        assert path.read_bytes() == big.read_bytes()


@pytest.mark.parametrize("publishing", ["put_object", "complete_multipart_upload"])
def test_the_lease_is_proven_before_every_try_to_publish(
    s3: S3Storage, big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publishing: str
) -> None:
    """Retries go on for a minute: the proof of the first one says nothing about the last."""
    small = tmp_path / "small"
    small.write_bytes(b"a film")
    proofs: list[int] = []
    ask, tries = S3Storage.ask, iter([True, True, False])

    def failing(storage: S3Storage, name: str, *args: Any, **options: Any) -> Any:
        if name == publishing and next(tries):
            raise Transient(MediaError("STORAGE_UPLOAD_FAILED", "for now"))
        return ask(storage, name, *args, **options)

    def prove() -> None:
        proofs.append(len(proofs))
        if len(proofs) == 3:
            raise MediaError("STALE_LEASE", "taken")

    monkeypatch.setattr(S3Storage, "ask", failing)
    with pytest.raises(MediaError) as caught:
        s3.put(KEY, small if publishing == "put_object" else big, before_publish=prove)
    assert (caught.value.code, len(proofs)) == ("STALE_LEASE", 3)
    assert s3.head(KEY) is None


def test_a_server_that_is_killed_in_the_midst_of_an_upload_and_comes_back(tmp_path: Path, big: Path, s3_keys: None) -> None:
    """Its parts are lost with it: they are sent again, and what is published is whole."""
    with RcloneS3() as server:
        storage = opened(server.endpoint, tmp_path, patience=Patience(seconds=30.0, first=0.05, longest=0.5))
        killed: list[threading.Thread] = []

        def kill(share: float) -> None:
            if share > 0.4 and not killed:
                server.kill()
                killed.append(threading.Thread(target=server.restart))
                killed[0].start()

        stored = storage.put(KEY, big, on_progress=kill)
        killed[0].join()
        assert stored.created
        assert stored.size == big.stat().st_size
        assert storage.check(KEY, sha256=stored.sha256)
        assert uploads(storage) == []
        storage.close()


def test_a_server_that_stays_away_is_an_error_that_may_pass(tmp_path: Path, s3_keys: None) -> None:
    storage = opened("http://127.0.0.1:9", tmp_path, patience=Patience(seconds=0.3, first=0.05, longest=0.1))
    path = tmp_path / "x"
    path.write_bytes(b"x")
    with pytest.raises(MediaError) as caught:
        storage.put(KEY, path, overwrite=True)
    assert (caught.value.code, caught.value.retryable) == ("STORAGE_UPLOAD_FAILED", True)
    with pytest.raises(MediaError) as caught:
        storage.head(KEY)
    assert (caught.value.code, caught.value.retryable) == ("STORAGE_READ_FAILED", True)
    storage.close()


def test_connections_that_are_cut_while_sending(s3_server: RcloneS3, tmp_path: Path, big: Path, s3_keys: None) -> None:
    with way(s3_server.endpoint) as cut:
        storage = opened(cut.url, tmp_path)
        cut.requests_after, cut.cuts = 2 * MEBI, 3
        assert storage.put(KEY, big).created
        assert storage.check(KEY)
        assert uploads(storage) == []
        storage.close()
    assert cut.cut == 3


def test_connections_that_are_cut_while_reading(s3_server: RcloneS3, tmp_path: Path, big: Path, s3_keys: None) -> None:
    with way(s3_server.endpoint) as cut:
        storage = opened(cut.url, tmp_path)
        storage.put(KEY, big)
        before = cut.passed
        cut.answers_after, cut.cuts = 4 * MEBI, 3
        with storage.lend(KEY) as path:
            assert path.read_bytes() == big.read_bytes()
        storage.close()
    assert cut.cut == 3
    assert cut.passed - before < 1.5 * big.stat().st_size


def test_a_slow_connection_is_slow_and_no_error(s3_server: RcloneS3, tmp_path: Path, s3_keys: None) -> None:
    path = tmp_path / "x"
    path.write_bytes(os.urandom(200_000))
    with way(s3_server.endpoint) as slow:
        storage = opened(slow.url, tmp_path, read_timeout=5.0)
        slow.rest = 0.02
        assert storage.put(KEY, path).created
        storage.close()


def test_a_connection_that_falls_silent_is_given_up(s3_server: RcloneS3, tmp_path: Path, s3_keys: None) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x")
    with way(s3_server.endpoint) as silent:
        storage = opened(silent.url, tmp_path, read_timeout=0.3, patience=Patience(seconds=1.0, first=0.05, longest=0.1))
        silent.rest = 60.0
        began = time.monotonic()
        with pytest.raises(MediaError) as caught:
            storage.put(KEY, path, overwrite=True)
        assert caught.value.code == "STORAGE_UPLOAD_FAILED"
        assert time.monotonic() - began < 5.0
        storage.close()


def test_a_content_that_is_replaced_while_it_is_read_is_not_mixed(
    s3_server: RcloneS3, tmp_path: Path, big: Path, s3_keys: None
) -> None:
    other = tmp_path / "other"
    other.write_bytes(os.urandom(15 * MEBI + 3))
    with way(s3_server.endpoint) as cut:
        storage = opened(cut.url, tmp_path)
        storage.put(KEY, big)
        cut.answers_after, cut.cuts = MEBI, 1
        with storage.open(KEY) as reader:
            reader.read(1000)
            storage.put(KEY, other, overwrite=True)
            with pytest.raises(MediaError, match="replaced"):
                reader.read()
        storage.close()


def test_an_upload_that_is_stopped_is_aborted(s3: S3Storage, big: Path) -> None:
    reasons = iter([None, None, "enough"])
    begun = []

    def stop() -> str | None:
        begun.extend(uploads(s3))
        return next(reasons, "enough") if begun else None

    bound = s3.bind(Attempt("job", 1, "token"), stop=stop)
    with pytest.raises(Stopped):
        bound.put(KEY, big, on_progress=lambda _: time.sleep(0.25))
    assert begun
    assert uploads(s3) == []
    assert s3.head(KEY) is None


def test_abandoned_uploads_are_swept(s3: S3Storage) -> None:
    where = {"Bucket": s3.bucket, "Key": s3.prefix + KEY}
    upload = s3.client.create_multipart_upload(**where)["UploadId"]
    s3.client.upload_part(**where, UploadId=upload, PartNumber=1, Body=b"x")
    assert s3.sweep(3600.0) == 0
    assert uploads(s3) == [s3.prefix + KEY]
    assert s3.sweep(0.0) == 1
    assert uploads(s3) == []


# -- wrong settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        ({"bucket": "none"}, "NO_SUCH_BUCKET", "Make the bucket"),
        ({"access": "WRONGKEYOFTHETESTS"}, "ACCESS_DENIED", "AWS_ACCESS_KEY_ID"),
        ({"secret": "wrong"}, "ACCESS_DENIED", "AWS_SECRET_ACCESS_KEY"),
        ({"access": None}, "ACCESS_DENIED", "there are no credentials"),
    ],
)
def test_what_a_person_has_to_mend_is_fatal_and_says_how(
    s3_server: RcloneS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[Any, str, str]
) -> None:
    change, code, says = wrong
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    if change.get("access", "") is None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    elif "access" in change:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", change["access"])
    elif "secret" in change:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", change["secret"])
    settings = S3Settings(endpoint=s3_server.endpoint, conditional="no", patience=SHORT)
    storage = S3Storage(change.get("bucket", BUCKET), "t", settings, cache=Cache(tmp_path))
    path = tmp_path / "x"
    path.write_bytes(b"x")
    began = time.monotonic()
    with pytest.raises(MediaError, match=says) as caught:
        storage.put(KEY, path, overwrite=True)
    assert caught.value.code == code
    assert not caught.value.retryable
    assert time.monotonic() - began < SHORT.seconds / 2, "what cannot pass is not tried again"
    storage.close()


# -- put-if-absent ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def conditional(s3: S3Storage) -> Iterator[S3Storage]:
    """As a server answers that keeps `If-None-Match`, which rclone's does not: decided here before a request is sent."""
    storage = copy(s3)
    storage._shared = {}
    lock = threading.Lock()

    def refuse(request: Any, **_: Any) -> AWSResponse | None:
        if request.headers.get("If-None-Match") not in ("*", b"*"):
            return None
        key = request.url.partition("?")[0].removeprefix(f"{storage.settings.endpoint}/{storage.bucket}/")
        with lock:
            there = storage.client.list_objects_v2(Bucket=storage.bucket, Prefix=key).get("Contents", [])
        if not any(one["Key"] == key for one in there):
            return None
        answer = AWSResponse(request.url, 412, {}, None)
        answer._content = b"<Error><Code>PreconditionFailed</Code><Message>there</Message></Error>"
        return answer

    events = storage.client.meta.events
    names = ("before-send.s3.PutObject", "before-send.s3.CompleteMultipartUpload")
    for name in names:
        events.register(name, refuse, unique_id=name)
    yield storage
    for name in names:
        events.unregister(name, unique_id=name)


def test_a_server_that_keeps_conditions_is_found_out(conditional: S3Storage, s3: S3Storage) -> None:
    assert conditional._is_conditional()
    assert not s3._is_conditional()


@pytest.mark.parametrize("size", [1000, 6 * MEBI])
def test_who_comes_second_between_the_look_and_the_publication_changes_nothing(
    conditional: S3Storage, tmp_path: Path, size: int
) -> None:
    """Another one publishes in the moment before: the server refuses, and what is there is told."""
    path, other = tmp_path / "mine", tmp_path / "other"
    path.write_bytes(os.urandom(size))
    other.write_bytes(b"theirs")
    theirs = []

    def meanwhile() -> None:
        theirs.append(conditional.put(KEY, other))

    stored = conditional.put(KEY, path, before_publish=meanwhile)
    assert theirs[0].created
    assert not stored.created
    assert stored.sha256 == theirs[0].sha256
    with conditional.open(KEY) as reader:
        assert reader.read() == b"theirs"
    assert uploads(conditional) == []


def test_the_probe_is_no_key_of_anybody(conditional: S3Storage, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x")
    conditional.put(KEY, path)
    assert [one.key for one in conditional.list()] == [KEY]


def test_a_server_that_keeps_no_metadata_still_has_the_content_checked(tmp_path: Path, s3_keys: None) -> None:
    """rclone keeps metadata in memory: after a restart there is none, as for objects that others have put there."""
    path = tmp_path / "x"
    path.write_bytes(b"content")
    with RcloneS3() as server:
        storage = opened(server.endpoint, tmp_path)
        stored = storage.put(KEY, path)
        server.kill()
        server.restart()
        found = storage.head(KEY)
        assert found is not None
        assert found.sha256 is None
        assert not storage.check(KEY)
        assert storage.check(KEY, sha256=stored.sha256)
        with storage.lend(KEY) as lent:
            assert lent.read_bytes() == b"content"
        storage.close()
