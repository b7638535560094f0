"""What is counted of workers in other languages, which count nothing themselves."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.notify.port import Hint
from holdfast.runtime.counters import CONFLICTS
from tests.server.conftest import Asking
from tests.server.served import serving
from tests.server.test_remote_worker import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def asking() -> Iterator[Asking]:
    """A server of its own: what was counted for other tests would be told here."""
    with serving(Holdfast("memory://"), housekeeping=False, key_rate=1e6) as served:
        ask = Asking(served)
        yield ask
        ask.client.close()


def told(ask: Asking, name: str, worker: str = "server") -> dict[str, float]:
    """Return a figure of this worker by its label, or under no name."""
    text = ask.client.get(f"{ask.served.url}/metrics").text
    lines = re.findall(rf"^holdfast_worker_{name}{{(.*)}} (\S+)$", text, re.MULTILINE)
    found = [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in lines]
    return {own.get("code", ""): value for own, value in found if own["worker"] == worker}


def test_signs_of_life_and_those_that_found_no_store_are_counted(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = asking.worker()
    asking.post(f"/workers/{worker}/heartbeat")
    asking.post(f"/workers/{worker}/heartbeat", {"counters": {"heartbeats": 70}})  # this one counts for itself

    async def away(_: object) -> None:
        raise StoreUnavailable("somewhere", 0.0, "gone")

    monkeypatch.setattr(asking.store, "beat", away)
    assert asking.post(f"/workers/{worker}/heartbeat").status_code == 503
    assert told(asking, "heartbeats_total") == {"": 1.0}
    assert told(asking, "heartbeats_total", "one") == {"": 70.0}
    assert told(asking, "heartbeat_failures_total") == {"": 1.0}


def test_failures_that_another_attempt_follows_are_counted_by_code_and_once(asking: Asking) -> None:
    for code, attempts in (("BOOM", 3), ("LAST", 1)):
        job = asking.claimed(retry={"max_attempts": attempts})
        for _ in range(2):
            asking.post(f"/jobs/{job['job_id']}/fail", {"token": job["token"], "code": code})
    assert told(asking, "retry_attempts_total") == {"BOOM": 1.0}


def test_a_worker_that_does_not_say_what_it_runs_runs_what_it_holds(asking: Asking) -> None:
    job = asking.claimed("busy")
    assert told(asking, "concurrent_jobs", "busy") == {"": 1.0}
    asking.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]})
    assert told(asking, "concurrent_jobs", "busy") == {"": 0.0}


async def test_a_claim_that_was_hinted_at_jobs_and_found_none_is_counted(asking: Asking) -> None:
    worker = asking.worker()
    waiting = threading.Thread(target=lambda: asking.claim(worker, tasks=["t"], wait_ms=3000))
    waiting.start()
    counters, notifier = asking.served.server.context.counters, asking.served.server.context.notifier

    def conflicts() -> int:
        asking.served.loop.call_soon_threadsafe(notifier.hint, Hint(frozenset({"default"})))
        return counters.total(CONFLICTS)

    await until(conflicts, "nobody counted it")
    asking.enqueue(task="t")
    waiting.join()
