"""What attempts came to that workers of other languages run: nothing is told that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.core.figures import BUCKETS, bucket
from holdfast.runtime.figures import Figures
from holdfast.server.api import ledger
from holdfast.server.api.ledger import Ledger
from holdfast.store.port import Grain
from tests.server.conftest import Asking
from tests.server.served import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.core.figures import Figure

WAITED = 20.0
NO_WAITS = (0,) * BUCKETS


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Asking, Asking]]:
    """Two servers before one store."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(Holdfast(url), key_rate=1e6) as first, serving(Holdfast(url), key_rate=1e6) as second:
        asks = Asking(first), Asking(second)
        for ask in asks:
            ask.served.server.api.ledger = Ledger(Figures())  # which nobody writes meanwhile
        yield asks
        for ask in asks:
            ask.client.close()


def claimed_after_a_while(ask: Asking) -> dict[str, Any]:
    task, worker = "tests.wait", ask.worker()
    ask.enqueue(task=task)
    ask.run(ask.store.rewind(WAITED))
    (job,) = ask.claim(worker, tasks=[task])
    return job


def figures(ask: Asking) -> list[Figure]:
    """Return what this server has added up and not written yet."""
    return ask.served.server.api.ledger.figures.take()


def test_an_attempt_tells_how_long_its_job_waited(servers: tuple[Asking, Asking]) -> None:
    ask, _ = servers
    job = claimed_after_a_while(ask)
    ask.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]})
    ask.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]})  # sent again: nothing more is added
    (figure,) = figures(ask)
    assert (figure.count, sum(figure.waits), sum(figure.runs)) == (1, 1, 1)
    assert figure.waits[bucket(WAITED)] == 1
    assert figure.waited >= WAITED


def test_an_attempt_that_was_claimed_through_another_server_tells_no_wait(servers: tuple[Asking, Asking]) -> None:
    """That of no time at all would be wrong."""
    claims, ends = servers
    job = claimed_after_a_while(claims)
    assert ends.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]}).status_code == 200
    (figure,) = figures(ends)
    assert (figure.count, figure.waited, figure.waits) == (1, 0.0, NO_WAITS)
    assert sum(figure.runs) == 1


def test_an_attempt_that_was_claimed_too_many_claims_ago_tells_no_wait(
    servers: tuple[Asking, Asking], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_REMEMBERED", 1)
    ask, _ = servers
    first, last = claimed_after_a_while(ask), claimed_after_a_while(ask)
    for job in (first, last):
        ask.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]})
    (figure,) = figures(ask)
    assert (figure.count, sum(figure.waits), figure.waits[bucket(WAITED)]) == (2, 1, 1)


def test_figures_are_kept_where_the_housekeeping_is_left_to_workers(tmp_path: Path) -> None:
    """Nobody else adds them up: charts and metrics are of all that was run."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(Holdfast(url), housekeeping=False) as served:
        ask = Asking(served)
        job = claimed_after_a_while(ask)
        ask.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]})
        assert {check["name"] for check in ask.client.get(f"{served.url}/health/live").json()["checks"]} == {"measurer"}
        ask.client.close()
    with serving(Holdfast(url), housekeeping=False) as served:  # the last figures are written when a server stops
        (view,) = served.run(served.server.context.store.figures(Grain.ALL))
    assert (view.figure.count, view.figure.waits[bucket(WAITED)]) == (1, 1)
