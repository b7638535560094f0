"""Who comes in, and what each may do: every endpoint, with every key that should not open it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.cli.common import with_store
from holdfast.core.figures import BUCKETS
from holdfast.core.job import NewJob
from holdfast.errors import BadSetting
from holdfast.server.api.operations import OPERATIONS
from holdfast.server.asgi import create_server
from holdfast.server.keys import digest, key_id, matches, new_key
from holdfast.server.principal import RIGHTS
from holdfast.server.running import secured
from holdfast.server.settings import ServerSettings
from holdfast.store.port import Role
from holdfast.system import SystemEnvironment
from tests.server.conftest import Asking
from tests.server.served import SECRET, bearer, made_key, serving
from tests.server.test_attempts import WRITES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.server.api.table import Operation
    from holdfast.store.port import Store

GOOD = "hf_abcdefghijkl_" + "x" * 43
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def send(ask: Asking, operation: Operation, headers: dict[str, str]) -> httpx2.Response:
    """Send a request that the door judges before anything else is looked at."""
    path = operation.path.replace("{id}", str(uuid4()))
    body: dict[str, Any] = {"json": {}} if operation.body is not None else {}
    return httpx2.request(operation.method, f"{ask.served.api}{path}", headers=headers, verify=False, **body)


# -- keys ------------------------------------------------------------------------------------------------------------------


def test_a_key_is_256_bits_and_known_by_its_public_beginning() -> None:
    text, public = new_key()
    scheme, beginning, secret = text.split("_", 2)
    assert (scheme, beginning, len(beginning), len(secret)) == ("hf", public, 12, 43)
    assert key_id(text) == public
    assert matches(text, digest(text))
    assert not matches(f"{text}x", digest(text))
    assert not matches(text, None)
    assert len({new_key()[0] for _ in range(100)}) == 100


@pytest.mark.parametrize("text", ["", "hf_", "hf_short_secret", GOOD[:-1], f"{GOOD}\n", "Bearer x", "\ud800"])
def test_what_does_not_look_like_a_key_has_no_id(text: str) -> None:
    assert key_id(text) is None
    assert not matches(text, digest("another"))


# -- every endpoint --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad_keys(served: Any) -> dict[str, dict[str, str]]:
    """Headers that let nobody in."""
    store = served.server.context.store
    good, unknown = served.run(made_key(store, Role.ADMIN)), new_key()[0]
    expired = served.run(made_key(store, Role.ADMIN, expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    revoked = served.run(made_key(store, Role.ADMIN))
    served.run(store.revoke_key(key_id(revoked), by="test"))
    return {
        "missing": {},
        "unknown": bearer(unknown),
        "wrong secret of a known key": bearer(good[:-1] + ("a" if good[-1] != "a" else "b")),
        "wrong admin secret": bearer(SECRET[:-1]),
        "expired": bearer(expired),
        "revoked": bearer(revoked),
        "another scheme": {"Authorization": f"Basic {good}"},
        "only the id": bearer(key_id(good) or ""),
    }


@each_operation
def test_nobody_comes_in_without_a_key_that_is_good_now(
    ask: Asking, bad_keys: dict[str, dict[str, str]], operation: Operation
) -> None:
    for why, headers in bad_keys.items():
        answer = send(ask, operation, headers)
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized"), why
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@each_operation
def test_a_key_opens_only_what_its_role_allows_and_the_refusal_says_what_is_missing(
    ask: Asking, served: Any, operation: Operation
) -> None:
    for role in Role:
        key = ask.key(role)
        allowed = not operation.rights or any(right in RIGHTS[role] for right in operation.rights)
        if operation.name == "hearHints" and allowed:
            continue  # would never end
        answer = send(ask, operation, bearer(key))
        assert (answer.status_code != 403) is allowed, f"{role} {answer.text}"
        if not allowed:
            problem = answer.json()
            assert (problem["error"], problem["facts"]) == ("forbidden", {"right": operation.rights[0].value})
            assert operation.rights[0].value in problem["message"]


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.rights], ids=lambda operation: operation.name)
def test_a_key_that_is_narrowed_to_some_actions_does_nothing_else(ask: Asking, operation: Operation) -> None:
    key = ask.key(Role.ADMIN, actions=("audit",))
    assert send(ask, operation, bearer(key)).status_code == 403


# -- queues ----------------------------------------------------------------------------------------------------------------


def test_a_key_for_some_queues_reaches_no_other(ask: Asking) -> None:
    key = ask.key(Role.WORKER, queues=("mine",))
    client = ask.key(Role.CLIENT, queues=("mine",))
    worker = ask.worker(key=key)
    foreign = ask.enqueue(queue="theirs", task="scoped")
    own = ask.post("/jobs", {"jobs": [{"task": "scoped", "queue": "mine"}]}, client).json()["jobs"][0]["job_id"]

    refused = ask.post("/jobs", {"jobs": [{"task": "scoped", "queue": "theirs"}]}, client)
    assert (refused.status_code, refused.json()["facts"]) == (403, {"right": "enqueue", "queue": "theirs"})
    assert "'theirs'" in refused.json()["message"]
    refused = ask.post(f"/workers/{worker}/claim", {"tasks": ["scoped"], "queues": ["mine", "theirs"]}, key)
    assert (refused.status_code, refused.json()["facts"]) == (403, {"right": "work", "queue": "theirs"})

    jobs = ask.post(f"/workers/{worker}/claim", {"tasks": ["scoped"], "limit": 10}, key).json()["jobs"]
    assert [job["job_id"] for job in jobs] == [own]
    assert ask.get(f"/jobs/{foreign}", client).status_code == 403
    assert ask.get(f"/jobs/{foreign}/parts", key).status_code == 403
    assert ask.post(f"/jobs/{foreign}/cancel", {}, client).status_code == 403
    found = ask.post("/jobs/get", {"ids": [str(foreign), own]}, client).json()["jobs"]
    assert [None if one is None else one["id"] for one in found] == [None, own]
    assert ask.post("/jobs/cancel", {"ids": [str(foreign)]}, client).json() == {"answers": ["not_found"]}

    other = ask.worker()
    taken = ask.claim(other, tasks=["scoped"])
    assert [job["job_id"] for job in taken] == [str(foreign)]
    assert ask.get(f"/workers/{other}/leases", key).status_code == 403
    for write, body in WRITES.items():
        refused = ask.post(f"/jobs/{foreign}/{write}", {"token": str(uuid4())} | body, key)
        assert (refused.status_code, "holder" in refused.json()) == (403, False), write
    step = {"task": "next", "queue": "theirs", "id": str(ask.served.server.context.environment.job_id())}
    item = {"job_id": own, "token": jobs[0]["token"], "event": "continued", "failures": 0, "then": step}
    assert ask.post("/leases/settle", {"items": [item]}, key).status_code == 403


NONE_THERE = {"jobs": [None]}
FOREIGN: dict[str, tuple[Any, Any]] = {
    "heartbeat": ({"leases": ["<lease>"]}, 403),
    "claim": ({"tasks": ["theirs"], "queues": ["theirs"]}, 403),
    "listLeases": (None, {"leases": []}),
    "enqueue": ({"jobs": [{"task": "t", "queue": "mine"}], "under": "<lease>"}, 403),
    "getJobs": ({"ids": ["<id>"]}, NONE_THERE),
    "cancelJobs": ({"ids": ["<id>"]}, {"answers": ["not_found"]}),
    "getJob": (None, 403),
    "explainJob": (None, 403),
    "cancelJob": ({}, 403),
    "getChains": ({"ids": ["<id>"]}, {"chains": [None]}),
    "setLimit": ({"queue": "theirs", "most": 1}, 403),
    "clearLimit": ({"queue": "theirs"}, 403),
    "extendLease": ({"token": "<token>"}, 403),
    "reportProgress": ({"token": "<token>", "percent": 50}, 403),
    "writeCheckpoint": ({"token": "<token>", "name": "half"}, 403),
    "writeLog": ({"token": "<token>", "message": "hello"}, 403),
    "completeJob": ({"token": "<token>"}, 403),
    "failJob": ({"token": "<token>"}, 403),
    "releaseJob": ({"token": "<token>"}, 403),
    "wasSettled": ({"token": "<token>"}, 403),
    "listParts": (None, 403),
    "listBlockers": (None, 403),
    "extendLeases": ({"leases": ["<lease>"]}, 403),
    "settleLeases": ({"items": [{"<lease>": 0, "event": "succeeded", "failures": 0}]}, 403),
    "reportProgressOfLeases": ({"items": [{"<lease>": 0, "percent": 50}]}, 403),
    "writeCheckpointsOfLeases": ({"items": [{"<lease>": 0, "part": {"name": "half", "state": "completed"}}]}, 403),
    "writeLogsOfLeases": ({"items": [{"<lease>": 0, "message": "hello"}]}, 403),
    "markStagesOfLeases": ({"items": [{"<lease>": 0, "name": "s", "event": "stage:entered"}]}, 403),
    "freeLeases": ({"leases": ["<lease>"]}, 403),
    "addFigures": (
        {
            "figures": [
                {"queue": "theirs", "task": "t", "event": "failed", "count": 1, "waits": [0] * BUCKETS, "runs": [0] * BUCKETS}
            ]
        },
        403,
    ),
}
"""What an operation is sent about a job that is held in another queue, and what it answers: a status, or nothing of the job."""
NO_QUEUE = {
    "getServer": "tells of the server",
    "registerWorker": "a worker is in no queue",
    "retireWorker": "a worker is in no queue",
    "getSignals": "a signal is in no queue: a job of any may wait for it",
    "getScale": "test_scale.py sees to it",
    "listLimits": "test_limits.py sees to it",
    "hearHints": "test_waiting.py sees to it",
}
"""Operations that are about no job, and why."""


def filled(body: Any, job: dict[str, Any]) -> Any:
    """Return a body with the lease that it names."""
    match body:
        case "<lease>":
            return lease_in(job)
        case "<token>":
            return job["token"]
        case "<id>":
            return job["job_id"]
        case dict():
            named = lease_in(job) if "<lease>" in body else {}
            return named | {name: filled(one, job) for name, one in body.items() if name != "<lease>"}
        case list():
            return [filled(one, job) for one in body]
    return body


def test_every_operation_is_tried_with_a_job_of_another_queue_or_is_about_none() -> None:
    assert sorted([*FOREIGN, *NO_QUEUE]) == sorted(operation.name for operation in OPERATIONS)


@pytest.fixture
def theirs(ask: Asking) -> Iterator[dict[str, Any]]:
    """A job that is held in a queue of others: not even who knows its token may touch it with a key for another one."""
    job = ask.claimed(queue="theirs", chain=True)
    yield job
    assert ask.post(f"/jobs/{job['job_id']}/release", {"token": job["token"]}).json()["state"] == "ready"


@pytest.mark.parametrize("name", FOREIGN)
def test_a_key_for_some_queues_does_nothing_with_the_lease_of_another(ask: Asking, theirs: dict[str, Any], name: str) -> None:
    operation = next(one for one in OPERATIONS if one.name == name)
    body, expected = FOREIGN[name]
    before = ask.run(ask.store.get([UUID(theirs["job_id"])]))
    of_path = before[0].worker_id if operation.path.startswith("/workers") else theirs["job_id"]

    answer = ask.client.request(
        operation.method,
        operation.path.replace("{id}", str(of_path)),
        headers=bearer(ask.key(Role.ADMIN, queues=("mine",))),
        json=filled(body, theirs),
    )

    if expected == 403:
        assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), answer.text
        assert "theirs" in answer.json()["message"]
    else:
        assert (answer.status_code, answer.json()) == (200, expected)
    assert ask.run(ask.store.get([UUID(theirs["job_id"])])) == before
    for records in (ask.store.parts(UUID(theirs["job_id"])), ask.store.logs(UUID(theirs["job_id"]), limit=9)):
        assert ask.run(records) == []


def test_a_key_for_all_queues_is_asked_for_no_queue(
    ask: Asking, theirs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    real = ask.store.get

    async def counted(ids: Any) -> Any:
        looked.append(ids)
        return await real(ids)

    monkeypatch.setattr(ask.store, "get", counted)
    for name in ("extendLease", "reportProgress", "extendLeases", "reportProgressOfLeases", "freeLeases"):
        operation = next(one for one in OPERATIONS if one.name == name)
        path = operation.path.replace("{id}", theirs["job_id"])
        assert ask.post(path, filled(FOREIGN[name][0], theirs), ask.key(Role.WORKER)).status_code == 200
    assert looked == []


# -- pages of other sites --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.method != "GET"], ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}],
    ids=str,
)
def test_what_a_page_of_another_site_sends_with_a_session_is_refused(
    ask: Asking, operation: Operation, headers: dict[str, str]
) -> None:
    login = {"Origin": ask.served.url}
    answer = httpx2.post(f"{ask.served.url}/login", data={"secret": SECRET}, headers=login, verify=False)
    cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    refused = send(ask, operation, cookie | headers)
    assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
    assert send(ask, operation, cookie | login).status_code != 403
    assert send(ask, operation, bearer(SECRET) | headers).status_code != 403


# -- what must not be seen -------------------------------------------------------------------------------------------------


def test_secrets_are_told_to_machines_and_kept_from_people() -> None:
    args = {"user": 1, "password": "hunter2", "iban": "DE1", "note": "token=abc123", "big": 2**63 - 1}
    hidden = args | {"password": "[redacted]", "iban": "[redacted]", "note": "token=[redacted]"}
    with serving(Holdfast("memory://"), housekeeping=False, redacted=("iban",)) as served:
        ask = Asking(served)
        job = ask.claimed(args=args, chain=True)
        ask.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"], "result": {"api_key": "k1", "ok": True}})
        ids = {"ids": [job["job_id"]]}
        for role in Role:
            key = ask.key(role)
            chain = ask.post("/chains/get", ids, key).json()["chains"][0]
            one, other = ask.get(f"/jobs/{job['job_id']}", key).json(), ask.post("/jobs/get", ids, key).json()["jobs"][0]
            people = role in (Role.VIEWER, Role.OPERATOR)
            result = {"api_key": "[redacted]" if people else "k1", "ok": True}
            assert one["args"] == other["args"] == (hidden if people else args), role
            assert one["result"] == other["result"] == chain["result"] == result, role
        ask.client.close()


# -- time ------------------------------------------------------------------------------------------------------------------


def test_a_revoked_key_is_out_within_a_second(ask: Asking) -> None:
    key = ask.key(Role.WORKER)
    assert ask.get("/server", key).status_code == 200
    ask.run(ask.store.revoke_key(key_id(key) or "", by="test"))
    began = time.monotonic()
    while ask.get("/server", key).status_code == 200:
        assert time.monotonic() - began < 1.0
        time.sleep(0.02)


def test_use_of_a_key_is_noted(ask: Asking) -> None:
    key = ask.key(Role.WORKER)
    assert ask.run(ask.store.keys([key_id(key) or ""]))[0].used_at is None
    ask.get("/server", key)
    assert ask.run(ask.store.keys([key_id(key) or ""]))[0].used_at is not None


def test_a_known_and_an_unknown_key_cost_the_same_queries(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    store, real = ask.store, ask.store.keys

    async def counted(ids: Sequence[str]) -> Any:
        asked.extend(ids)
        return await real(ids)

    monkeypatch.setattr(store, "keys", counted)
    good = ask.key(Role.WORKER)
    for text in (new_key()[0], good[:-2] + "xx", "no key at all"):
        asked.clear()
        ask.served.server.context.keyring.forget()  # what a test before this one has asked for is not known by heart
        assert ask.get("/server", text).status_code == 401
        assert len(asked) == 1


# -- whose a worker is -----------------------------------------------------------------------------------------------------


def test_nobody_speaks_for_a_worker_of_another_key_or_learns_its_tokens(ask: Asking) -> None:
    farm, other = ask.key(Role.WORKER, name="farm"), ask.key(Role.WORKER, name="other")
    worker = ask.worker("w", farm)
    ask.enqueue()
    (job,) = ask.claim(worker, farm)
    tries = [
        ask.get(f"/workers/{worker}/leases", other),
        ask.post(f"/workers/{worker}/claim", {"tasks": ["t"]}, other),
        ask.post(f"/workers/{worker}/heartbeat", {}, other),
        ask.post("/workers", {"name": "mine now", "id": str(worker)}, other),
        ask.delete(f"/workers/{worker}", other),
    ]
    assert [answer.status_code for answer in tries] == [403] * 5
    assert "registered with another key than 'other'" in tries[0].json()["message"]
    assert job["token"] not in "".join(answer.text for answer in tries)
    again = ask.key(Role.WORKER, name="farm")  # rotation: a second key of the same name
    assert ask.get(f"/workers/{worker}/leases", again).json()["leases"][0]["token"] == job["token"]
    assert ask.get(f"/workers/{worker}/leases").status_code == 200, "an admin may"


def test_whose_a_worker_is_outlives_the_server(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(url, housekeeping=False) as served:
        ask = Asking(served)
        farm, other = ask.key(Role.WORKER, name="farm"), ask.key(Role.WORKER, name="other")
        worker = ask.worker("w", farm)
        ask.client.close()
    with serving(url, housekeeping=False) as served:
        ask = Asking(served)
        assert ask.post(f"/workers/{worker}/heartbeat", {}, other).status_code == 403
        assert ask.post(f"/workers/{worker}/heartbeat", {}, farm).status_code == 200
        ask.client.close()


def test_jobs_of_holdfasts_own_are_nobody_elses(ask: Asking) -> None:
    key = ask.key(Role.WORKER)
    worker = ask.worker("w", key)
    tries = [
        ask.post("/jobs", {"jobs": [{"task": "holdfast.deliver", "queue": "holdfast"}]}, key),
        ask.post("/jobs", {"jobs": [{"task": "holdfast.deliver"}]}, key),
        ask.post(f"/workers/{worker}/claim", {"tasks": ["holdfast.deliver"]}, key),
        ask.post(f"/workers/{worker}/claim", {"tasks": ["t"], "queues": ["holdfast"]}, key),
    ]
    assert [answer.status_code for answer in tries] == [403] * 4
    assert "Holdfast's own" in tries[0].json()["message"]


# -- how often -------------------------------------------------------------------------------------------------------------


def test_who_comes_too_often_is_told_when_to_come_again() -> None:
    with serving(Holdfast("memory://"), housekeeping=False, key_rate=2.0) as served:
        ask = Asking(served)
        answers = [ask.get("/server") for _ in range(6)]
        ask.client.close()
    assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
    assert answers[-1].headers["Retry-After"] == "1"
    assert answers[-1].json()["error"] == "too_many"
    assert "2 a second" in answers[-1].json()["message"]


KEEPS: dict[str, Callable[[dict[str, Any]], tuple[str, Any]]] = {
    "heartbeat": lambda job: (f"/workers/{job['worker']}/heartbeat", {"leases": [lease_in(job)]}),
    "extendLease": lambda job: (f"/jobs/{job['job_id']}/extend", {"token": job["token"]}),
    "completeJob": lambda job: (f"/jobs/{job['job_id']}/complete", {"token": job["token"]}),
    "failJob": lambda job: (f"/jobs/{job['job_id']}/fail", {"token": job["token"]}),
    "releaseJob": lambda job: (f"/jobs/{job['job_id']}/release", {"token": job["token"]}),
    "extendLeases": lambda job: ("/leases/extend", {"leases": [lease_in(job)]}),
    "settleLeases": lambda job: ("/leases/settle", {"items": [lease_in(job) | {"event": "succeeded", "failures": 0}]}),
    "freeLeases": lambda job: ("/leases/free", {"leases": [lease_in(job)]}),
}
"""What keeps or ends a lease: the path and the body of a request about a job that is held."""


def lease_in(job: dict[str, Any]) -> dict[str, Any]:
    return {"job_id": job["job_id"], "token": job["token"]}


def use_up(ask: Asking, key: str) -> None:
    """Ask until a key is told to wait."""
    for _ in range(100):
        if ask.get("/server", key).status_code == 429:
            return
    raise AssertionError("the key may ask as often as it likes")


def test_every_operation_that_keeps_or_ends_a_lease_is_tried_below() -> None:
    assert {one.name for one in OPERATIONS if one.keeps} == set(KEEPS)


@pytest.fixture
def slow() -> Iterator[Asking]:
    """A server that lets a key ask twice a second."""
    with serving(Holdfast("memory://"), housekeeping=False, key_rate=2.0) as served:
        ask = Asking(served)
        yield ask
        ask.client.close()


@pytest.mark.parametrize("name", KEEPS)
def test_a_key_that_has_asked_too_often_loses_no_lease(slow: Asking, name: str) -> None:
    key = slow.key(Role.WORKER)
    worker = slow.worker(key=key)
    job_id = slow.run(enqueued(slow.store, task=name))
    (job,) = slow.claim(worker, key, tasks=[name])
    use_up(slow, key)

    path, body = KEEPS[name](job | {"worker": worker})
    answer = slow.post(path, body, key)

    assert (job["job_id"], answer.status_code) == (str(job_id), 200), answer.text
    assert slow.get("/server", key).status_code == 429, "the rest still has to wait"


def test_what_keeps_leases_has_a_limit_of_its_own(slow: Asking) -> None:
    key = slow.key(Role.WORKER)
    answers = (slow.post("/leases/extend", {"leases": []}, key) for _ in range(600))  # a slow machine sends few a second
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert "20 a second" in refused.json()["message"]
    assert slow.get("/server", key).status_code == 200, "and takes nothing from the rest"


async def enqueued(store: Store, **fields: Any) -> UUID:
    """Enqueue a job beside the server, which counts no request for it."""
    job = NewJob(id=SystemEnvironment().job_id(), **fields)
    await store.enqueue([job])
    return job.id


def test_who_guesses_is_shut_out_and_those_who_were_in_stay_in() -> None:
    with serving(Holdfast("memory://"), housekeeping=False, failure_rate=3.0) as served:
        ask = Asking(served)
        good, later = ask.key(Role.WORKER), ask.key(Role.WORKER)
        assert ask.get("/server", good).status_code == 200
        answers = [ask.get("/server", new_key()[0]) for _ in range(5)]
        known, unknown, admin = ask.get("/server", good), ask.get("/server", later), ask.get("/server", SECRET)
        ask.client.close()
    assert [answer.status_code for answer in answers] == [401] * 3 + [429] * 2
    assert int(answers[-1].headers["Retry-After"]) >= 10
    assert "3 a minute" in answers[-1].json()["message"]
    assert (known.status_code, unknown.status_code, admin.status_code) == (200, 429, 200)


# -- where it may listen ---------------------------------------------------------------------------------------------------


async def test_a_server_that_others_reach_needs_a_secret_or_an_admins_key() -> None:
    app = Holdfast("memory://")
    store = app.world().make_store()
    settings = ServerSettings(host="0.0.0.0")

    async def start() -> None:
        async with create_server(app, settings).router.lifespan_context(None):
            pass

    with pytest.raises(BadSetting, match="can be reached from other machines"):
        await start()
    await made_key(store, Role.WORKER)
    revoked = await made_key(store, Role.ADMIN)
    await store.revoke_key(key_id(revoked) or "", by="test")
    with pytest.raises(BadSetting, match="HOLDFAST_ADMIN_SECRET"):
        await start()
    await made_key(store, Role.ADMIN)
    await start()


@pytest.mark.parametrize("flaw", ["expired", "revoked", "a worker's"])
def test_a_server_that_no_admin_could_come_into_makes_a_secret_for_this_run(tmp_path: Path, flaw: str) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def furnish(store: Store) -> None:
        ends = datetime.now(UTC) - timedelta(seconds=1) if flaw == "expired" else None
        key = await made_key(store, Role.WORKER if flaw == "a worker's" else Role.ADMIN, expires_at=ends)
        if flaw == "revoked":
            await store.revoke_key(key_id(key) or "", by="test")

    async def invite(store: Store) -> None:
        await made_key(store, Role.ADMIN)

    asyncio.run(with_store(url, furnish, create=True))
    settings, secret = secured(url, ServerSettings())
    assert secret is not None
    assert settings.admin_secret == secret
    asyncio.run(with_store(url, invite))
    assert secured(url, ServerSettings()) == (ServerSettings(), None)


def test_an_open_server_is_for_this_machine_alone() -> None:
    with pytest.raises(BadSetting, match="--open"):
        ServerSettings(host="0.0.0.0", open=True)
    with serving(Holdfast("memory://"), housekeeping=False, admin_secret=None, open=True) as served:
        assert httpx2.get(f"{served.api}/server", verify=False).status_code == 200
        answer = httpx2.get(f"{served.api}/server", headers={"Host": "evil.example"}, verify=False)
    assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")
