"""A worker that claims and reports is alive, however late its heartbeat is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from holdfast.server.api import signs
from holdfast.store.port import WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.conftest import Asking

SILENCE = 100.0


def told(ask: Asking, worker: UUID) -> WorkerState:
    """Return how a worker stands after the silent ones were marked."""
    ask.run(ask.store.mark_offline(SILENCE))
    state: WorkerState = ask.run(ask.store.workers(ids=[worker]))[0].state
    return state


def ref(job: dict[str, Any]) -> dict[str, Any]:
    return {"job_id": job["job_id"], "token": job["token"]}


def one(path: str, **body: Any) -> Callable[[Asking, dict[str, Any]], Any]:
    return lambda ask, job: ask.post(f"/jobs/{job['job_id']}/{path}", {"token": job["token"], **body})


def batch(path: str, **body: Any) -> Callable[[Asking, dict[str, Any]], Any]:
    return lambda ask, job: ask.post(f"/leases/{path}", {"items": [ref(job) | body]})


SIGNS = {
    "claim": lambda ask, job: ask.post(f"/workers/{job['worker']}/claim", {"tasks": ["none"]}),
    "extend": one("extend"),
    "progress": one("progress", percent=1.0),
    "checkpoint": one("checkpoint", name="a", state="completed"),
    "log": one("log", message="hello"),
    "complete": one("complete"),
    "fail": one("fail", code="BOOM", message="no"),
    "release": one("release"),
    "leases/extend": lambda ask, job: ask.post("/leases/extend", {"leases": [ref(job)]}),
    "leases/progress": batch("progress", percent=1.0),
    "leases/log": batch("log", message="hello"),
    "leases/settle": batch("settle", event="succeeded", state="succeeded", failures=0),
}


@pytest.fixture
def at_work(ask: Asking) -> Callable[[], tuple[UUID, dict[str, Any]]]:
    """Return a worker that holds a job, and was heard of too long ago."""

    def make() -> tuple[UUID, dict[str, Any]]:
        job = ask.claimed()
        worker = ask.run(ask.store.get([UUID(job["job_id"])]))[0].worker_id
        ask.run(ask.store.rewind(2 * SILENCE))
        return worker, job | {"worker": worker}

    return make


@pytest.mark.parametrize("sign", SIGNS)
def test_what_a_worker_does_is_a_sign_of_life(
    ask: Asking, at_work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    monkeypatch.setattr(signs, "LATE", 0.0)
    worker, job = at_work()
    assert told(ask, worker) is WorkerState.OFFLINE
    answer = SIGNS[sign](ask, job)
    assert answer.status_code == 200, answer.text
    assert told(ask, worker) is not WorkerState.OFFLINE


def test_what_was_claimed_through_another_server_is_one_too(
    ask: Asking, at_work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds it is looked up once, whatever else comes under the same lease."""
    monkeypatch.setattr(signs, "LATE", 0.0)
    worker, job = at_work()
    monkeypatch.setattr(ask.served.server.api.signs, "_holders", type(ask.served.server.api.signs._holders)())
    looked: list[Any] = []
    get = ask.store.get

    async def counted(ids: Any) -> Any:
        looked.append(ids)
        return await get(ids)

    monkeypatch.setattr(ask.store, "get", counted)
    for _ in range(3):
        assert one("progress", percent=2.0)(ask, job).status_code == 200
    assert told(ask, worker) is not WorkerState.OFFLINE
    assert len(looked) == 1


def test_a_stale_token_keeps_nobody_alive(ask: Asking, at_work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs, "LATE", 0.0)
    worker, job = at_work()
    ask.run(ask.store.revoke(worker, by="test"))
    assert one("progress", percent=2.0)(ask, job).status_code == 409
    assert told(ask, worker) is WorkerState.OFFLINE


def test_jobs_cost_no_more_writes_for_it(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who registered or beat within half a minute is known to live: nothing is asked of the store."""
    written: list[Any] = []

    async def heard(workers: Any) -> None:
        written.append(workers)

    monkeypatch.setattr(ask.store, "heard", heard)
    for _ in range(5):
        job = ask.claimed()
        for sign in ("extend", "progress", "log", "complete"):
            assert SIGNS[sign](ask, job).status_code == 200
    assert written == []
