"""The probes of a worker over HTTP, asked by decent clients and by others."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.errors import BadSetting
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast import Holdfast

PATIENCE = 60.0


class Asking:
    """Says something to a port, and hears all that is answered."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def say(self, said: bytes) -> tuple[int, bytes]:
        """Return status and body; 0 where nothing was answered."""
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(said)
                heard = await reader.read()
            except ConnectionError:
                heard = b""
            finally:
                writer.transport.abort()
        head, _, body = heard.partition(b"\r\n\r\n")
        return (int(head.split(b" ")[1]) if head else 0), body

    async def get(self, path: str) -> tuple[int, Any]:
        """Return the status, and what a JSON body holds."""
        status, body = await self.say(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        return status, json.loads(body)

    async def silent(self, said: bytes) -> asyncio.StreamWriter:
        """Connect, say the beginning of something, and leave it at that."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(said)
        return writer


@asynccontextmanager
async def asking(app: Holdfast, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Asking]:
    """A worker with probes on a free port, which its log tells."""
    with caplog.at_level("INFO", "holdfast.worker"):
        async with app.worker(name="w", health="0"):
            told = re.search(r"health at http://127\.0\.0\.1:(\d+)/health/live", caplog.text)
            assert told is not None
            yield Asking(int(told[1]))


async def test_live_and_ready_tell_every_check(memory_app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    async with asking(memory_app, caplog) as ask:
        for path, names in (("live", {"event_loop", "claimer", "heartbeat"}), ("ready", {"registered", "store", "claims"})):
            status, health = await ask.get(f"/health/{path}")
            assert (status, health["ok"]) == (200, True)
            assert names <= {check["name"] for check in health["checks"] if check["ok"]}
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", ask.port)


async def test_metrics_are_those_of_this_worker_under_the_servers_names(
    memory_app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @memory_app.task(name="work")
    async def work() -> None: ...

    async with asking(memory_app, caplog) as ask:
        await (await work.enqueue()).result(timeout=PATIENCE)
        (worker,) = await memory_app.client().store.workers()

        async def counted() -> bool:
            status, text = await ask.say(b"GET /metrics HTTP/1.1\r\n\r\n")
            samples = [sample for family in text_string_to_metric_families(text.decode()) for sample in family.samples]
            assert status == 200
            assert {(sample.labels["worker"], sample.labels["id"]) for sample in samples} == {("w", str(worker.worker.id))}
            found = {sample.name: sample.value for sample in samples}
            return found["holdfast_worker_claimed_jobs_total"] == 1 and found.get("holdfast_worker_settled_jobs_total") == 1

        await until(counted)


async def test_without_the_package_for_metrics_it_says_so(
    memory_app: Holdfast, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.runtime.exposing", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with asking(memory_app, caplog) as ask:
        status, text = await ask.say(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert (status, text) == (501, b"figures need a package more: pip install prometheus-client\n")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /health/live?x=1 HTTP/1.0\r\n\r\n", 200),
        (b"POST /health/live HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /health/live HTTP/2\r\n\r\n", 400),
        (b"\xff\x00\xfe\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /health/live HTTP/1.1\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n", 431),
    ],
)
async def test_every_request_has_an_answer(
    memory_app: Holdfast, caplog: pytest.LogCaptureFixture, said: bytes, status: int
) -> None:
    async with asking(memory_app, caplog) as ask:
        assert (await ask.say(said))[0] == status
        assert (await ask.get("/health/live"))[0] == 200
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_two_hundred_at_once_are_all_answered(memory_app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    async with asking(memory_app, caplog) as ask:
        answers = await asyncio.gather(*(ask.get("/health/live") for _ in range(200)))
    assert [status for status, _ in answers] == [200] * 200


async def test_those_who_say_nothing_keep_nobody_out(memory_app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    async with asking(memory_app, caplog) as ask:
        silent = [await ask.silent(b"GET /hea") for _ in range(400)]
        assert (await ask.get("/health/live"))[0] == 200
        for writer in silent:
            writer.transport.abort()


async def test_who_is_too_slow_is_hung_up_on(
    memory_app: Holdfast, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.endpoint.IN_TIME", 0.1)
    async with asking(memory_app, caplog) as ask:
        assert (await ask.say(b"GET /health/live HTTP/1.1\r\n"))[0] == 0


async def test_a_port_that_is_taken_is_told_before_anything_starts(memory_app: Holdfast) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadSetting, match=rf"health: cannot listen on {port}: Address already in use"):
            await memory_app.worker(health=str(port)).__aenter__()
    with pytest.raises(BadSetting, match="health must be"):
        memory_app.worker(health="somewhere")
