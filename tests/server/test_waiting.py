"""Claims that wait for jobs, and hints as a stream: woken at once, given back when nobody is there any more."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from holdfast import Holdfast
from holdfast.notify.port import Hint
from holdfast.server.api.hearing import MOST_NAMES, Ear
from holdfast.server.keys import key_id
from holdfast.store.port import Role
from tests.server.conftest import Asking
from tests.server.served import SECRET, bearer, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

SOON = 5.0


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


class Counted:
    """Counts the claims that reach the store."""

    def __init__(self, ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claims = 0
        real = ask.store.claim

        async def claim(request: Any) -> Any:
            found = await real(request)
            self.claims += 1
            return found

        monkeypatch.setattr(ask.store, "claim", claim)


def waiting(ask: Asking, counted: Counted) -> None:
    """Return when a claim has found nothing and waits."""
    until(lambda: counted.claims > 0, "no claim came")
    hearing = ask.served.server.api.hearing
    until(lambda: bool(hearing._ears), "nobody waits")


def test_a_waiting_claim_is_woken_by_the_job_and_asks_the_store_no_more_than_it_must(
    ask: Asking, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    counted = Counted(ask, monkeypatch)
    worker = ask.worker()
    claim = pool.submit(ask.claim, worker, tasks=["woken"], wait_ms=20_000)
    waiting(ask, counted)
    began = time.monotonic()
    job_id = ask.enqueue(task="woken")
    jobs = claim.result(SOON)
    assert [job["job_id"] for job in jobs] == [str(job_id)]
    assert time.monotonic() - began < 0.9  # below the second after which it would look by itself
    assert counted.claims <= 3


def test_a_claim_waits_no_longer_than_it_was_told(ask: Asking) -> None:
    began = time.monotonic()
    assert ask.claim(ask.worker(), tasks=["never"], wait_ms=200) == []
    assert 0.2 <= time.monotonic() - began < 2.0


def test_hints_about_other_queues_wake_nobody(ask: Asking, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    counted = Counted(ask, monkeypatch)
    worker = ask.worker()
    claim = pool.submit(ask.claim, worker, tasks=["quiet"], queues=["mine"], wait_ms=400)
    waiting(ask, counted)
    before = counted.claims
    for _ in range(5):
        ask.enqueue(task="quiet", queue="others")
    assert claim.result(SOON) == []
    assert counted.claims == before


def raw_claim(ask: Asking, worker: UUID, task: str) -> socket.socket:
    """Send a claim that waits, on a connection of its own."""
    address = httpx2.URL(ask.served.url)
    line = socket.create_connection((address.host, address.port or 0))
    body = f'{{"tasks": ["{task}"], "wait_ms": 20000}}'
    line.sendall(
        f"POST /api/v1/workers/{worker}/claim HTTP/1.1\r\nHost: {address.host}\r\nAuthorization: Bearer {SECRET}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    return line


def test_who_hangs_up_while_waiting_claims_nothing_any_more(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(ask, monkeypatch)
    line = raw_claim(ask, ask.worker(), "hung.up")
    waiting(ask, counted)
    line.close()
    until(lambda: not ask.served.server.api.hearing._ears, "the claim still waits")
    job_id = ask.enqueue(task="hung.up")
    assert ask.get(f"/jobs/{job_id}").json()["state"] == "ready"


def test_jobs_claimed_for_who_hung_up_are_given_back_at_no_cost(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client goes in the very moment in which the store hands out the job."""
    reached, go_on = threading.Event(), asyncio.Event()
    real = ask.store.claim

    async def slow(request: Any) -> Any:
        found = await real(request)
        if found:
            reached.set()
            await go_on.wait()
        return found

    job_id = ask.enqueue(task="given.back")
    monkeypatch.setattr(ask.store, "claim", slow)
    line = raw_claim(ask, ask.worker(), "given.back")
    assert reached.wait(SOON)
    assert ask.get(f"/jobs/{job_id}").json()["state"] == "running"
    line.close()
    monkeypatch.setattr(ask.store, "claim", real)
    ask.get("/server")  # answered by the same event loop, which has seen the hang-up by then
    ask.served.loop.call_soon_threadsafe(go_on.set)
    until(lambda: ask.get(f"/jobs/{job_id}").json()["state"] == "ready", "the job was not given back")
    view = ask.get(f"/jobs/{job_id}").json()
    assert (view["failures"], view["attempt"]) == (0, 1)
    assert [job["job_id"] for job in ask.claim(ask.worker(), tasks=["given.back"])] == [str(job_id)]


def test_a_key_that_is_revoked_while_a_claim_waits_gets_no_job(
    ask: Asking, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    counted = Counted(ask, monkeypatch)
    key = ask.key(Role.WORKER)
    worker = ask.worker(key=key)
    claim = pool.submit(ask.post, f"/workers/{worker}/claim", {"tasks": ["revoked"], "wait_ms": 20_000}, key)
    waiting(ask, counted)
    ask.run(ask.store.revoke_key(key_id(key) or "", by="test"))
    time.sleep(0.6)  # a key is believed for half a second
    job_id = ask.enqueue(task="revoked")
    assert claim.result(SOON).status_code == 401
    assert ask.get(f"/jobs/{job_id}").json()["state"] == "ready"


def test_a_server_that_stops_answers_those_who_wait(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Holdfast("memory://"), housekeeping=False) as served:
        ask = Asking(served)
        counted = Counted(ask, monkeypatch)
        worker = ask.worker()
        claim = pool.submit(ask.claim, worker, tasks=["stopping"], wait_ms=20_000)
        waiting(ask, counted)
        began = time.monotonic()
    assert claim.result(SOON) == []
    assert time.monotonic() - began < 5.0
    ask.client.close()


# -- hints -----------------------------------------------------------------------------------------------------------------


def events(served: Any, key: str) -> Iterator[httpx2.ServerSentEvent]:
    with (
        httpx2.Client(verify=False, timeout=SOON) as client,
        client.stream("GET", f"{served.api}/hints", headers=bearer(key)) as response,
    ):
        yield from httpx2.EventSource(response)


def test_hints_are_told_to_those_who_may_hear_them(ask: Asking) -> None:
    every, own = events(ask.served, SECRET), events(ask.served, ask.key(Role.WORKER, queues=("mine",)))
    assert [next(every).event, next(own).event] == ["open", "open"]
    notifier = ask.served.server.context.notifier
    notifier.hint(Hint(frozenset({"theirs"})))
    assert msgspec.json.decode(next(every).data, type=Hint) == Hint(frozenset({"theirs"}))
    notifier.hint(Hint(frozenset({"mine", "theirs"}), later=True, ready=(uuid4(),)))  # perhaps one of theirs
    assert msgspec.json.decode(next(own).data, type=Hint) == Hint(frozenset({"mine"}), later=True)
    every.close()  # type: ignore[attr-defined]
    own.close()  # type: ignore[attr-defined]


def test_a_stream_ends_with_its_key(ask: Asking) -> None:
    key = ask.key(Role.WORKER)
    stream = events(ask.served, key)
    assert next(stream).event == "open"
    ask.run(ask.store.revoke_key(key_id(key) or "", by="test"))
    time.sleep(0.6)  # a key is believed for half a second
    ask.served.server.context.notifier.hint(Hint(frozenset({"q"})))
    assert list(stream) == []


async def test_who_reads_slowly_costs_one_slot_and_misses_no_more_than_names(ask: Asking) -> None:
    ear = Ear()
    for number in range(2 * MOST_NAMES):
        ear.tell(Hint(frozenset({f"q{number}"})))
    hint = await ear.hear(0)
    assert hint.anything
    assert len(hint.queues) < MOST_NAMES
