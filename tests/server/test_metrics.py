"""The figures that Prometheus reads, after real jobs on a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from holdfast import Holdfast, State, connect
from holdfast.core.figures import BUCKETS, EMPTY, Figure, bucket, quantile, summed
from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.core.states import Event
from holdfast.runtime.exposing import Who
from holdfast.server.metrics import LINGERS, exposition
from holdfast.store.port import Beat, ClaimRequest, Worker
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.store.port import Store

OPEN_METRICS = "application/openmetrics-text"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def app() -> AsyncIterator[Holdfast]:
    app = Holdfast("memory://")
    await app.client().open()
    yield app
    await app.close()


@pytest.fixture
async def store(app: Holdfast) -> Store:
    return app.client().store


async def samples(store: Store, own: dict[str, int] | None = None) -> Samples:
    text, kind = await exposition(store, own={Who("server", "s"): own} if own else {})
    assert kind.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in plain_text(text.decode())
        for sample in family.samples
    }


def at(name: str, /, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def test_jobs_and_queues_are_told_as_the_store_counts_them(app: Holdfast, store: Store) -> None:
    @app.task(name="mail", queue="slow")
    async def mail() -> None: ...

    await app.enqueue_many([mail.call() for _ in range(3)])
    await mail.options(delay=60).enqueue()
    await store.pause("slow")
    await store.rewind(30)

    found = await samples(store)
    assert found[at("holdfast_jobs", queue="slow", task="mail", state="ready")] == 3
    assert found[at("holdfast_jobs", queue="slow", task="mail", state="scheduled")] == 1
    assert found[at("holdfast_queue_depth", queue="slow")] == 3
    assert found[at("holdfast_queue_paused", queue="slow")] == 1
    assert found[at("holdfast_queue_oldest_seconds", queue="slow")] >= 30


async def test_what_workers_count_has_their_name_and_their_id(store: Store) -> None:
    for number, beats in ((1, 5), (2, 7)):
        await store.register(Worker(id=UUID(int=number), name="night"))
        counters = f'{{"heartbeats": {beats}, "recovered_jobs:failed:stale": 1, "concurrent_jobs": 2, "hints_arrive": 1}}'
        await store.beat(Beat(worker=UUID(int=number), counters=counters))

    found = await samples(store, own={"recovered_jobs:requeued:stale": 4})
    one, other = ({"worker": "night", "id": str(UUID(int=number))} for number in (1, 2))
    assert found[at("holdfast_worker_heartbeats_total", **one)] == 5
    assert found[at("holdfast_worker_heartbeats_total", **other)] == 7
    assert found[at("holdfast_worker_heartbeat_failures_total", **one)] == 0
    assert found[at("holdfast_worker_recovered_jobs_total", **one, reason="failed:stale")] == 1
    assert found[at("holdfast_worker_recovered_jobs_total", worker="server", id="s", reason="requeued:stale")] == 4
    assert found[at("holdfast_worker_concurrent_jobs", **other)] == 2
    assert [found[at("holdfast_worker_hints_arrive", **who)] for who in (one, other)] == [1, 1]
    assert found[at("holdfast_workers", state="idle")] == 2
    assert found[at("holdfast_worker_acquire_conflicts_total", **one)] == 0


async def test_a_worker_that_drains_is_none_of_those_that_could_do_more(store: Store) -> None:
    for number, counters in enumerate(['{"draining": 0}', '{"draining": 1}', "{}"]):
        await store.register(Worker(id=UUID(int=number), name="night"))
        await store.beat(Beat(worker=UUID(int=number), counters=counters))
    await store.drain(UUID(int=2), by="ann")

    found = await samples(store)
    assert found[at("holdfast_workers", state="draining")] == 2
    assert found[at("holdfast_workers", state="idle")] == 1
    assert found[at("holdfast_worker_draining", worker="night", id=str(UUID(int=1)))] == 1


async def test_no_counter_falls_when_one_of_several_workers_ends(store: Store) -> None:
    """Prometheus takes a counter that falls for one that began anew, and adds all of it to what was counted."""
    for number in range(3):
        await store.register(Worker(id=UUID(int=number), name="night"))
        await store.beat(Beat(worker=UUID(int=number), counters='{"claimed_jobs": 10000, "settled_jobs:succeeded": 9999}'))
    before = await samples(store)
    await store.retire(UUID(int=1))
    after = await samples(store)
    await store.rewind(3600)
    later = await samples(store)

    def fell(one: Samples, next_one: Samples) -> list[object]:
        return [what for what, value in one.items() if what[0].endswith("_total") and next_one.get(what, value) < value]

    assert (fell(before, after), fell(after, later)) == ([], [])
    assert sum(value for (name, _), value in after.items() if name == "holdfast_worker_claimed_jobs_total") == 30_000


async def test_managers_are_told_of_apart_from_workers(store: Store) -> None:
    await store.register(Worker(id=UUID(int=1), name="manager m", slots=0))
    counters = '{"desired_workers": 4, "workers": 3, "draining_workers": 1, "changes:up": 2, "crashed_workers": 5}'
    await store.beat(Beat(worker=UUID(int=1), counters=counters))

    found = await samples(store)
    who = {"manager": "manager m", "id": str(UUID(int=1))}
    assert found[at("holdfast_manager_desired_workers", **who)] == 4
    assert found[at("holdfast_manager_workers", **who)] == 3
    assert found[at("holdfast_manager_draining_workers", **who)] == 1
    assert found[at("holdfast_manager_changes_total", **who, direction="up")] == 2
    assert found[at("holdfast_manager_crashed_workers_total", **who)] == 5
    assert found[at("holdfast_manager_recycled_workers_total", **who)] == 0
    assert found[at("holdfast_workers", state="idle")] == 0
    assert at("holdfast_worker_heartbeats_total", worker="manager m", id=who["id"]) not in found


@pytest.mark.parametrize("counters", ["[]", "null", '{"heartbeats": "many"}', '{"heartbeats": -1}', '{"heartbeats": 1.5}'])
async def test_counters_that_are_none_are_left_out(store: Store, counters: str) -> None:
    await store.register(Worker(id=UUID(int=1), name="odd"))
    await store.beat(Beat(worker=UUID(int=1), counters=counters))

    assert (await samples(store))[at("holdfast_worker_heartbeats_total", worker="odd", id=str(UUID(int=1)))] == 0


async def test_of_a_worker_that_is_gone_the_counts_are_told_until_they_were_read_and_the_levels_are_not(store: Store) -> None:
    await store.register(Worker(id=UUID(int=1), name="gone"))
    await store.beat(Beat(worker=UUID(int=1), counters='{"claimed_jobs": 7, "concurrent_jobs": 1}'))
    await store.retire(UUID(int=1))

    told = {name: value for (name, labels), value in (await samples(store)).items() if ("worker", "gone") in labels}
    assert told["holdfast_worker_claimed_jobs_total"] == 7
    assert "holdfast_worker_concurrent_jobs" not in told
    await store.rewind(LINGERS)
    assert not [labels for _, labels in await samples(store) if ("worker", "gone") in labels]


async def test_attempts_and_their_times_are_told_by_task(store: Store) -> None:
    runs = (*EMPTY[:-1], 1)
    await store.measure(
        [
            Figure(queue="q", task="t", event=Event.SUCCEED, count=2, waited=3.0, waits=(1, 1, *EMPTY[2:]), ran=1.0),
            Figure(queue="q", task="t", event=Event.FAIL, code="BOOM", count=1, ran=99_999.0, runs=runs),
        ]
    )

    found = await samples(store)
    assert found[at("holdfast_attempts_total", queue="q", task="t", event="succeeded", code="")] == 2
    assert found[at("holdfast_attempts_total", queue="q", task="t", event="failed", code="BOOM")] == 1
    assert found[at("holdfast_wait_seconds_bucket", task="t", le="0.005")] == 1
    assert found[at("holdfast_wait_seconds_bucket", task="t", le="0.01")] == 2
    assert found[at("holdfast_wait_seconds_count", task="t")] == 2
    assert found[at("holdfast_wait_seconds_sum", task="t")] == 3.0
    assert found[at("holdfast_run_seconds_bucket", task="t", le="14400.0")] == 0
    assert found[at("holdfast_run_seconds_bucket", task="t", le="+Inf")] == 1


async def test_names_of_all_kinds_are_told_and_can_be_read_back(app: Holdfast, store: Store) -> None:
    odd = 'a"b\\c\nd 🎈 {e="f"}'

    @app.task(name=odd)
    async def task() -> None: ...

    await task.enqueue()
    found = await samples(store)
    assert found[at("holdfast_jobs", queue="default", task=odd, state="ready")] == 1


async def test_the_newer_form_is_given_to_who_accepts_it(store: Store) -> None:
    text, kind = await exposition(store, accept=f"{OPEN_METRICS}; version=1.0.0")
    assert kind.startswith(OPEN_METRICS)
    families = open_metrics(text.decode())  # type: ignore[no-untyped-call]
    assert {family.name for family in families} >= {"holdfast_jobs", "holdfast_attempts", "holdfast_workers"}


async def test_what_a_worker_did_is_in_the_figures_once_it_has_stopped(app: Holdfast, store: Store) -> None:
    @app.task(name="work", retry=1)
    async def work(n: int) -> None:
        if n:
            raise ValueError("no use")

    handles = await app.enqueue_many([work.call(n) for n in (0, 0, 1)])
    async with app.worker():

        async def ended() -> bool:
            return [await handle.state() for handle in handles] == [State.SUCCEEDED, State.SUCCEEDED, State.FAILED]

        await until(ended)

    found = await samples(store)
    assert found[at("holdfast_attempts_total", queue="default", task="work", event="succeeded", code="")] == 2
    assert found[at("holdfast_attempts_total", queue="default", task="work", event="failed", code="RETRIES_EXHAUSTED")] == 1
    assert found[at("holdfast_run_seconds_count", task="work")] == 3
    assert found[at("holdfast_wait_seconds_count", task="work")] == 3


async def test_limits_are_told_by_queue_task_and_scope_and_never_by_key(app: Holdfast, store: Store) -> None:
    @app.task(name="mail", queue="slow")
    async def mail() -> None: ...

    scope = LimitName(LimitKind.KEY, "tenants")
    await store.set_limit(LimitName(LimitKind.QUEUE, "slow"), LimitRule(most=3))
    await store.declare({LimitName(LimitKind.TASK, "mail"): LimitRule(rate=0.5), scope: LimitRule(most=2)})
    await store.set_limit(scope._replace(key="acme"), LimitRule(most=9))
    await app.enqueue_many([mail.call() for _ in range(2)])
    await store.register(Worker(id=UUID(int=1), name="one"))
    await store.claim(ClaimRequest(worker=UUID(int=1), tasks=frozenset({"mail"}), limit=1, look=True))

    found = await samples(store)
    assert found[at("holdfast_limit_running", kind="queue", name="slow")] == 1
    assert found[at("holdfast_limit_most", kind="queue", name="slow")] == 3
    assert found[at("holdfast_limit_rate", kind="task", name="mail")] == 0.5
    assert at("holdfast_limit_most", kind="task", name="mail") not in found
    assert found[at("holdfast_limit_most", kind="scope", name="tenants")] == 2
    assert not [labels for name, labels in found if name.startswith("holdfast_limit") and "acme" in str(labels)]

    text, _ = await exposition(store, queues=frozenset({"slow"}))
    assert 'holdfast_limit_most{kind="queue",name="slow"}' in text.decode()
    assert "tenants" not in text.decode()


# -- histograms ------------------------------------------------------------------------------------------------------------


def histogram(*times: float) -> tuple[int, ...]:
    return summed(tuple(int(bucket(time) == number) for number in range(BUCKETS)) for time in times)


@pytest.mark.parametrize(
    ("times", "share", "least", "most"),
    [
        ((), 0.5, None, None),
        ((0.003,), 0.5, 0.0, 0.005),
        ((0.003,) * 99 + (100.0,), 0.95, 0.0, 0.005),
        ((0.003,) * 9 + (100.0,), 0.95, 60.0, 150.0),
        ((1e9,), 0.5, 14_400.0, 14_400.0),
    ],
)
def test_a_quantile_lies_in_the_bucket_of_its_rank(
    times: tuple[float, ...], share: float, least: float | None, most: float | None
) -> None:
    found = quantile(histogram(*times), share)
    if least is None or most is None:
        assert found is None
    else:
        assert found is not None
        assert least <= found <= most


async def test_the_room_that_a_store_takes_and_has_left_is_told(tmp_path: Path, store: Store) -> None:
    kept = connect(f"sqlite:///{tmp_path}/jobs.db")
    await kept.open()
    try:
        found = await samples(kept)
    finally:
        await kept.close()
    assert found[at("holdfast_storage_used_bytes")] > 10_000
    assert found[at("holdfast_storage_free_bytes")] > 0
    assert at("holdfast_storage_free_bytes") not in await samples(store)
