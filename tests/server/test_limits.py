"""Limits over HTTP: who sees and sets them, what is refused, and what a job says that one holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.store.port import Action, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

    from tests.server.conftest import Asking


@pytest.fixture
def fresh(ask: Asking) -> Iterator[Asking]:
    """A server on which nobody has set a limit."""
    yield ask
    for view in ask.run(ask.store.limits()):
        ask.run(ask.store.set_limit(view.name, None))
        ask.run(ask.store.declare({view.name: LimitRule()}))


def put(ask: Asking, body: Any, key: str | None = None) -> httpx2.Response:
    headers = None if key is None else {"Authorization": f"Bearer {key}"}
    return ask.client.put("/limits", json=body, headers=headers)


def test_a_limit_is_set_seen_and_cleared(fresh: Asking) -> None:
    ask, operator = fresh, fresh.key(Role.OPERATOR, name="ann")
    ask.run(ask.store.declare({LimitName(LimitKind.QUEUE, "mail"): LimitRule(most=4)}))
    answer = put(ask, {"queue": "mail", "most": 2, "rate": 60, "per_ms": 60_000, "burst": 5}, operator)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["kind"], told["name"], told["key"], told["override_by"]) == ("queue", "mail", None, "ann")
    assert told["rule"] == told["override"] == {"most": 2, "rate": 1.0, "burst": 5.0, "weight": None}
    assert told["declared"]["most"] == 4
    assert ask.get("/limits", ask.key(Role.VIEWER)).json() == {"limits": [told]}
    cleared = ask.post("/limits/clear", {"queue": "mail"}, operator).json()
    assert (cleared["override"], cleared["override_by"], cleared["rule"]["most"]) == (None, "", 4)
    lines = ask.run(ask.store.audits(limit=2, action=Action.SET_LIMIT))
    assert [(line.actor, line.targets, line.detail) for line in lines] == [
        ("ann", ("queue mail",), "as declared"),
        ("ann", ("queue mail",), "at most 2 at once, 1 a second, up to 5 at a time"),
    ]


def test_a_weight_set_for_a_queue_reaches_who_claims_from_it(fresh: Asking) -> None:
    ask = fresh
    assert put(ask, {"queue": "mail", "weight": 3}).json()["override"]["weight"] == 3.0
    body = {"tasks": ["any"], "queues": ["mail", "other"]}
    assert ask.post(f"/workers/{ask.worker()}/claim", body).json()["weights"] == {"mail": 3.0}
    body = {"tasks": ["any"], "queues": ["other"]}
    assert "weights" not in ask.post(f"/workers/{ask.worker()}/claim", body).json()


def test_a_limit_that_is_set_holds_for_the_next_claim(fresh: Asking) -> None:
    ask, task = fresh, f"limited.{uuid4()}"
    for _ in range(3):
        ask.enqueue(task=task, limit={"scope": "tenants", "key": "acme"})
    assert put(ask, {"scope": "tenants", "key": "acme", "most": 1}).status_code == 200
    worker = ask.worker()
    assert len(ask.claim(worker, tasks=[task], limit=5)) == 1
    assert ask.claim(worker, tasks=[task], limit=5) == []
    told = ask.get("/limits").json()["limits"]
    assert [(one["name"], one["key"], one["running"]) for one in told] == [("tenants", "acme", 1)]


def test_who_waits_hears_of_a_limit_that_was_raised(fresh: Asking) -> None:
    ask, task = fresh, f"limited.{uuid4()}"
    ask.run(ask.store.set_limit(LimitName(LimitKind.TASK, task), LimitRule(most=0)))
    heard: list[Any] = []
    ask.run(ask.served.server.context.notifier.listen(heard.append))
    put(ask, {"task": task, "most": 1})
    ask.run(_turn())
    assert any(hint.anything for hint in heard)


async def _turn() -> None:
    """Let the event loop of the server come round."""


def test_viewers_and_workers_set_nothing(fresh: Asking) -> None:
    for role in (Role.VIEWER, Role.WORKER, Role.CLIENT):
        key = fresh.key(role)
        assert put(fresh, {"queue": "mail", "most": 2}, key).status_code == 403
        assert fresh.post("/limits/clear", {"queue": "mail"}, key).status_code == 403
    assert fresh.get("/limits", fresh.key(Role.CLIENT)).status_code == 403
    assert fresh.get("/limits").json() == {"limits": []}


def test_a_key_bound_to_queues_sees_and_sets_limits_of_these_alone(fresh: Asking) -> None:
    key = fresh.key(Role.OPERATOR, queues=("mine",))
    for body in ({"queue": "theirs", "most": 1}, {"task": "t", "most": 2}, {"scope": "s", "most": 3}):
        assert put(fresh, body).status_code == 200
        refused = put(fresh, body, key)
        assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
        cleared = fresh.post("/limits/clear", {name: body[name] for name in body if name != "most"}, key)
        assert cleared.status_code == 403
    assert "reaches beyond them" in put(fresh, {"task": "t", "most": 2}, key).json()["message"]
    assert put(fresh, {"queue": "mine", "most": 4}, key).status_code == 200
    assert [one["name"] for one in fresh.get("/limits", key).json()["limits"]] == ["mine"]
    assert len(fresh.get("/limits").json()["limits"]) == 4


@pytest.mark.parametrize(
    ("body", "path", "says"),
    [
        ({"most": 2}, "", "name one of queue, task and scope"),
        ({"queue": "a", "task": "b", "most": 2}, "", "name one of"),
        ({"queue": "a"}, "", "says nothing: give most, rate or weight"),
        ({"queue": "a", "key": "b", "most": 2}, "key", "a queue has no keys"),
        ({"queue": "a", "most": -1}, "most", "must be a whole number from 0 to 1,000,000"),
        ({"queue": "a", "most": 10**30}, "most", "must be a whole number"),
        ({"queue": "a", "rate": 0}, "rate", "must be a number from"),
        ({"queue": "a", "rate": 1, "per_ms": 0}, "per_ms", "must be a number of seconds"),
        ({"queue": "a", "most": 1, "burst": 2}, "burst", "there is none: give rate"),
        ({"task": "a", "weight": 2}, "weight", "queues and single keys have a weight"),
        ({"queue": "", "most": 2}, "queue", "must not be empty"),
    ],
)
def test_a_limit_that_makes_no_sense_is_told_where(fresh: Asking, body: Any, path: str, says: str) -> None:
    answer = put(fresh, body)
    assert (answer.status_code, answer.json()["error"], answer.json().get("path", "")) == (422, "bad_value", path), answer.text
    assert says in answer.json()["message"]
    assert fresh.get("/limits").json() == {"limits": []}


def test_a_misspelt_field_of_a_limit_is_refused(fresh: Asking) -> None:
    answer = put(fresh, {"queue": "a", "most": 2, "rat": 3})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_shape")


def test_the_queue_of_alerts_is_not_limited(fresh: Asking) -> None:
    assert put(fresh, {"queue": "holdfast", "most": 0}).status_code == 403


def test_a_job_says_that_a_limit_holds_it_back_and_which(fresh: Asking) -> None:
    ask, task = fresh, f"limited.{uuid4()}"
    put(ask, {"task": task, "most": 1})
    ask.enqueue(task=task)
    held = ask.enqueue(task=task, limit={"scope": "tenants", "key": "acme"}, cost=2.5)
    ask.claim(ask.worker(), tasks=[task])
    told = ask.get(f"/jobs/{held}").json()
    assert (told["state"], told["shown"], told["throttled"]) == ("ready", "throttled", True)
    assert (told["limit"], told["cost"]) == ({"scope": "tenants", "key": "acme", "weight": 1.0}, 2.5)
    (many,) = ask.post("/jobs/get", {"ids": [str(held)]}).json()["jobs"]
    assert many["shown"] == "throttled"
    why = ask.get(f"/jobs/{held}/why", ask.key(Role.CLIENT)).json()
    assert (why["id"], why["shown"], why["reasons"][0]["code"]) == (str(held), "throttled", "throttled")
    assert why["reasons"][0]["text"].startswith(f"the limit of its task '{task}' is used up: 1 of 1 run")
    assert f"holdfast limits set --task {task} --most 2" in why["reasons"][0]["fix"]
    ask.post("/limits/clear", {"task": task})
    assert ask.get(f"/jobs/{held}").json()["shown"] == "ready"


def test_why_is_asked_of_jobs_that_the_key_may_see(fresh: Asking) -> None:
    job = fresh.enqueue(queue="theirs")
    assert fresh.get(f"/jobs/{job}/why", fresh.key(Role.CLIENT, queues=("mine",))).status_code == 403
    assert fresh.get(f"/jobs/{uuid4()}/why").status_code == 404
