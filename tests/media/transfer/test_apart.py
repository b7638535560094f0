"""The event loop of a server never waits for a storage, and long work takes no thread of its requests."""

from __future__ import annotations

import asyncio
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast_media.errors import MediaError
from holdfast_media.storage.hashing import CHUNK
from holdfast_media.transfer import routes
from holdfast_media.transfer.apart import Reading
from tests.media.transfer.conftest import LIMITS
from tests.media.transfer.served import Encoders, shown

if TYPE_CHECKING:
    import httpx2

    from holdfast_media.storage.local import LocalStorage

LOOP = "server-of-the-tests"


class Slow(io.RawIOBase):
    """A content whose connection falls silent after the first bytes, until it is let go."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.left = first
        self.inside = threading.Event()
        self.gate = threading.Event()
        self.closed_by = ""
        self.ended = threading.Event()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.left:
            self.inside.set()
            self.gate.wait(30)
        count = min(len(buffer), self.left or len(buffer))
        self.left = max(0, self.left - count)
        buffer[:count] = b"x" * count
        return count

    def close(self) -> None:
        if not self.closed:
            self.closed_by = threading.current_thread().name
            super().close()
            self.ended.set()


def test_who_hangs_up_while_the_storage_is_slow_stops_nobody_else(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Slow(CHUNK // 4)
    monkeypatch.setattr(behind, "open", lambda *_: io.BufferedReader(raw, CHUNK // 4))
    monkeypatch.setattr(routes, "CHUNK", CHUNK // 4)
    headers = shown(encoders.job(), encoders.key)
    path = behind.folder / "in/film.mp4"
    path.write_bytes(bytes(4 * 2**20))
    with client.stream("GET", "/files/in/film.mp4", headers=headers) as answer:
        assert answer.status_code == 200
        next(answer.iter_raw())
        assert raw.inside.wait(10)
    try:
        for _ in range(20):  # by the last of them the server has noticed
            assert client.get("/room", headers=headers, timeout=3).status_code == 200
    finally:
        raw.gate.set()
    assert raw.ended.wait(10)
    assert raw.closed_by != LOOP


async def test_a_reader_that_is_canceled_while_it_opens_is_closed() -> None:
    raw, opening = Slow(1), threading.Event()

    def opened() -> Any:
        opening.set()
        raw.gate.wait(30)
        return raw

    with ThreadPoolExecutor(2) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        waiting = asyncio.ensure_future(Reading.of(opened))
        while not opening.is_set():  # noqa: ASYNC110  set in a thread
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not raw.closed
        raw.gate.set()
    assert raw.ended.is_set()


def test_a_file_that_vanishes_is_not_found(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(key: str, *_: Any) -> Any:
        raise MediaError("NOT_FOUND", key)

    monkeypatch.setattr(behind, "open", gone)
    assert client.get("/files/in/film.mp4", headers=shown(encoders.job(), encoders.key)).status_code == 404


def test_a_lease_that_is_lost_while_the_file_is_opened_is_said(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, opened = encoders.job(), behind.open

    def late(*args: Any) -> Any:
        encoders.ask.taken_over(job)
        return opened(*args)

    monkeypatch.setattr(behind, "open", late)
    monkeypatch.setattr(type(LIMITS), "proof", property(lambda _: 0.0))
    answer = client.get("/files/in/film.mp4", headers=shown(job, encoders.key))
    assert (answer.status_code, answer.json()["error"]) == (409, "stale")


def test_long_checks_are_bounded_and_leave_the_others_their_threads(
    encoders: Encoders, client: httpx2.Client, behind: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def check(*_: Any, **__: Any) -> bool:
        begun.release()
        return gate.wait(30)

    monkeypatch.setattr(behind, "check", check)
    headers = shown(encoders.job(), encoders.key)
    with ThreadPoolExecutor(LIMITS.at_once) as pool:
        asked = [
            pool.submit(client.post, "/checks", json={"key": "in/film.mp4"}, headers=headers) for _ in range(LIMITS.at_once)
        ]
        try:
            for _ in asked:
                assert begun.acquire(timeout=10)
            busy = client.post("/checks", json={"key": "in/film.mp4"}, headers=headers)
            assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
            assert client.get("/facts/in/film.mp4", headers=headers, timeout=3).status_code == 200
        finally:
            gate.set()
        assert [one.result().json() for one in asked] == [{"intact": True}] * LIMITS.at_once
    assert client.post("/checks", json={"key": "in/film.mp4"}, headers=headers).status_code == 200
