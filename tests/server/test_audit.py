"""Every change that somebody makes through the server stands in the audit log with who made it, or was not made.

The tables name every endpoint and every form of the dashboard: one that is new fails a test until it is in one of them.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from holdfast import Holdfast, Retry
from holdfast.core.job import NewJob
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.server.alerts.delivering import QUEUE, TASK
from holdfast.server.api.operations import OPERATIONS
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings
from holdfast.store.port import Action, ClaimRequest, Firing, Key, Role, Schedule, Settlement, Worker
from holdfast.system import SystemEnvironment
from tests.server.served import bearer
from tests.server.ui.conftest import OWN
from tests.server.ui.serving import SECRET, new_key
from tests.support.audited import picture, refuse_changes, refuse_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.core.lease import Lease
    from holdfast.server.asgi import Server
    from holdfast.store.port import AuditView, Store

WORLD: Final = SystemEnvironment()
SLOT: Final = datetime(2026, 1, 1, tzinfo=UTC)
KEY: Final = Key(id="0" * 12, name="old", role=Role.VIEWER, digest="0" * 64)


@dataclass
class Scene:
    """A server over a file with something in it for every action, and clients that people and machines are known by."""

    server: Server
    path: str
    client: TestClient
    """Of ann, who has logged in as an admin."""
    key: str
    """Of a machine called shop."""
    ids: dict[str, str]

    @property
    def store(self) -> Store:
        return self.server.context.store

    def do(self, coroutine: Any) -> Any:
        async def work() -> Any:
            return await coroutine

        assert self.client.portal is not None
        return self.client.portal.call(work)

    def lines(self) -> list[AuditView]:
        """Return the audit log, without how the scene was set."""
        lines: list[AuditView] = self.do(self.store.audits(limit=100))
        return [line for line in reversed(lines) if line.action is not Action.LOGIN]

    def ask(self, path: str, body: Any) -> Any:
        """Send a request to the API, with the key of the machine."""
        return self.client.post(f"/api/v1{self._filled(path)}", json=self._filled(body), headers=bearer(self.key))

    def post(self, path: str, form: dict[str, str], headers: dict[str, str] | None = None) -> Any:
        """Send a form of the dashboard."""
        return self.client.post(self._filled(path), data=self._filled(form), headers=headers)

    def _filled(self, value: Any) -> Any:
        """Return a path, a form or a body with the ids that it names."""
        if isinstance(value, str):
            for name, known in self.ids.items():
                value = value.replace(f"<{name}>", known)
        elif isinstance(value, dict):
            return {name: self._filled(one) for name, one in value.items()}
        elif isinstance(value, list):
            return [self._filled(one) for one in value]
        return value


async def furnish(store: Store) -> dict[str, str]:
    """Put something into a store for every action; returns it by name."""
    worker, chain = Worker(id=WORLD.job_id(), name="w", slots=9), WORLD.job_id()
    off = Worker(id=WORLD.job_id(), name="off")
    for one in (worker, off):
        await store.register(one)
    await store.disable(off.id)

    async def claim(task: str, **fields: Any) -> Lease:
        await store.enqueue([NewJob(id=WORLD.job_id(), task=task, **fields)])
        return (await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({task}), limit=1, look=True)))[0].lease

    async def failed(task: str, **fields: Any) -> UUID:
        lease = await claim(task, **fields)
        await store.settle([Settlement(lease, Write(Event.FAIL, 1, error=Error("BOOM")))])
        return lease.job_id

    running, waiting = await claim("run"), NewJob(id=WORLD.job_id(), task="wait")
    ids = {"failed": await failed("fail"), "delivery": await failed(TASK, queue=QUEUE), "waiting": waiting.id, "chain": chain}
    ended_chain = WORLD.job_id()
    ids["ended chain"] = ended_chain
    await store.enqueue([waiting, NewJob(id=chain, task="step", chain_id=chain)])
    await store.enqueue([NewJob(id=ended_chain, task="ended", chain_id=ended_chain)])
    await store.cancel([ended_chain])
    await store.schedule([Schedule(name="nightly", task="night", cron="0 3 * * *", timezone="UTC", next_at=SLOT)])
    night = NewJob(id=WORLD.job_id(), task="night", args='{"secret": 1}')
    await store.fire(Firing(name="nightly", slot=SLOT, next_at=SLOT.replace(day=2), job=night))
    await store.pause("mail")
    await store.add_key(KEY)
    return {name: str(one) for name, one in ids.items()} | {
        "worker": str(worker.id),
        "off": str(off.id),
        "key": KEY.id,
        "running": str(running.job_id),
        "token": str(running.token),
        "new": str(WORLD.job_id()),
    }


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    path = f"{tmp_path}/jobs.db"
    server = create_server(f"sqlite:///{path}", ServerSettings(admin_secret=SECRET), housekeeping=False)
    with TestClient(server, headers=OWN, follow_redirects=False) as client:
        scene = Scene(server, path, client, "", {})
        scene.ids = scene.do(furnish(scene.store))
        ann = scene.do(new_key(scene.store, "ann", Role.ADMIN))
        scene.key = scene.do(new_key(scene.store, "shop", Role.CLIENT))
        assert client.post("/login", data={"secret": ann}).status_code == 303
        assert client.get("/api/v1/server", headers=bearer(scene.key)).status_code == 200  # its use is noted now, and not later
        yield scene


# -- the API ---------------------------------------------------------------------------------------------------------------

ASKED: Final[dict[str, tuple[str, Any, Action]]] = {
    "enqueue": ("/jobs", {"jobs": [{"task": "mail", "args": {"to": "a secret"}}]}, Action.ENQUEUE),
    "cancelJobs": ("/jobs/cancel", {"ids": ["<waiting>", "<failed>"]}, Action.CANCEL),
    "cancelJob": ("/jobs/<waiting>/cancel", {}, Action.CANCEL),
}
"""What clients change: path, body, and what the line says."""

LOOKS: Final = "changes nothing"
WORKS: Final = "a worker in its own name: the registry has it"
HOLDS: Final = "a worker under a lease: the job's own records have it, with the worker's name"
STEERS: Final = "an operator's, whose line the store writes: test_limits.py sees it"
UNASKED: Final = {
    **dict.fromkeys(("listLimits", "explainJob"), LOOKS),
    **dict.fromkeys(("setLimit", "clearLimit"), STEERS),
    **dict.fromkeys(("getServer", "getScale", "getJobs", "getJob", "getChains", "wasSettled", "listLeases"), LOOKS),
    **dict.fromkeys(("listParts", "listBlockers", "getSignals", "hearHints"), LOOKS),
    **dict.fromkeys(("registerWorker", "heartbeat", "retireWorker", "addFigures"), WORKS),
    **dict.fromkeys(("claim", "extendLease", "reportProgress", "writeCheckpoint", "writeLog"), HOLDS),
    **dict.fromkeys(("completeJob", "failJob", "releaseJob", "extendLeases", "settleLeases"), HOLDS),
    **dict.fromkeys(("reportProgressOfLeases", "writeCheckpointsOfLeases", "writeLogsOfLeases"), HOLDS),
    **dict.fromkeys(("markStagesOfLeases", "freeLeases"), HOLDS),
}
"""Endpoints that write no line, and why."""


def test_every_endpoint_is_known_to_be_audited_or_not_to_be() -> None:
    assert sorted([*ASKED, *UNASKED]) == sorted(operation.name for operation in OPERATIONS)


@pytest.mark.parametrize("name", ASKED)
def test_what_a_client_changes_leaves_one_line_with_the_name_of_its_key(scene: Scene, name: str) -> None:
    path, body, action = ASKED[name]
    before = len(scene.lines())

    assert scene.ask(path, body).status_code == 200

    assert [(line.actor, line.action) for line in scene.lines()[before:]] == [("shop", action)]


@pytest.mark.parametrize("name", ASKED)
def test_what_a_client_asks_for_does_not_happen_where_its_line_cannot_be_written(scene: Scene, name: str) -> None:
    path, body, _ = ASKED[name]
    refuse_lines(scene.path)
    before = picture(scene.path)

    assert scene.ask(path, body).status_code >= 500

    assert picture(scene.path) == before


@pytest.mark.parametrize("name", ASKED)
def test_what_a_client_asks_for_in_vain_leaves_no_line(scene: Scene, name: str) -> None:
    path, body, _ = ASKED[name]
    before = scene.lines()
    refuse_changes(scene.path)

    assert scene.ask(path, body).status_code >= 500

    assert scene.lines() == before


def test_a_request_that_enqueues_leaves_one_line_with_tasks_counts_and_ids_and_without_args(scene: Scene) -> None:
    mail, sms = {"task": "mail", "args": {"to": "a secret"}}, {"task": "sms", "args": {"to": "a secret"}}

    answer = scene.ask("/jobs", {"jobs": [mail, sms, mail]})

    (line,) = scene.lines()[-1:]
    assert line.targets == tuple(job["job_id"] for job in answer.json()["jobs"])
    assert (line.count, line.detail) == (3, "2 mail, 1 sms")


def test_a_request_that_is_repeated_or_refused_leaves_no_other_line(scene: Scene) -> None:
    before = len(scene.lines())
    job = {"task": "mail", "id": "<new>"}
    for _ in range(2):
        assert scene.ask("/jobs", {"jobs": [job]}).status_code == 200
    for body in (
        {"jobs": [{"task": "mail", "after": ["<worker>"]}]},
        {"jobs": [{"task": "mail"}] * 2, "caps": {"default": 1}},
        {"jobs": [{"task": ""}]},
        {"jobs": [{"task": "mail", "queue": QUEUE}]},
        {"jobs": [{"task": "mail"}], "under": {"job_id": "<running>", "token": "<new>"}},
    ):
        assert scene.ask("/jobs", body).status_code >= 400

    assert [line.targets for line in scene.lines()[before:]] == [(scene.ids["new"],)]


def test_children_that_are_enqueued_under_a_lease_are_written_down_with_the_job_they_are_for(scene: Scene) -> None:
    under = {"job_id": "<running>", "token": "<token>"}

    assert scene.ask("/jobs", {"jobs": [{"task": "child"}], "under": under}).status_code == 200

    (line,) = scene.lines()[-1:]
    assert (line.actor, line.action, line.detail) == ("shop", Action.ENQUEUE, f"for job {scene.ids['running']}; 1 child")


# -- the dashboard ---------------------------------------------------------------------------------------------------------

FORMS: Final[dict[str, tuple[str, str, dict[str, str], Action]]] = {
    "retry some": ("/jobs/act", "/jobs/act", {"verb": "retry", "job": "<failed>"}, Action.RETRY),
    "cancel some": ("/jobs/act", "/jobs/act", {"verb": "cancel", "job": "<waiting>"}, Action.CANCEL),
    "delete some": ("/jobs/act", "/jobs/act", {"verb": "delete", "job": "<failed>"}, Action.DELETE),
    "retry all": ("/jobs/act", "/jobs/act", {"verb": "retry", "all": "1", "q": "task:fail"}, Action.RETRY),
    "retry": ("/jobs/{job_id:uuid}/{verb}", "/jobs/<failed>/retry", {}, Action.RETRY),
    "cancel": ("/jobs/{job_id:uuid}/{verb}", "/jobs/<waiting>/cancel", {"reason": "enough"}, Action.CANCEL),
    "delete": ("/jobs/{job_id:uuid}/{verb}", "/jobs/<failed>/delete", {}, Action.DELETE),
    "complete": ("/jobs/{job_id:uuid}/end", "/jobs/<waiting>/end", {"result": "1"}, Action.COMPLETE),
    "fail": ("/jobs/{job_id:uuid}/end", "/jobs/<running>/end", {"verb": "fail", "result": "no"}, Action.FAIL),
    "pause": ("/queues/pause", "/queues/pause", {"queue": "other"}, Action.PAUSE),
    "resume": ("/queues/resume", "/queues/resume", {"queue": "mail"}, Action.RESUME),
    "drain": ("/workers/{worker_id:uuid}/{verb}", "/workers/<worker>/drain", {}, Action.DRAIN),
    "disable": ("/workers/{worker_id:uuid}/{verb}", "/workers/<worker>/disable", {}, Action.DISABLE),
    "enable": ("/workers/{worker_id:uuid}/{verb}", "/workers/<off>/enable", {}, Action.ENABLE),
    "revoke": ("/workers/{worker_id:uuid}/{verb}", "/workers/<worker>/revoke", {}, Action.REVOKE_WORKER),
    "set a limit": ("/limits/set", "/limits/set", {"kind": "queue", "name": "mail", "most": "3"}, Action.SET_LIMIT),
    "clear a limit": ("/limits/clear", "/limits/clear", {"kind": "queue", "name": "mail"}, Action.SET_LIMIT),
    "run now": ("/schedules/run", "/schedules/run", {"name": "nightly"}, Action.FIRE),
    "cancel a chain": ("/chains/{chain_id:uuid}/{verb}", "/chains/<chain>/cancel", {}, Action.CANCEL),
    "retry a chain": ("/chains/{chain_id:uuid}/{verb}", "/chains/<ended chain>/retry", {}, Action.RETRY),
    "delete a chain": ("/chains/{chain_id:uuid}/{verb}", "/chains/<chain>/delete", {}, Action.DELETE_CHAINS),
    "redeliver": ("/alerts/{job_id:uuid}/redeliver", "/alerts/<delivery>/redeliver", {}, Action.RETRY),
    "add a key": ("/keys", "/keys", {"name": "farm", "role": "worker"}, Action.ADD_KEY),
    "rotate a key": ("/keys/{key_id}/rotate", "/keys/<key>/rotate", {"overlap": "1h"}, Action.ROTATE_KEY),
    "revoke a key": ("/keys/{key_id}/revoke", "/keys/<key>/revoke", {}, Action.REVOKE_KEY),
}
"""What people change: the route, where the form is sent, what it says, and what the line says."""

SESSIONS: Final = "a session is in the memory of its server; its line is written before it begins, and when it has ended"
UNFORMED: Final = {"/login": SESSIONS, "/logout": SESSIONS}
"""Forms that change nothing in the store, and why they are here. Their lines: test_pages.py."""


def test_every_form_of_the_dashboard_is_known_to_be_audited(scene: Scene) -> None:
    routes = [route for route in scene.server.dashboard.routes if isinstance(route, Route)]
    posted = {route.path for route in routes if "POST" in (route.methods or ())}
    assert {route for route, *_ in FORMS.values()} | set(UNFORMED) == posted


@pytest.mark.parametrize("name", FORMS)
def test_what_somebody_does_leaves_one_line_with_their_name(scene: Scene, name: str) -> None:
    _, path, form, action = FORMS[name]
    seen, before = len(scene.lines()), picture(scene.path)

    assert scene.post(path, form).status_code in (200, 303)

    assert [(line.actor, line.action) for line in scene.lines()[seen:]] == [("ann", action)]
    assert picture(scene.path) != before


@pytest.mark.parametrize("name", FORMS)
def test_what_somebody_does_does_not_happen_where_its_line_cannot_be_written(scene: Scene, name: str) -> None:
    _, path, form, _ = FORMS[name]
    refuse_lines(scene.path)
    before = picture(scene.path)

    assert scene.post(path, form).status_code >= 400

    assert picture(scene.path) == before


@pytest.mark.parametrize("name", FORMS)
def test_what_somebody_does_in_vain_leaves_no_line(scene: Scene, name: str) -> None:
    _, path, form, _ = FORMS[name]
    before = scene.lines()
    refuse_changes(scene.path)

    assert scene.post(path, form).status_code >= 400

    assert scene.lines() == before


# -- pages of other sites --------------------------------------------------------------------------------------------------

ELSEWHERE: Final[tuple[dict[str, str], ...]] = (
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "null"},
    {"Sec-Fetch-Site": ""},
)
"""What a browser says of a form that no page of this server has sent."""


def test_what_a_page_of_another_site_has_a_browser_send_changes_nothing(scene: Scene) -> None:
    forms = {name: (path, form) for name, (_, path, form, _) in FORMS.items()}
    forms |= {path: (path, {"secret": SECRET}) for path in UNFORMED}
    before, lines = picture(scene.path), scene.lines()

    for name, (path, form) in forms.items():  # all in one scene, for none of them changes it
        for headers in ELSEWHERE:
            assert scene.post(path, form, headers).status_code == 403, (name, headers)
        assert (picture(scene.path), scene.lines()) == (before, lines), name

    assert scene.client.get("/jobs").status_code == 200, "and ann is still logged in"


OTHERS: Final = (
    *("https://evil.example/login", "//evil.example", "/\\evil.example", "javascript:alert(1)", "data:text/html,x"),
    *("jobs", "/\n/evil.example"),
)
"""Addresses that are no page of this server."""


@pytest.mark.parametrize("meant", ["failed", "waiting"], ids=["some jobs", "no job"])
def test_no_page_leads_back_to_another_site(scene: Scene, meant: str) -> None:
    for back in OTHERS:
        asked = {"verb": "retry", "job": scene.ids[meant], "back": back}

        page = scene.client.get("/jobs/confirm", params=asked).text

        led = {html.unescape(one) for one in re.findall(r"(?:href|value)=\"([^\"]*)\"", page)}
        assert ("/jobs" in led, back in led, "evil.example" in page) == (True, False, False), back


def test_a_page_leads_back_to_where_it_was_asked_from(scene: Scene) -> None:
    asked = {"verb": "retry", "job": scene.ids["failed"], "back": "/jobs?q=state%3Afailed"}

    page = scene.client.get("/jobs/confirm", params=asked).text

    assert re.findall(r"(?:href|value)=\"(/jobs\?[^\"]*)\"", page) == ["/jobs?q=state%3Afailed"] * 2


# -- running a schedule now ------------------------------------------------------------------------------------------------


def test_a_schedule_that_is_run_now_is_like_its_last_job_where_the_app_is_not_known(scene: Scene) -> None:
    scene.post("/schedules/run", {"name": "nightly"})

    (line,) = scene.lines()[-1:]
    (view,) = scene.do(scene.store.get([UUID(line.detail.split()[1].strip(";"))]))
    assert (line.targets, line.count, line.detail) == (("nightly",), 1, f"job {view.id}; 1 night")
    assert (view.task, view.args) == ("night", '{"secret": 1}')


def test_a_schedule_that_is_run_now_is_as_its_task_says_where_the_app_is_known(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="night", queue="reports", cron="0 3 * * *", retry=Retry(max_attempts=7), key="one at a time", tags=["x"])
    async def night() -> None: ...

    server = create_server(app, ServerSettings(admin_secret=SECRET), housekeeping=False)
    with TestClient(server, headers=OWN) as client:
        scene = Scene(server, f"{tmp_path}/jobs.db", client, "", {})
        scene.do(furnish(scene.store))
        client.post("/login", data={"secret": SECRET})

        first = client.post("/schedules/run", data={"name": "nightly"})
        second = client.post("/schedules/run", data={"name": "nightly"})

        (line,) = scene.lines()
        (view,) = scene.do(scene.store.get([UUID(line.detail.split()[1].strip(";"))]))
        assert (view.queue, view.policy.retry.max_attempts, view.key, view.tags) == ("reports", 7, "one at a time", ("x",))
        assert f"nightly was enqueued as job {view.id}" in first.text
        assert f"nightly was not enqueued: job {view.id} holds its unique key" in second.text
