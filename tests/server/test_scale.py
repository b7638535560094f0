"""What an autoscaler is told: exact numbers of the queues it asks about, and as many replicas as they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.store.port import Beat, Role, Worker
from tests.server.conftest import TASK, Asking
from tests.server.served import serving
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServers


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ask(request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: PostgresServers) -> Iterator[Asking]:
    """A server on an empty store of each kind."""
    server = postgres_servers[MAJORS[-1]] if request.param == "postgres" else None
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}.get(request.param, "")
    url = url if server is None else server.create_database()
    with serving(Holdfast(url), housekeeping=False, key_rate=1e6) as served:
        asking = Asking(served)
        yield asking
        asking.client.close()
    if server is not None:
        server.drop_database(url)


@pytest.fixture
def alone() -> Iterator[Asking]:
    """A server on an empty store in memory."""
    with serving(Holdfast("memory://"), housekeeping=False, key_rate=1e6) as served:
        asking = Asking(served)
        yield asking
        asking.client.close()


def scale(ask: Asking, key: str | None = None, **query: Any) -> dict[str, Any]:
    answer = ask.get(f"/scale?{urlencode(query, doseq=True)}", key)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def registered(ask: Asking, name: str, slots: int, metadata: Any = None, **more: Any) -> UUID:
    about = {} if metadata is None else {"metadata": metadata}
    answer = ask.post("/workers", {"name": name, "id": str(uuid4()), "slots": slots, **about, **more})
    assert answer.status_code == 200, answer.text
    return UUID(answer.json()["id"])


def test_an_empty_store_asks_for_nobody_and_every_value_is_a_number(alone: Asking) -> None:
    told = scale(alone)
    assert set(told.values()) == {0}
    assert {"desired", "backlog"} <= set(told)
    assert all(type(value) in (int, float) for value in told.values()), "KEDA reads numbers"


def test_a_manager_is_no_worker(alone: Asking) -> None:
    about = msgspec.json.encode({"tasks": [], "queues": None}).decode()
    alone.run(alone.store.register(Worker(id=uuid4(), name="manager m", info=about, slots=0)))
    registered(alone, "m.1", 4)
    assert {name: scale(alone)[name] for name in ("workers", "slots")} == {"workers": 1, "slots": 4}


def test_what_waits_and_what_runs_is_counted_by_queue_and_task_on_every_store(ask: Asking) -> None:
    for _ in range(5):
        ask.enqueue(queue="mail")
    ask.enqueue(queue="video")
    ask.enqueue(queue="video", task="other")
    ask.enqueue(queue="mail", run_at="2999-01-01T00:00:00Z")  # scheduled: nobody is needed yet
    worker = registered(ask, "one", 4)
    assert len(ask.claim(worker, limit=2, queues=["mail"])) == 2
    ask.run(ask.store.rewind(7))

    told = scale(ask, slots=2)
    assert {name: told[name] for name in ("backlog", "ready", "running", "desired", "workers", "slots")} == {
        "backlog": 7,
        "ready": 5,
        "running": 2,
        "desired": 4,
        "workers": 1,
        "slots": 4,
    }
    assert 7_000 <= told["oldest_waiting_ms"] < 60_000
    assert scale(ask, queue="mail", slots=2)["desired"] == 3
    assert scale(ask, queue=["mail", "video"], task=TASK)["backlog"] == 6
    assert scale(ask, task=[TASK, "other"])["backlog"] == 7
    assert scale(ask, queue="video", task="other", slots=1)["desired"] == 1
    assert scale(ask, queue="nobody's")["backlog"] == 0
    assert scale(ask, queue="nobody's")["oldest_waiting_ms"] == 0


def test_a_target_lets_each_slot_have_several_jobs_but_never_interrupts_what_runs(alone: Asking) -> None:
    for _ in range(40):
        alone.enqueue()
    assert [scale(alone, slots=4, target=target)["desired"] for target in (1, 5, 10, 1000)] == [10, 2, 1, 1]
    assert len(alone.claim(registered(alone, "one", 12), limit=12)) == 12
    assert scale(alone, slots=4, target=1000)["desired"] == 3


def test_jobs_that_people_complete_ask_for_nobody(alone: Asking) -> None:
    alone.enqueue()
    alone.enqueue(task="invoice.approve")
    assert scale(alone)["ready"] == 2, "nobody has said yet who completes it"
    registered(alone, "one", 4, {"tasks": [TASK], "outside": ["invoice.approve"]})
    assert scale(alone)["ready"] == 1
    assert scale(alone, task="invoice.approve")["desired"] == 0


def test_jobs_of_a_paused_queue_ask_for_nobody(alone: Asking) -> None:
    alone.enqueue(queue="held")
    alone.run(alone.store.rewind(5))
    alone.run(alone.store.pause("held", by="a person"))
    told = scale(alone)
    assert (told["desired"], told["ready"], told["paused"], told["oldest_waiting_ms"]) == (0, 0, 1, 0)


def test_what_a_limit_holds_back_asks_for_nobody_on_every_store(ask: Asking) -> None:
    for _ in range(9):
        ask.enqueue(queue="mail")
    for _ in range(5):
        ask.enqueue(queue="video")
    ask.run(ask.store.set_limit(LimitName(LimitKind.QUEUE, "mail"), LimitRule(most=4)))
    told = scale(ask, queue="mail", slots=1)
    assert (told["desired"], told["ready"], told["throttled"]) == (4, 4, 5)
    assert len(ask.claim(registered(ask, "one", 9), limit=9, queues=["mail"])) == 4
    told = scale(ask, queue="mail", slots=1)
    assert [told[name] for name in ("desired", "ready", "running", "throttled", "oldest_waiting_ms")] == [4, 0, 4, 5, 0]
    ask.run(ask.store.set_limit(LimitName(LimitKind.TASK, TASK), LimitRule(most=6)))
    told = scale(ask, slots=1)
    assert (told["ready"], told["running"], told["throttled"]) == (2, 4, 8), "four of the task run, and it has room for two"
    ask.run(ask.store.set_limit(LimitName(LimitKind.TASK, TASK), LimitRule(rate=0.001, burst=3)))
    assert scale(ask)["ready"] == 3


def test_jobs_that_wait_for_long_beside_free_slots_ask_for_as_many_as_what_runs_needs(alone: Asking) -> None:
    for _ in range(50):
        alone.enqueue()
    one = registered(alone, "one", 20, {"tasks": [TASK]})
    assert len(alone.claim(one, limit=2)) == 2
    assert scale(alone, slots=1)["desired"] == 50, "they may be about to start"
    alone.run(alone.store.rewind(31))
    assert scale(alone, slots=1)["desired"] == 5
    assert scale(alone, slots=20)["desired"] == 1
    alone.enqueue(task="nobody's")
    assert scale(alone, slots=1)["desired"] == 51, "the worker with free slots does not say that it runs all of them"


def test_the_free_slots_of_workers_that_are_silent_ask_for_nobody_less(alone: Asking) -> None:
    for _ in range(2):
        alone.post("/jobs", {"jobs": [{"task": TASK}] * 500})
    workers = [registered(alone, f"{number}", 20, {"tasks": [TASK]}) for number in range(10)]
    for one in workers[:2]:
        assert len(alone.claim(one, limit=20)) == 20
    alone.run(alone.store.rewind(120))
    for one in workers[:2]:
        alone.run(alone.store.beat(Beat(worker=one)))
    told = scale(alone, slots=20, target=2)
    assert (told["desired"], told["ready"], told["running"]) == (25, 960, 40), "eight of ten crashed two minutes ago"
    alone.run(alone.store.beat(Beat(worker=workers[2])))
    assert scale(alone, slots=20, target=2)["desired"] == 25, "two in three slots of those that live are taken"
    for one in workers:
        alone.run(alone.store.beat(Beat(worker=one)))
    assert scale(alone, slots=20, target=2)["desired"] == 5, "they live, and take nothing"


def test_idle_workers_without_what_jobs_require_ask_for_nobody_less_on_every_store(ask: Asking) -> None:
    ask.post("/jobs", {"jobs": [{"task": TASK, "requires": ["gpu"]}] * 30})
    plain = registered(ask, "plain", 20, {"tasks": [TASK]})
    strong = registered(ask, "strong", 2, {"tasks": [TASK]}, capabilities=["gpu"])
    assert len(ask.claim(strong, limit=2, capabilities=["gpu"])) == 2
    ask.run(ask.store.rewind(31))
    for one in (plain, strong):
        ask.run(ask.store.beat(Beat(worker=one)))
    assert scale(ask, slots=2)["desired"] == 15
    other = registered(ask, "other", 20, {"tasks": [TASK]}, capabilities=["gpu"])
    ask.run(ask.store.rewind(31))
    for one in (plain, strong, other):
        ask.run(ask.store.beat(Beat(worker=one)))
    assert scale(ask, slots=2)["desired"] == 3, "one that has it stays free: limits hold them back"


def test_workers_count_that_serve_one_of_the_queues_and_still_claim(alone: Asking) -> None:
    registered(alone, "mailer", 3, {"queues": ["mail"]})
    registered(alone, "all", 5, {"queues": None})
    registered(alone, "odd", 7, ["says nothing of queues"])
    gone = registered(alone, "gone", 100)
    disabled = registered(alone, "disabled", 100)
    draining = registered(alone, "draining", 100)
    alone.delete(f"/workers/{gone}")
    alone.run(alone.store.disable(disabled, by="a person"))
    alone.run(alone.store.drain(draining, by="a person"))
    stopping = registered(alone, "stopping", 100)
    alone.run(alone.store.beat(Beat(worker=stopping, counters='{"draining": 1}')))
    assert [scale(alone)[name] for name in ("workers", "slots")] == [3, 15]
    assert scale(alone, queue="mail")["slots"] == 15
    assert scale(alone, queue="video")["slots"] == 12


def test_a_key_bound_to_queues_sees_those_alone(alone: Asking) -> None:
    alone.enqueue(queue="mail")
    alone.enqueue(queue="secret")
    key = alone.key(Role.VIEWER, queues=("mail",))
    assert scale(alone, key)["backlog"] == 1
    assert scale(alone, key, queue="mail")["backlog"] == 1
    refused = alone.get("/scale?queue=mail&queue=secret", key)
    assert refused.status_code == 403
    assert refused.json()["facts"] == {"right": "look", "queue": "secret"}


def test_a_workers_key_may_not_look(alone: Asking) -> None:
    assert alone.get("/scale", alone.key(Role.WORKER)).status_code == 403


@pytest.mark.parametrize("query", ["slots=0", "slots=many", "slots=1.5", "target=0", "target=nan", "target=-1", "slots="])
def test_an_impossible_parameter_is_refused_by_name(alone: Asking, query: str) -> None:
    answer = alone.get(f"/scale?{query}")
    assert (answer.status_code, answer.json()["path"]) == (400, query.partition("=")[0])


def test_parameters_that_are_not_known_are_ignored_and_of_several_the_last_counts(alone: Asking) -> None:
    alone.enqueue()
    assert scale(alone, unheard_of=1, slots=["9", "1"])["desired"] == 1
