"""Uploads in parts and ranged downloads: resumed after everything that breaks them, and bounded."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from holdfast_media.errors import MediaError
from holdfast_media.storage import put_tree
from holdfast_media.storage.http import HttpStorage
from holdfast_media.storage.local import LocalStorage
from holdfast_media.storage.retrying import Patience
from holdfast_media.storage.tree import _files, _pack
from holdfast_media.storage.wire import UploadAnswer
from holdfast_media.transfer import uploads
from holdfast_media.transfer.ranges import Asked, asked
from tests.media.storage.ways import way
from tests.media.transfer import corpus
from tests.media.transfer.served import Encoders, attempt_of, serving, shown
from tests.media.transfer.test_leases import DATA, begin, keys, send, sent
from tests.support.daemon import free_port

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

MEBI = 2**20


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """Five parts of a mebibyte, and a bit."""
    path = tmp_path / "big.m4s"
    path.write_bytes(os.urandom(5 * MEBI + 7))
    return path


# -- ranges ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({}, Asked(200, 0, 10)),
        ({"range": "bytes=0-"}, Asked(206, 0, 10)),
        ({"range": "bytes=3-5"}, Asked(206, 3, 3)),
        ({"range": "bytes=3-99"}, Asked(206, 3, 7)),
        ({"range": "bytes=9-"}, Asked(206, 9, 1)),
        ({"range": "bytes=-4"}, Asked(206, 6, 4)),
        ({"range": "bytes=-99"}, Asked(206, 0, 10)),
        ({"range": "bytes=10-"}, Asked(416)),
        ({"range": "bytes=-0"}, Asked(416)),
        ({"range": "bytes=5-3"}, Asked(200, 0, 10)),
        ({"range": "bytes=-"}, Asked(200, 0, 10)),
        ({"range": "bytes=1-2,4-5"}, Asked(200, 0, 10)),
        ({"range": "items=1-2"}, Asked(200, 0, 10)),
        ({"range": "bytes=1-" + "9" * 30}, Asked(200, 0, 10)),
        ({"range": "bytes=3-5", "if-range": '"tag"'}, Asked(206, 3, 3)),
        ({"range": "bytes=3-5", "if-range": '"old"'}, Asked(200, 0, 10)),
        ({"range": "bytes=3-5", "if-match": '"old"'}, Asked(412)),
        ({"if-match": '"old", "tag"'}, Asked(200, 0, 10)),
        ({"if-none-match": '"tag"'}, Asked(304)),
        ({"if-none-match": "*"}, Asked(304)),
    ],
)
def test_ranges_are_answered_as_the_standard_says(headers: dict[str, str], answer: Asked) -> None:
    assert asked(headers, "tag", 10) == answer


def test_no_byte_of_an_empty_file_can_be_asked_for() -> None:
    assert asked({"range": "bytes=0-"}, "tag", 0) == Asked(416)
    assert asked({}, "tag", 0) == Asked(200, 0, 0)


def test_a_download_says_what_it_is(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    headers = shown(encoders.job(), encoders.key)
    data = (behind.folder / "in/film.mp4").read_bytes()
    whole = client.get("/files/in/film.mp4", headers=headers)
    assert whole.content == data
    assert whole.headers["holdfast-sha256"] == hashlib.sha256(data).hexdigest()
    assert whole.headers["accept-ranges"] == "bytes"
    part = client.get("/files/in/film.mp4", headers=headers | {"Range": "bytes=100-199", "If-Range": whole.headers["etag"]})
    assert part.status_code == 206
    assert part.headers["content-range"] == f"bytes 100-199/{len(data)}"
    assert part.content == data[100:200]
    beyond = client.get("/files/in/film.mp4", headers=headers | {"Range": f"bytes={len(data)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(data)}")
    head = client.head("/files/in/film.mp4", headers=headers)
    assert (head.headers["content-length"], head.content) == (str(len(data)), b"")
    assert client.get("/files/in/none", headers=headers).status_code == 404


# -- resuming --------------------------------------------------------------------------------------------------------------


def test_a_download_goes_on_where_it_was_cut(encoders: Encoders, behind: LocalStorage, tmp_path: Path, big: Path) -> None:
    behind.put("in/big.mp4", big)
    with way(encoders.url) as cut:
        cut.answers_after, cut.cuts = 2 * MEBI, 2
        storage = encoders.storage(cache=tmp_path / "cache", url=cut.url)
        with storage.lend("in/big.mp4") as path:
            assert path.read_bytes() == big.read_bytes()
        storage.close()
    assert cut.cut == 2
    assert cut.passed < 1.5 * big.stat().st_size


def test_a_download_that_was_given_up_is_resumed_by_the_next_process(
    encoders: Encoders, behind: LocalStorage, tmp_path: Path, big: Path
) -> None:
    behind.put("in/big.mp4", big)
    job = encoders.job()
    stopping: list[float] = []

    def stop() -> str | None:
        return "enough" if stopping and stopping[-1] > 0.5 else None

    storage = encoders.storage(job, cache=tmp_path / "cache").bind(attempt_of(job), stop=stop)
    with pytest.raises(Exception, match="enough"), storage.lend("in/big.mp4", on_progress=_slowly(stopping)):
        pass
    part = next((tmp_path / "cache").glob("*.part"))
    had = part.stat().st_size
    assert 0 < had < big.stat().st_size
    with way(encoders.url) as counted:
        again = encoders.storage(job, cache=tmp_path / "cache", url=counted.url)
        with again.lend("in/big.mp4") as path:
            assert path.read_bytes() == big.read_bytes()
        again.close()
    assert counted.passed < big.stat().st_size - had + 10_000


def _slowly(told: list[float]) -> Any:
    def on_progress(share: float) -> None:
        told.append(share)
        time.sleep(0.06)  # so that the reason to stop is looked for in between

    return on_progress


def test_a_source_that_is_replaced_while_it_is_read_is_not_mixed(
    encoders: Encoders, behind: LocalStorage, tmp_path: Path, big: Path
) -> None:
    behind.put("in/big.mp4", big)
    with way(encoders.url) as cut:
        storage = encoders.storage(cache=tmp_path / "cache", url=cut.url)
        cut.answers_after, cut.cuts = MEBI, 1
        with storage.open("in/big.mp4") as reader:
            reader.read(1000)
            other = tmp_path / "other"
            other.write_bytes(os.urandom(5 * MEBI + 7))
            behind.put("in/big.mp4", other, overwrite=True)
            with pytest.raises(MediaError, match="replaced") as caught:
                reader.read()
        storage.close()
    assert caught.value.retryable


def test_an_upload_goes_on_where_it_was_cut(encoders: Encoders, behind: LocalStorage, big: Path) -> None:
    with way(encoders.url) as cut:
        cut.requests_after, cut.cuts = MEBI + MEBI // 2, 3
        storage = encoders.storage(url=cut.url)
        stored = storage.put("out/big.m4s", big)
        storage.close()
    assert cut.cut == 3
    assert stored.created
    assert behind.check("out/big.m4s")
    assert (behind.folder / "out/big.m4s").read_bytes() == big.read_bytes()


def test_a_lost_answer_to_a_completion_is_found_again(
    encoders: Encoders, behind: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server publishes, and the client never hears of it: asked again, it finds its own file there."""
    path = tmp_path / "small"
    path.write_bytes(DATA)
    storage = encoders.storage()
    once = storage._once
    lost: list[str] = []

    def losing(method: str, where: str, code: str, **options: Any) -> httpx2.Response:
        answer = once(method, where, code, **options)
        if where.endswith("/complete") and not lost:
            lost.append(where)
            return storage._call(method, where, code, **options)  # as a client does that had no answer
        return answer

    monkeypatch.setattr(storage, "_once", losing)
    for overwrite in (False, True):
        lost.clear()
        path.write_bytes(DATA + bytes([overwrite]))
        stored = storage.put("out/a", path, overwrite=overwrite)
        assert lost
        assert stored.created
        assert (behind.folder / "out/a").read_bytes() == path.read_bytes()


def test_parts_survive_a_server_that_is_started_again(tmp_path: Path, big: Path) -> None:
    port = free_port()
    storage, uploads = LocalStorage(tmp_path / "storage"), tmp_path / "uploads"
    database = f"sqlite:///{tmp_path / 'jobs.db'}"
    with serving(storage, uploads, port=port, url=database) as first:
        job, key = first.job(), first.key
        remote = HttpStorage(first.url, key).bind(attempt_of(job))
        about = remote._about("out/big", big, None, "file", None, overwrite=False)
        begun = remote._ask("POST", "/uploads", "STORAGE_UPLOAD_FAILED", UploadAnswer, body=replace(about, part_size=MEBI))
        with big.open("rb") as file:
            for number in (1, 2, 3):
                data = file.read(MEBI)
                sums = {"Holdfast-Sha256": hashlib.sha256(data).hexdigest()}
                remote._call("PUT", f"/uploads/{begun.upload}/parts/{number}", "X", content=data, headers=sums)
        remote.close()
    with serving(storage, uploads, port=port, url=database) as second:
        remote = HttpStorage(second.url, key).bind(attempt_of(job))
        again = remote._ask("POST", "/uploads", "STORAGE_UPLOAD_FAILED", UploadAnswer, body=replace(about, part_size=MEBI))
        assert again.have == [1, 2, 3]
        remote.close()


def test_a_server_that_is_away_is_waited_for(tmp_path: Path, big: Path) -> None:
    """It goes away between two parts, and comes back on its port with its database and its parts."""
    port = free_port()
    storage, uploads = LocalStorage(tmp_path / "storage"), tmp_path / "uploads"
    database = f"sqlite:///{tmp_path / 'jobs.db'}"
    with serving(storage, uploads, port=port, url=database) as first:
        job, key = first.job(), first.key
        remote = first.storage(job, part_size=MEBI)
        with pytest.raises(KeyboardInterrupt):
            remote.put("out/big", big, on_progress=_interrupt)
    away = HttpStorage(f"http://127.0.0.1:{port}", key, patience=Patience(seconds=0.2, first=0.05, longest=0.05))
    with pytest.raises(MediaError) as caught:
        away.bind(attempt_of(job)).head("out/big")
    assert caught.value.code == "STORAGE_READ_FAILED"
    assert caught.value.retryable
    away.close()
    with serving(storage, uploads, port=port, url=database) as second:
        assert sum(1 for _ in uploads.glob("*/0*")) == 3
        again = second.storage(job, key=key, part_size=MEBI)
        again.put("out/big", big)
    assert storage.check("out/big")
    assert list(uploads.iterdir()) == []


def _interrupt(share: float) -> None:
    if share > 0.5:
        raise KeyboardInterrupt


# -- what is refused -------------------------------------------------------------------------------------------------------


def test_a_damaged_part_is_refused_and_a_later_one_taken(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage
) -> None:
    headers = shown(encoders.job(), encoders.key)
    upload = begin(client, headers).json()["upload"]
    wrong = headers | {"Holdfast-Sha256": "0" * 64}
    answer = client.put(f"/uploads/{upload}/parts/1", content=DATA[: 64 * 1024], headers=wrong)
    assert (answer.status_code, answer.json()["error"]) == (422, "CHECKSUM_MISMATCH")
    assert client.get(f"/uploads/{upload}", headers=headers).json()["have"] == []
    assert send(client, headers, upload, 1).status_code == 200
    # sent again and damaged, it leaves the one that is there as it is
    client.put(f"/uploads/{upload}/parts/1", content=DATA[: 64 * 1024], headers=wrong)
    assert client.get(f"/uploads/{upload}", headers=headers).json()["have"] == [1]


def test_parts_that_make_another_whole_are_refused(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    """Each part is right by itself, and the whole is not what was said: nothing is published, and nothing kept."""
    headers = shown(encoders.job(), encoders.key)
    upload = sent(client, headers, sha256="0" * 64)
    answer = client.post(f"/uploads/{upload}/complete", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (422, "CHECKSUM_MISMATCH")
    assert keys(behind) == ["in/film.mp4"]
    assert client.get(f"/uploads/{upload}", headers=headers).status_code == 404


def test_missing_parts_are_named(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    headers = shown(encoders.job(), encoders.key)
    upload = begin(client, headers).json()["upload"]
    send(client, headers, upload, 2)
    answer = client.post(f"/uploads/{upload}/complete", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (409, "incomplete")
    assert "[1, 3" in answer.json()["fix"]
    assert keys(behind) == ["in/film.mp4"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"size": 41 * MEBI}, 413),
        ({"size": -1}, 413),
        ({"part_size": 2 * MEBI}, 413),
        ({"part_size": 10}, 413),
        ({"size": 40 * MEBI, "part_size": 65536}, 413),  # too many parts
        ({"sha256": "abc"}, 400),
        ({"sha256": "../../../etc"}, 400),
        ({"key": "../up"}, 400),
        ({"key": "out/../in/film.mp4"}, 400),
        ({"kind": "folder"}, 400),
        ({"size": "many"}, 400),
    ],
)
def test_uploads_beyond_the_limits_are_refused(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, fields: dict[str, Any], status: int
) -> None:
    answer = begin(client, shown(encoders.job(), encoders.key), **fields)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]


def test_parts_beyond_the_limits_are_refused(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    headers = shown(encoders.job(), encoders.key)
    upload = begin(client, headers).json()["upload"]
    sums = headers | {"Holdfast-Sha256": "0" * 64}

    def put(number: int, content: Any) -> int:
        return client.put(f"/uploads/{upload}/parts/{number}", content=content, headers=sums).status_code

    assert put(1, bytes(2 * MEBI)) == 413
    assert put(1, iter([bytes(65536), b"x"])) == 413  # says no length before
    assert put(1, b"short") == 422
    assert put(0, b"x") == 413
    assert put(99, b"x") == 413
    assert client.put(f"/uploads/{upload}/parts/1", content=b"x", headers=headers).status_code == 400
    for other in ("0" * 32, "../../etc", "x" * 32, "%2e%2e"):
        assert client.get(f"/uploads/{other}", headers=headers).status_code == 404
    assert client.get(f"/uploads/{upload}", headers=headers).json()["have"] == []
    assert client.post("/uploads", content=b"{" + b" " * 70_000, headers=headers).status_code == 413


def test_a_part_that_takes_too_long_is_given_up(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    headers = shown(encoders.job(), encoders.key)
    upload = begin(client, headers).json()["upload"]
    with way(encoders.url) as slow:
        slow.rest = 0.3
        answer = client.put(
            f"{slow.url}/media/v1/uploads/{upload}/parts/1",
            content=DATA[: 64 * 1024],
            headers=headers | {"Holdfast-Sha256": "0" * 64},
        )
    assert answer.status_code == 408
    assert answer.json()["error"] == "too_slow"


def test_a_job_has_only_so_many_uploads_open(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    headers = shown(encoders.job(), encoders.key)
    begun = [begin(client, headers, f"out/{number}") for number in range(4)]
    assert [one.status_code for one in begun] == [200, 200, 200, 429]
    assert begin(client, headers, "out/1").status_code == 200  # is open already
    assert begin(client, shown(encoders.job(), encoders.key), "out/9").status_code == 200
    assert client.delete(f"/uploads/{begun[0].json()['upload']}", headers=headers).status_code == 200
    assert begin(client, headers, "out/8").status_code == 200


def test_uploads_that_nobody_goes_on_with_are_swept(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = shown(encoders.job(), encoders.key)
    upload = begin(client, headers).json()["upload"]
    long_ago = time.time() - 2 * 86_400
    for path in (encoders.uploads / upload).iterdir():
        os.utime(path, (long_ago, long_ago))
    os.utime(encoders.uploads / upload, (long_ago, long_ago))
    monkeypatch.setattr(uploads, "SWEEP_EVERY", 0.0)  # a minute has passed since the last time
    begin(client, headers, "out/other")
    assert not (encoders.uploads / upload).exists()


# -- archives --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hls(tmp_path: Path) -> Path:
    folder = tmp_path / "hls"
    for name in ("master.m3u8", "720p/index.m3u8", "720p/1.m4s", "720p/2.m4s", "thumb.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name * 100)
    return folder


def test_a_folder_is_published_as_one_archive_playlists_last(
    encoders: Encoders, behind: LocalStorage, hls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    put = behind.put

    def noted(key: str, *args: Any, **options: Any) -> Any:
        order.append(key)
        return put(key, *args, **options)

    monkeypatch.setattr(behind, "put", noted)
    stored = put_tree(encoders.storage(), "out/hls", hls)
    assert [one.key for one in stored] == order
    assert all(one.created for one in stored)
    assert order[-2:] == ["out/hls/720p/index.m3u8", "out/hls/master.m3u8"]
    for one in stored:
        assert (behind.folder / one.key).read_text() == (hls / one.key.removeprefix("out/hls/")).read_text()
        assert behind.check(one.key)
    assert list(encoders.uploads.glob("*/unpacked")) == []
    assert not any(one.created for one in put_tree(encoders.storage(), "out/hls", hls))


def test_a_folder_is_published_file_by_file_where_the_storage_is_at_hand(tmp_path: Path, hls: Path) -> None:
    local = LocalStorage(tmp_path / "local")
    shares: list[float] = []
    stored = put_tree(local, "out/hls/", hls, on_progress=shares.append)
    assert [one.key for one in stored][-1] == "out/hls/master.m3u8"
    assert shares[-1] == 1.0
    (hls / "link").symlink_to("/etc/passwd")
    with pytest.raises(MediaError) as caught:
        put_tree(local, "out/hls2", hls)
    assert caught.value.code == "BAD_ARCHIVE"


@pytest.mark.row("43")
@pytest.mark.parametrize(
    "name", ["two dots", "a symbolic link to go through", "a hard link", "zip: a symbolic link", "a cut gzip"]
)
def test_an_archive_that_does_harm_publishes_nothing(
    encoders: Encoders, behind: LocalStorage, tmp_path: Path, name: str
) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(corpus.REFUSED[name]())
    with pytest.raises(MediaError) as caught:
        encoders.storage().put_archive("out/evil", archive)
    assert caught.value.code == "BAD_ARCHIVE"
    assert not caught.value.retryable
    assert keys(behind) == ["in/film.mp4"]
    assert list(encoders.uploads.glob("*/unpacked")) == []


@pytest.mark.row("43")
def test_a_bomb_publishes_nothing(encoders: Encoders, behind: LocalStorage, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(corpus.TOO_LARGE["a bomb in gzip"]())
    with pytest.raises(MediaError) as caught:
        encoders.storage().put_archive("out/evil", archive)
    assert caught.value.code == "TOO_LARGE"
    assert keys(behind) == ["in/film.mp4"]


def test_the_archive_of_a_folder_is_the_same_each_time(encoders: Encoders, behind: LocalStorage, hls: Path) -> None:
    """So that a later attempt finds the parts that an earlier one has sent."""
    made = []
    for _ in range(2):
        for path in hls.rglob("*"):
            os.utime(path)
        _pack(hls.parent / "files.tar", dict(_files(hls, "out")), "out")
        made.append((hls.parent / "files.tar").read_bytes())
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(made[0])) as archive:
        assert archive.getnames()[-1] == "master.m3u8"
