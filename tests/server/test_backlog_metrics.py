"""What an HPA scales by: the same backlog that an autoscaler is told over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast.backlog import backlog
from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.server.metrics import exposition
from holdfast.store.port import ClaimRequest, Worker
from tests.server.test_deploy import NAME, known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store.port import Store

ADAPTER = Path(__file__).parents[2] / "deploy" / "prometheus" / "adapter.yml"
READY, THROTTLED = "holdfast_backlog_ready", "holdfast_backlog_throttled"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """Nine jobs of mail, five of video and two of a paused queue, of one task; four of mail may run at once, and two do."""
    app = Holdfast("memory://")

    @app.task(name="t")
    async def work() -> None: ...

    await app.client().open()
    for queue, number in (("mail", 9), ("video", 5), ("held", 2)):
        await app.enqueue_many([work.options(queue=queue).call() for _ in range(number)])
    store = app.client().store
    await store.pause("held", by="ann")
    await store.set_limit(LimitName(LimitKind.QUEUE, "mail"), LimitRule(most=4))
    worker = Worker(id=app.world().environment.job_id(), name="w", slots=2)
    await store.register(worker)
    taken = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), queues=frozenset({"mail"}), limit=2))
    assert len(taken) == 2
    yield store
    await app.close()


async def figures(store: Store, queues: frozenset[str] | None = None) -> dict[str, dict[str, float]]:
    """Return both figures by queue."""
    text, _ = await exposition(store, queues=queues)
    found: dict[str, dict[str, float]] = {READY: {}, THROTTLED: {}}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if sample.name in found:
                assert sample.labels["task"] == "t"
                found[sample.name][sample.labels["queue"]] = sample.value
    return found


async def test_what_limits_and_pauses_hold_back_is_no_backlog(store: Store) -> None:
    found = await figures(store)
    assert found == {READY: {"mail": 2, "video": 5, "held": 0}, THROTTLED: {"mail": 5, "video": 0, "held": 0}}
    todo = await backlog(store, lambda _: True)
    assert (todo.ready, todo.throttled) == tuple(sum(by_queue.values()) for by_queue in found.values())


async def test_a_key_bound_to_queues_is_told_of_those(store: Store) -> None:
    assert await figures(store, frozenset({"video"})) == {READY: {"video": 5}, THROTTLED: {"video": 0}}


async def test_the_rule_of_the_adapter_adds_up_what_runs_and_what_a_slot_would_start() -> None:
    (rule,) = yaml.safe_load(ADAPTER.read_text())["rules"]["external"]
    asked = set(NAME.findall(rule["metricsQuery"]))
    assert asked == {"holdfast_jobs", READY}
    assert asked <= await known()
    assert NAME.findall(rule["seriesQuery"]) == ["holdfast_jobs"]
