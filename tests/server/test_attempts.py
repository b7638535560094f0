"""The life of a job in the hands of a worker in any language: plain requests, one job at a time."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.server.keys import new_key
from holdfast.store.port import Grain, Role, WorkerKind
from holdfast.wire.leases import ClaimAnswer
from tests.server.conftest import Asking
from tests.server.served import serving

WRITES: dict[str, dict[str, Any]] = {
    "extend": {},
    "progress": {"percent": 50},
    "checkpoint": {"name": "half"},
    "log": {"message": "hello"},
    "complete": {"result": 1},
    "fail": {"code": "BOOM"},
    "release": {},
}


def test_a_job_is_claimed_reported_on_and_completed(ask: Asking) -> None:
    job = ask.claimed(args={"file": "a.mov", "n": 12345678901234567890.0})
    path, token = f"/jobs/{job['job_id']}", {"token": job["token"]}

    assert job["args"] == {"file": "a.mov", "n": 12345678901234567890.0}
    assert job["attempt"] == 1
    assert ask.post(f"{path}/progress", token | {"percent": 40, "message": "rendering"}).json() == {"answer": "applied"}
    assert ask.post(f"{path}/checkpoint", token | {"name": "pass 1", "data": [1, 2.50]}).json() == {"answer": "applied"}
    assert ask.post(f"{path}/log", token | {"message": "line", "fields": {"a": 1}}).json() == {"answer": "applied"}
    extended = ask.post(f"{path}/extend", token).json()
    assert (extended["hold"], "cancel_requested" in extended) == ("held", False)
    done = ask.post(f"{path}/complete", token | {"result": {"url": "s3://x"}})
    assert done.json() == {"state": "succeeded", "repeated": False, "late": False}

    view = ask.get(path).json()
    assert (view["state"], view["result"], view["progress"], view["worker_name"]) == (
        "succeeded",
        {"url": "s3://x"},
        40.0,
        "one",
    )
    parts = ask.get(f"{path}/parts").json()["parts"]
    assert [(part["name"], part["state"], part["data"]) for part in parts] == [("pass 1", "completed", [1, 2.5])]


def test_what_was_done_once_is_answered_as_done_when_it_is_repeated(ask: Asking) -> None:
    for end, state in (("complete", "succeeded"), ("fail", "scheduled"), ("release", "ready")):
        job = ask.claimed()
        first = ask.post(f"/jobs/{job['job_id']}/{end}", {"token": job["token"]})
        again = ask.post(f"/jobs/{job['job_id']}/{end}", {"token": job["token"]})

        assert (first.status_code, first.json()["repeated"], first.json()["state"]) == (200, False, state)
        assert (again.status_code, again.json()["repeated"], again.json()["state"]) == (200, True, state)


def test_a_failure_is_retried_as_the_policy_of_the_job_says(ask: Asking) -> None:
    retry = {"max_attempts": 2, "initial_ms": 60_000, "jitter": 0}
    job = ask.claimed(retry=retry)

    failed = ask.post(f"/jobs/{job['job_id']}/fail", {"token": job["token"], "code": "BOOM", "message": "it broke"}).json()
    assert (failed["state"], failed["retry_in_ms"]) == ("scheduled", 60_000)

    ask.run(ask.store.rewind(61))
    ask.run(ask.store.promote(100))
    second = ask.claim(ask.worker(), tasks=[job["task"]])[0]
    assert (second["attempt"], second["failures"]) == (2, 1)
    last = ask.post(f"/jobs/{job['job_id']}/fail", {"token": second["token"], "code": "BOOM"}).json()
    assert last["state"] == "failed"
    assert ask.get(f"/jobs/{job['job_id']}").json()["error"]["code"] == "RETRIES_EXHAUSTED"


def test_a_failure_that_is_not_retryable_is_the_last(ask: Asking) -> None:
    job = ask.claimed()
    body = {"token": job["token"], "code": "BAD_FILE", "message": "no video", "traceback": "line 1", "retryable": False}
    assert ask.post(f"/jobs/{job['job_id']}/fail", body).json()["state"] == "failed"
    error = ask.get(f"/jobs/{job['job_id']}").json()["error"]
    assert error == {"code": "BAD_FILE", "message": "no video", "traceback": "line 1"}


def test_every_write_that_is_refused_as_stale_is_counted(ask: Asking) -> None:
    job = ask.claimed("first")
    ask.taken_over(job, "second")
    for write, more in WRITES.items():
        assert ask.post(f"/jobs/{job['job_id']}/{write}", {"token": job["token"]} | more).status_code == 409
    assert ask.post(f"/jobs/{uuid4()}/extend", {"token": job["token"]}).status_code == 404

    text = ask.client.get(f"{ask.served.url}/metrics").text
    own = f'id="{ask.served.server.context.id}"'
    counted = re.findall(rf'holdfast_worker_stale_writes_total{{{own},kind="(\w+)",worker="server"}} (\d+)', text)
    assert counted == [("checkpoint", "1"), ("extend", "1"), ("log", "1"), ("progress", "1"), ("settle", "3")]


@pytest.mark.parametrize(
    ("first", "then"), [("release", "complete"), ("release", "fail"), ("fail", "complete"), ("fail", "release")]
)
@pytest.mark.parametrize("taken", [True, False])
def test_an_attempt_that_was_ended_otherwise_is_not_answered_as_repeated(
    ask: Asking, first: str, then: str, *, taken: bool
) -> None:
    job = ask.claimed("first", retry={"max_attempts": 5, "initial_ms": 0, "jitter": 0})
    path = f"/jobs/{job['job_id']}"
    assert ask.post(f"{path}/{first}", {"token": job["token"]} | WRITES[first]).status_code == 200
    if taken:
        assert len(ask.claim(ask.worker("second"), tasks=[job["task"]])) == 1
    before = ask.get(path).json()

    answer = ask.post(f"{path}/{then}", {"token": job["token"]} | WRITES[then])

    assert (answer.status_code, answer.json()["error"]) == (409, "stale")
    assert answer.json().get("holder", {}).get("worker") == ("second" if taken else None)
    assert ask.get(path).json() == before
    again = ask.post(f"{path}/{first}", {"token": job["token"]} | WRITES[first])
    assert (again.status_code, again.json()["repeated"]) == (200, True)


def test_a_line_of_the_log_that_is_sent_again_by_its_id_is_there_once(ask: Asking) -> None:
    job, line = ask.claimed(), {"message": "half of it", "id": str(uuid4())}
    for _ in range(2):
        assert ask.post(f"/jobs/{job['job_id']}/log", {"token": job["token"], **line}).json() == {"answer": "applied"}
    item = {"job_id": job["job_id"], "token": job["token"], **line}
    assert ask.post("/leases/log", {"items": [item]}).json() == {"answers": ["applied"]}
    assert [one.message for one in ask.run(ask.store.logs(UUID(job["job_id"]), limit=10))] == ["half of it"]


def test_a_release_and_a_failure_that_ended_a_canceled_job_are_repeatable(ask: Asking) -> None:
    for end in ("release", "fail"):
        job = ask.claimed(retry={"max_attempts": 5})
        ask.post(f"/jobs/{job['job_id']}/cancel")
        for repeated in (False, True):
            answer = ask.post(f"/jobs/{job['job_id']}/{end}", {"token": job["token"]}).json()
            assert (answer["state"], answer["repeated"]) == ("canceled", repeated)
        assert ask.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]}).status_code == 409


def test_whoever_asks_how_an_attempt_was_ended_is_told(ask: Asking) -> None:
    job = ask.claimed()
    assert ask.post(f"/jobs/{job['job_id']}/settled", {"token": job["token"]}).json() == {"settled": False}
    ask.post(f"/jobs/{job['job_id']}/release", {"token": job["token"]})
    told = ask.post(f"/jobs/{job['job_id']}/settled", {"token": job["token"]}).json()
    assert told == {"settled": True, "event": "released"}


def test_secrets_in_an_error_are_taken_out_before_it_is_stored(ask: Asking) -> None:
    error = {"code": "LOGIN", "message": "password=hunter2", "traceback": f"with {new_key()[0]}, line 3"}
    one, other = ask.claimed(), ask.claimed()
    assert ask.post(f"/jobs/{one['job_id']}/fail", {"token": one["token"], **error}).status_code == 200
    item = {"job_id": other["job_id"], "token": other["token"], "event": "failed", "failures": 1, "error": error}
    assert ask.post("/leases/settle", {"items": [item]}).json() == {"answers": ["applied"]}

    for job in (one, other):
        (attempt,) = ask.run(ask.store.attempts(UUID(job["job_id"])))
        assert (attempt.error.message, attempt.error.traceback) == ("password=[redacted]", "with [redacted], line 3")


def test_a_cancel_reaches_the_worker_which_ends_the_job_by_releasing_it(ask: Asking) -> None:
    job = ask.claimed()
    path = f"/jobs/{job['job_id']}"
    assert ask.post(f"{path}/cancel", {"reason": "enough"}).json() == {"answer": "requested"}

    worker = ask.get(path).json()["worker_id"]
    beat = ask.post(f"/workers/{worker}/heartbeat", {"leases": [{"job_id": job["job_id"], "token": job["token"]}]}).json()
    assert [(one["hold"], one["cancel_requested"]) for one in beat["leases"]] == [("held", True)]
    assert ask.post(f"{path}/extend", {"token": job["token"]}).json()["cancel_requested"] is True
    assert ask.post(f"{path}/release", {"token": job["token"]}).json()["state"] == "canceled"


@pytest.mark.parametrize("write", WRITES)
def test_whoever_lost_a_job_is_told_who_has_it_now_and_changes_nothing(ask: Asking, write: str) -> None:
    job = ask.claimed("first")
    taken = ask.taken_over(job, "second")
    before = ask.get(f"/jobs/{job['job_id']}").json()

    answer = ask.post(f"/jobs/{job['job_id']}/{write}", {"token": job["token"]} | WRITES[write])

    assert answer.status_code == 409
    problem = answer.json()
    assert (problem["error"], problem["state"]) == ("stale", "running")
    assert problem["holder"] == {
        "worker_id": before["worker_id"],
        "worker": "second",
        "attempt": taken["attempt"],
        "since": taken["claimed_at"],
    }
    assert "fix" in problem
    assert ask.get(f"/jobs/{job['job_id']}").json() == before


@pytest.mark.parametrize("write", WRITES)
def test_whoever_comes_after_the_end_is_told_of_it(ask: Asking, write: str) -> None:
    job = ask.claimed()
    taken = ask.taken_over(job)
    ask.post(f"/jobs/{job['job_id']}/complete", {"token": taken["token"]})

    answer = ask.post(f"/jobs/{job['job_id']}/{write}", {"token": job["token"]} | WRITES[write])

    assert (answer.status_code, answer.json()["state"]) == (409, "succeeded")
    assert "holder" not in answer.json()


def test_a_late_end_of_a_lease_that_nobody_has_taken_is_accepted_and_marked(ask: Asking) -> None:
    job = ask.claimed()
    ask.run(ask.store.rewind(2 * job["lease_ms"] / 1000))
    assert ask.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"]}).json()["late"] is True
    assert ask.get(f"/jobs/{job['job_id']}").json()["late"] is True


@pytest.mark.parametrize("write", WRITES)
def test_a_job_that_is_not_there_is_not_found(ask: Asking, write: str) -> None:
    answer = ask.post(f"/jobs/{uuid4()}/{write}", {"token": str(uuid4())} | WRITES[write])
    assert (answer.status_code, answer.json()["error"]) == (404, "job_not_found")


def test_a_worker_of_the_api_is_a_remote_one_and_learns_what_people_decide(ask: Asking) -> None:
    worker = ask.worker("far away")
    views = ask.run(ask.store.workers())
    assert next(view for view in views if view.worker.id == worker).worker.kind is WorkerKind.REMOTE

    assert ask.post(f"/workers/{worker}/heartbeat").json() == {"disabled": False, "drain": False, "leases": [], "idle": []}
    ask.run(ask.store.disable(worker))
    ask.run(ask.store.drain(worker))
    assert ask.post(f"/workers/{worker}/heartbeat").json() == {"disabled": True, "drain": True, "leases": [], "idle": []}
    assert ask.delete(f"/workers/{worker}").json() == {"ok": True}


def test_the_server_makes_an_id_for_a_worker_that_brings_none(ask: Asking) -> None:
    made = ask.post("/workers", {"name": "x"}).json()
    assert ask.post(f"/workers/{made['id']}/heartbeat").status_code == 200
    assert made["longest_wait_ms"] == 30_000


def test_leases_whose_claim_was_never_answered_are_found_and_given_back(ask: Asking) -> None:
    job = ask.claimed()
    worker = ask.get(f"/jobs/{job['job_id']}").json()["worker_id"]
    leases = ask.get(f"/workers/{worker}/leases").json()["leases"]
    assert leases == [{"job_id": job["job_id"], "token": job["token"]}]
    assert ask.post(f"/jobs/{job['job_id']}/release", {"token": job["token"]}).json()["state"] == "ready"
    assert ask.get(f"/workers/{worker}/leases").json()["leases"] == []


def test_a_job_enqueued_again_under_its_own_id_is_the_same_job(ask: Asking) -> None:
    job_id = str(ask.served.server.context.environment.job_id())
    body = {"jobs": [{"task": "t", "id": job_id, "key": "k", "delay_ms": 60_000, "priority": 7, "tags": ["a"]}]}
    assert ask.post("/jobs", body).json() == {"jobs": [{"status": "created", "job_id": job_id}]}
    assert ask.post("/jobs", body).json() == {"jobs": [{"status": "repeated", "job_id": job_id}]}
    other = ask.post("/jobs", {"jobs": [{"task": "t", "key": "k"}]}).json()["jobs"]
    assert other == [{"status": "existing", "job_id": job_id}]
    view = ask.get(f"/jobs/{job_id}").json()
    assert (view["state"], view["priority"], view["tags"], view["key"]) == ("scheduled", 7, ["a"], "k")
    assert ask.post(f"/jobs/{job_id}/cancel").json() == {"answer": "done"}
    refused = ask.post(f"/jobs/{job_id}/cancel")
    assert (refused.status_code, refused.json()["state"]) == (409, "canceled")


def test_a_full_queue_and_a_dead_lease_refuse_an_enqueue(ask: Asking) -> None:
    full = ask.post("/jobs", {"jobs": [{"task": "t", "queue": "narrow"}] * 2, "caps": {"narrow": 1}})
    assert (full.status_code, full.json()["error"], full.json()["facts"]["max_depth"]) == (409, "queue_full", 1)
    job = ask.claimed()
    taken = ask.taken_over(job)
    request = {"jobs": [{"task": "t"}], "under": {"job_id": job["job_id"], "token": job["token"]}}
    stale = ask.post("/jobs", request)
    assert (stale.status_code, stale.json()["error"], stale.json()["state"]) == (409, "stale", "running")
    holder = stale.json()["holder"]
    assert (holder["worker"], holder["attempt"]) == ("two", taken["attempt"])
    unseeing = ask.post("/jobs", request, ask.key(Role.CLIENT, actions=("enqueue",)))
    assert (unseeing.status_code, "holder" in unseeing.json(), "state" in unseeing.json()) == (409, False, False)
    ask.post(f"/jobs/{job['job_id']}/complete", {"token": taken["token"]})
    ended = ask.post("/jobs", request)
    assert (ended.status_code, ended.json()["state"], "holder" in ended.json()) == (409, "succeeded", False)
    ask.run(ask.store.delete([UUID(job["job_id"])]))
    assert (ask.post("/jobs", request).status_code, ask.post("/jobs", request).json()["error"]) == (409, "stale")


def test_numbers_pass_digit_for_digit(ask: Asking) -> None:
    text = b'{"jobs":[{"task":"tests.exact","args":{"n":1.10,"big":9223372036854775807,"e":1E+2}}]}'
    headers = {"Content-Type": "application/json"}
    job_id = ask.client.post("/jobs", content=text, headers=headers).json()["jobs"][0]["job_id"]
    answer = ask.client.post(f"/workers/{ask.worker()}/claim", json={"tasks": ["tests.exact"]}).content

    claimed = msgspec.json.decode(answer, type=ClaimAnswer).jobs
    assert [str(one.job_id) for one in claimed] == [job_id]
    assert bytes(claimed[0].args) == b'{"n":1.10,"big":9223372036854775807,"e":1E+2}'


def test_attempts_of_workers_in_other_languages_are_in_the_figures() -> None:
    with serving(Holdfast("memory://")) as served:
        ask = Asking(served)
        job = ask.claimed(queue="video")
        for _ in range(2):
            ask.post(f"/jobs/{job['job_id']}/fail", {"token": job["token"], "code": "BOOM", "retryable": False})
        ask.client.close()
    # the last figures are written when the server stops
    figures = [view.figure for view in asyncio.run(served.server.context.store.figures(Grain.ALL))]
    assert [(one.queue, one.event.value, one.code, one.count) for one in figures] == [("video", "failed", "BOOM", 1)]
