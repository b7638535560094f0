"""A real server tells Prometheus and people: `/metrics` with keys, and alerts from a worker that fails to a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import PropertyMock, patch

import httpx2
import msgspec
import pytest

from holdfast import Holdfast, State
from holdfast.core.figures import Figure
from holdfast.core.job import NewJob
from holdfast.core.states import Event
from holdfast.server.alerts import watching
from holdfast.server.alerts.kinds import AlertKind
from holdfast.server.alerts.target import Target
from holdfast.server.alerts.watching import Watcher
from holdfast.store.port import Role
from tests.server.alerts.hook import Hook
from tests.server.served import SECRET, bearer, made_key, serving
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

KEY = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def test_metrics_are_for_those_who_may_look(url: str) -> None:
    with serving(url) as served:
        store = served.server.context.store
        viewer = served.run(made_key(store, Role.VIEWER))
        worker = served.run(made_key(store, Role.WORKER))

        def status(key: str | None) -> int:
            headers = {} if key is None else bearer(key)
            return httpx2.get(f"{served.url}/metrics", headers=headers).status_code

        assert [status(key) for key in (None, "nonsense", worker, viewer, SECRET)] == [401, 401, 403, 200, 200]
        answer = httpx2.get(f"{served.url}/metrics", headers=bearer(viewer))
        assert answer.headers["content-type"].startswith("text/plain")
        assert 'holdfast_workers{state="idle"} 0.0' in answer.text


@pytest.mark.parametrize("housekeeping", [True, False])
def test_metrics_tell_whether_hints_reach_the_server_itself(url: str, *, housekeeping: bool) -> None:
    with serving(url, housekeeping=housekeeping) as served:
        own = f'{{id="{served.server.context.id}",worker="server"}}'

        def arrive() -> str:
            text = httpx2.get(f"{served.url}/metrics", headers=bearer(SECRET)).text
            return next(line.split()[-1] for line in text.splitlines() if line.startswith(f"holdfast_worker_hints_arrive{own}"))

        assert arrive() == "1.0"
        with patch.object(type(served.server.context.notifier), "healthy", PropertyMock(return_value=False)):
            assert arrive() == "0.0"


def test_metrics_are_about_the_queues_of_a_key(url: str) -> None:
    with serving(url) as served:
        store, world = served.server.context.store, served.server.context.environment
        jobs = [NewJob(id=world.job_id(), task=f"{queue}.work", queue=queue) for queue in ("mine", "theirs")]
        served.run(store.enqueue(jobs))
        figures = [Figure(queue=job.queue, task=job.task, event=Event.SUCCEED, count=1) for job in jobs]
        served.run(store.measure(figures))
        narrow = served.run(made_key(store, Role.VIEWER, queues=("mine",)))
        texts = [httpx2.get(f"{served.url}/metrics", headers=bearer(key)).text for key in (narrow, SECRET)]
    assert [("mine" in text, "theirs" in text) for text in texts] == [(True, False), (True, True)]


async def test_a_server_tells_of_a_job_that_has_failed_for_good(url: str) -> None:
    app = Holdfast(url)

    @app.task(name="work", retry=1)
    async def work() -> None:
        raise ValueError("no use")

    async with Hook() as hook:
        kinds = (AlertKind.JOB_MAX_RETRIES_EXCEEDED,)
        target = Target(name="ops", url=hook.url, secret=KEY, allow_private=True, events=kinds)
        with patch.object(Watcher, "interval", 0.1), patch.object(watching, "LAG", 0.0), serving(url, alerts=[target]):
            handle = await work.enqueue()
            async with app.worker(queues=["default"]):

                async def failed() -> bool:
                    return await handle.state() is State.FAILED

                await until(failed)

            async def told() -> bool:
                return bool(hook.received)

            await until(told)
    await app.close()
    (received,) = hook.received
    body: dict[str, Any] = msgspec.json.decode(received.body)
    assert body["data"]["about"][0]["job_id"] == str(handle.id)
