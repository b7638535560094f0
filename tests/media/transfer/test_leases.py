"""Nothing is read or accepted without the lease of the job, and nothing but what the job names."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from holdfast.core.job import NewJob
from holdfast.core.lease import Lease
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import Role, Settlement
from holdfast.system import SystemEnvironment
from holdfast_media.errors import MediaError
from holdfast_media.storage import Attempt, put_tree
from holdfast_media.transfer.grants import Grant, grants_by_fields
from tests.media.transfer.served import Encoders, attempt_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx2

    from holdfast_media.storage.local import LocalStorage

DATA = b"an artifact" * 20_000
SHA256 = hashlib.sha256(DATA).hexdigest()
PART = 64 * 1024


def begin(client: httpx2.Client, headers: dict[str, str], key: str = "out/a.m4s", **fields: Any) -> httpx2.Response:
    body = {"key": key, "size": len(DATA), "sha256": SHA256, "part_size": PART, **fields}
    return client.post("/uploads", json=body, headers=headers)


def send(client: httpx2.Client, headers: dict[str, str], upload: str, number: int) -> httpx2.Response:
    data = DATA[(number - 1) * PART : number * PART]
    sums = {"Holdfast-Sha256": hashlib.sha256(data).hexdigest()}
    return client.put(f"/uploads/{upload}/parts/{number}", content=data, headers=headers | sums)


def sent(client: httpx2.Client, headers: dict[str, str], **fields: Any) -> str:
    """Send all parts of an upload, and return its id."""
    begun = begin(client, headers, **fields).json()
    for number in range(1, begun["parts"] + 1):
        assert send(client, headers, begun["upload"], number).status_code == 200
    upload: str = begun["upload"]
    return upload


def keys(storage: LocalStorage) -> list[str]:
    return [one.key for one in storage.list()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "artifact"
    path.write_bytes(DATA)
    return path


def test_the_holder_of_a_job_publishes(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    headers = shown(encoders.job(), encoders.key)
    done = client.post(f"/uploads/{sent(client, headers)}/complete", headers=headers)
    assert done.status_code == 200, done.text
    assert done.json()["files"][0]["created"]
    found = behind.head("out/a.m4s")
    assert found is not None
    assert found.sha256 == SHA256
    assert behind.check("out/a.m4s")


@pytest.mark.parametrize("moment", ["begin", "part", "complete", "state", "discard", "download", "delete", "list", "facts"])
def test_a_stale_lease_is_refused_at_every_request_and_nothing_is_published(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, moment: str
) -> None:
    job = encoders.job()
    headers = shown(job, encoders.key)
    upload = sent(client, headers)
    taken = encoders.ask.taken_over(job)
    answers = {
        "begin": lambda: begin(client, headers),
        "part": lambda: send(client, headers, upload, 1),
        "complete": lambda: client.post(f"/uploads/{upload}/complete", headers=headers),
        "state": lambda: client.get(f"/uploads/{upload}", headers=headers),
        "discard": lambda: client.delete(f"/uploads/{upload}", headers=headers),
        "download": lambda: client.get("/files/in/film.mp4", headers=headers),
        "delete": lambda: client.delete("/files/in/film.mp4", headers=headers),
        "list": lambda: client.get("/files?prefix=out/", headers=headers),
        "facts": lambda: client.get("/facts/in/film.mp4", headers=headers),
    }
    answer = answers[moment]()
    assert answer.status_code == 409
    assert answer.json()["error"] == "stale"
    assert "attempt 2" in answer.json()["message"]
    assert keys(behind) == ["in/film.mp4"]
    # whoever holds it now goes on with the parts that are there
    rest = begin(client, shown(taken, encoders.key)).json()
    assert rest["have"] == list(range(1, rest["parts"] + 1))
    assert client.post(f"/uploads/{upload}/complete", headers=shown(taken, encoders.key)).status_code == 200


def test_a_lease_that_is_lost_while_the_server_publishes_is_refused_in_the_last_moment(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first proof passes; the job is taken while the content is checked, before it is given its name."""
    job = encoders.job()
    headers = shown(job, encoders.key)
    upload = sent(client, headers)
    put = behind.put

    def taken_meanwhile(*args: Any, **options: Any) -> Any:
        encoders.ask.taken_over(job)
        return put(*args, **options)

    monkeypatch.setattr(behind, "put", taken_meanwhile)
    answer = client.post(f"/uploads/{upload}/complete", headers=headers)
    assert answer.status_code == 409
    assert answer.json()["error"] == "stale"
    assert keys(behind) == ["in/film.mp4"]
    assert list((behind.folder / ".holdfast/work").iterdir()) == []


@pytest.mark.parametrize(
    "kind", ["released", "completed", "canceled", "deleted", "wrong token", "wrong attempt", "another job"]
)
def test_what_is_no_lease_any_more_publishes_nothing(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, kind: str
) -> None:
    job = encoders.job()
    headers = shown(job, encoders.key)
    upload = sent(client, headers)
    ask, path = encoders.ask, f"/jobs/{job['job_id']}"
    match kind:
        case "released":
            assert ask.post(f"{path}/release", {"token": job["token"]}).status_code == 200
        case "completed":
            assert ask.post(f"{path}/complete", {"token": job["token"]}).status_code == 200
        case "canceled":
            assert ask.post(f"{path}/cancel", {}).status_code == 200
            assert ask.post(f"{path}/release", {"token": job["token"]}).json()["state"] == "canceled"
        case "deleted":
            assert ask.post(f"{path}/complete", {"token": job["token"]}).status_code == 200
            ask.run(ask.store.delete([ask_id(job)], by="tests"))
        case "wrong token":
            headers["Holdfast-Token"] = str(uuid4())
        case "wrong attempt":
            headers["Holdfast-Attempt"] = "2"
        case _:
            headers["Holdfast-Token"] = encoders.job()["token"]
    answer = client.post(f"/uploads/{upload}/complete", headers=headers)
    assert answer.status_code == 409, answer.text
    assert keys(behind) == ["in/film.mp4"]


def ask_id(job: dict[str, Any]) -> Any:
    return UUID(job["job_id"])


def until(true: Callable[[], bool]) -> None:
    """Wait for what a server does: files tell nobody."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_part_counts_only_while_the_lease_is_held(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    """It may come for minutes: the job is taken while it does."""
    job = encoders.job()
    headers = shown(job, encoders.key)
    upload = begin(client, headers).json()["upload"]
    taken: list[dict[str, Any]] = []

    def slowly() -> Iterator[bytes]:
        yield DATA[: PART // 2]
        until(lambda: any((encoders.uploads / upload).glob("part.*")))  # the lease was proven, and the part is being written
        taken.append(encoders.ask.taken_over(job))
        yield DATA[PART // 2 : PART]

    sums = {"Holdfast-Sha256": hashlib.sha256(DATA[:PART]).hexdigest()}
    answer = client.put(f"/uploads/{upload}/parts/1", content=slowly(), headers=headers | sums)
    assert (answer.status_code, answer.json()["error"]) == (409, "stale")
    now = shown(taken[0], encoders.key)
    assert begin(client, now).json()["have"] == []
    assert send(client, now, upload, 1).status_code == 200
    # and one that is there stays there, whatever a later one is
    wrong = client.put(f"/uploads/{upload}/parts/1", content=b"x" * PART, headers=now | sums)
    assert wrong.status_code == 422
    assert begin(client, now).json()["have"] == [1]
    assert [one.name for one in (encoders.uploads / upload).iterdir() if one.name.startswith("part.")] == []


def test_a_file_is_deleted_only_while_the_lease_is_held(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    """The lease is lost between the request and the deletion: where threads, or the storage, are slow."""
    job = encoders.job()
    headers = shown(job, encoders.key)
    behind.put("out/a.m4s", file)
    to_thread = asyncio.to_thread

    async def late(work: Any, *args: Any) -> Any:
        if getattr(work, "__name__", "") == "delete":
            await asyncio.get_running_loop().run_in_executor(None, encoders.ask.taken_over, job)
        return await to_thread(work, *args)

    monkeypatch.setattr(asyncio, "to_thread", late)
    answer = client.delete("/files/out/a.m4s", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (409, "stale")
    assert behind.head("out/a.m4s") is not None


def test_the_client_says_that_the_lease_was_lost(encoders: Encoders, behind: LocalStorage, file: Path) -> None:
    job = encoders.job()
    storage = encoders.storage(job)
    encoders.ask.taken_over(job)
    with pytest.raises(MediaError) as caught:
        storage.put("out/a.m4s", file)
    assert caught.value.code == "STALE_LEASE"
    assert not caught.value.retryable
    assert job["token"] not in str(caught.value)
    assert keys(behind) == ["in/film.mp4"]


def test_an_archive_of_a_stale_lease_publishes_nothing(
    encoders: Encoders, behind: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hls").mkdir()
    for name in ("index.m3u8", "1.m4s", "2.m4s"):
        (tmp_path / "hls" / name).write_text(name)
    job = encoders.job()
    storage = encoders.storage(job)
    put = behind.put

    def taken_meanwhile(*args: Any, **options: Any) -> Any:
        if encoders.ask.state(job) == "running" and encoders.ask.get(f"/jobs/{job['job_id']}").json()["attempt"] == 1:
            encoders.ask.taken_over(job)
        return put(*args, **options)

    monkeypatch.setattr(behind, "put", taken_meanwhile)
    with pytest.raises(MediaError) as caught:
        put_tree(storage, "out/hls", tmp_path / "hls")
    assert caught.value.code == "STALE_LEASE"
    assert keys(behind) == ["in/film.mp4"]


# -- who may come in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (lambda _: "hf_" + "a" * 12 + "_" + "b" * 43, 401),
        (lambda ask: ask.key(Role.VIEWER), 403),
        (lambda ask: ask.key(Role.CLIENT), 403),
        (lambda ask: ask.key(Role.WORKER, queues=("other",), actions=("work",)), 403),
        (lambda ask: ask.key(Role.WORKER, actions=("get",)), 403),
        (lambda ask: ask.key(Role.WORKER), 403),  # may enqueue, and so name any file in a job of its own
        (lambda ask: ask.key(Role.WORKER, queues=("default",), actions=("work",)), 200),
    ],
)
def test_keys_and_their_scopes_are_respected(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, make: Any, status: int
) -> None:
    headers = shown(encoders.job(), make(encoders.ask))
    answer = client.get("/files/in/film.mp4", headers=headers)
    assert answer.status_code == status, answer.text
    assert begin(client, headers).status_code == status
    if status == 403:
        assert answer.json()["fix"]


@pytest.mark.parametrize("missing", ["Holdfast-Job", "Holdfast-Attempt", "Holdfast-Token"])
def test_a_request_without_a_lease_is_refused(encoders: Encoders, client: httpx2.Client, missing: str) -> None:
    headers = shown(encoders.job(), encoders.key)
    del headers[missing]
    answer = client.get("/files/in/film.mp4", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_a_storage_that_is_not_bound_says_so(encoders: Encoders) -> None:
    storage = encoders.storage()
    storage._attempt = None
    with pytest.raises(MediaError, match=r"bind\(Attempt") as caught:
        storage.head("in/film.mp4")
    assert caught.value.code == "BAD_STORAGE"


# -- what a job may use ----------------------------------------------------------------------------------------------------


def test_a_job_reads_and_writes_what_its_args_name_and_nothing_else(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, file: Path
) -> None:
    behind.put("in/other.mp4", file)
    behind.put("out/41/secret", file)
    headers = shown(encoders.job(source="in/film.mp4", output="out/4"), encoders.key)
    assert client.get("/files/in/film.mp4", headers=headers).status_code == 200
    for path in (
        "/files/in/other.mp4",
        "/facts/in/other.mp4",
        "/files/out/41/secret",
        "/files?prefix=in/",
        "/files?prefix=out/",
    ):
        assert client.get(path, headers=headers).status_code == 403, path
    assert client.get("/files?prefix=out/4", headers=headers).json()["files"] == []
    assert client.post("/checks", json={"key": "in/other.mp4"}, headers=headers).status_code == 403
    for key in ("in/film.mp4", "in/film.mp4/x", "out/41/x", "out/x", "other"):
        assert begin(client, headers, key).status_code == 403, key
    assert client.delete("/files/in/film.mp4", headers=headers).status_code == 403
    assert client.delete("/files/out/41/secret", headers=headers).status_code == 403
    assert begin(client, headers, "out/4/x").status_code == 200
    assert begin(client, headers, "out/4").status_code == 200


def test_an_upload_of_one_job_is_not_anothers(encoders: Encoders, client: httpx2.Client, behind: LocalStorage) -> None:
    upload = sent(client, shown(encoders.job(output="out/1"), encoders.key), key="out/1/a")
    other = shown(encoders.job(output="out/2"), encoders.key)
    for answer in (
        send(client, other, upload, 1),
        client.get(f"/uploads/{upload}", headers=other),
        client.delete(f"/uploads/{upload}", headers=other),
        client.post(f"/uploads/{upload}/complete", headers=other),
    ):
        assert answer.status_code == 403
    assert keys(behind) == ["in/film.mp4"]


def test_a_worker_cannot_grant_itself_files_by_continuing_a_chain(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage
) -> None:
    """What a continued job may use is said by the first step of its chain, which no worker has written."""
    job = encoders.job(source="in/none.mp4", output="out/1")
    store = encoders.ask.store
    encoders.ask.run(continued(store, job, '{"source": "in/film.mp4", "output": "out"}'))
    step = encoders.ask.claim(encoders.ask.worker("two"), tasks=["forged"])[0]
    headers = shown(step, encoders.key)
    assert step["args"]["source"] == "in/film.mp4"
    assert client.get("/files/in/film.mp4", headers=headers).status_code == 403
    assert begin(client, headers, "out/2/a").status_code == 403
    assert begin(client, headers, "out/1/a").status_code == 200


async def continued(store: Any, job: dict[str, Any], args: str) -> None:
    then = NewJob(id=SystemEnvironment().job_id(), task="forged", args=args)
    write = Write(Event.CONTINUE, failures=0)
    await store.settle([Settlement(Lease(UUID(job["job_id"]), UUID(job["token"])), write, then=then)])


@pytest.mark.parametrize("source", [5, {"a": 1}, ["in/film.mp4", 7], "../up", "", True])
def test_args_that_name_no_keys_grant_nothing(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, source: Any
) -> None:
    answer = client.get("/files/in/film.mp4", headers=shown(encoders.job(source=source), encoders.key))
    assert answer.status_code == 403


def test_fields_are_found_where_they_are_named() -> None:
    grants = grants_by_fields(reads=("video.source", "extra"), writes=("output",))
    args = {"video": {"source": "in/a"}, "extra": ["b/", "c"], "output": None}
    assert grants("task", args) == Grant(("in/a", "b", "c"), ())
    assert grants("task", {}) == Grant()
    grant = Grant(("a/b",), ("c",))
    assert [key for key in ("a/b", "a/b/c", "a/bc", "a", "c", "c/d", "cd") if grant.may_read(key)] == [
        "a/b",
        "a/b/c",
        "c",
        "c/d",
    ]
    assert [key for key in ("a/b", "c", "c/", "c/d") if grant.may_write(key)] == ["c", "c/", "c/d"]


def test_the_attempt_of_a_job_is_made_from_it() -> None:
    class Job:
        id = uuid4()
        attempt = 3
        token = uuid4()

    assert Attempt.of(Job()) == Attempt(str(Job.id), 3, str(Job.token))
    assert attempt_of({"job_id": "a", "attempt": 1, "token": "t"}).token == "t"
