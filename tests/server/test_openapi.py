"""The OpenAPI document tells the truth: every endpoint is in it, and every status it names is answered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.core.figures import BUCKETS
from holdfast.errors import StoreUnavailable
from holdfast.server.api.openapi import ROOT, document
from holdfast.server.api.operations import OPERATIONS
from holdfast.server.principal import Right
from holdfast.store.port import Role
from holdfast.wire.problems import Problem
from tests.server.served import SECRET, Served, bearer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

    from holdfast.server.api.table import Operation
    from tests.server.conftest import Asking

SCHEMA = schemathesis.openapi.from_dict(document("0"))
ASKED = [one for one in OPERATIONS if one.answer is not None]
"""All but the stream, which never ends."""


def test_every_route_of_the_api_is_in_the_document_that_is_served(ask: Asking) -> None:
    told = ask.get("/openapi.json").json()
    routes = {
        (route.path, method.lower())
        for route in ask.served.server.routes
        if isinstance(route, Route) and route.path.startswith(ROOT)
        for method in route.methods or ()
        if method != "HEAD"
    }
    in_document = {(path, method) for path, methods in told["paths"].items() for method in methods}
    assert routes - {(f"{ROOT}/openapi.json", "get")} == in_document
    assert told == msgspec.json.decode(msgspec.json.encode(document(ask.served.server.context.version)))
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)


def test_no_endpoint_makes_keys() -> None:
    """They are made on the dashboard, whose page asks whether the key that asks is narrowed, or beside the database."""
    assert not [one.name for one in OPERATIONS if Right.KEYS in one.rights]


def test_every_parameter_of_a_query_is_in_the_document_with_its_bounds_and_may_be_left_out() -> None:
    for operation in OPERATIONS:
        told = document("0")["paths"][f"{ROOT}{operation.path}"][operation.method.lower()].get("parameters", [])
        asked = [one for one in told if one["in"] == "query"]
        assert [one["name"] for one in asked] == list(getattr(operation.query, "__struct_fields__", ()))
        assert not [one["name"] for one in asked if one["required"] or "default" not in one["schema"]]
    scale = document("0")["paths"][f"{ROOT}/scale"]["get"]["parameters"]
    bounds = {one["name"]: one["schema"] for one in scale}
    assert (bounds["slots"]["minimum"], bounds["queue"]["type"]) == (1, "array")


def test_every_endpoint_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/http-api.md").read_text()
    assert [one.path for one in OPERATIONS if f"| `{one.method} {one.path}` |" not in page or one.summary not in page] == []


# -- every status ----------------------------------------------------------------------------------------------------------


def bodies(job: dict[str, Any]) -> dict[str, Any]:
    """Return a good body for each endpoint that takes one, about a job that is held."""
    token, lease = {"token": job["token"]}, {"job_id": job["job_id"], "token": job["token"]}
    item = {"items": [lease | {"percent": 1}]}
    figure = {"queue": "q", "task": "t", "event": "failed", "count": 1, "waits": [0] * BUCKETS, "runs": [0] * BUCKETS}
    return {
        "registerWorker": {"name": "w"},
        "claim": {"tasks": ["none"]},
        "enqueue": {"jobs": [{"task": "t", "queue": "documented"}]},
        "getJobs": {"ids": [job["job_id"]]},
        "cancelJobs": {"ids": [str(uuid4())]},
        "getChains": {"ids": [job["job_id"]]},
        "setLimit": {"queue": "documented", "most": 4},
        "clearLimit": {"queue": "documented"},
        "extendLease": token,
        "reportProgress": token | {"percent": 1},
        "writeCheckpoint": token | {"name": "p"},
        "writeLog": token | {"message": "m"},
        "completeJob": token,
        "failJob": token,
        "releaseJob": token,
        "wasSettled": token,
        "extendLeases": {"leases": [lease]},
        "settleLeases": {"items": [lease | {"event": "succeeded", "failures": 0}]},
        "reportProgressOfLeases": item,
        "writeCheckpointsOfLeases": {"items": [lease | {"part": {"name": "p", "state": "completed"}}]},
        "writeLogsOfLeases": {"items": [lease | {"message": "m"}]},
        "markStagesOfLeases": {"items": [lease | {"name": "s", "event": "stage:entered"}]},
        "freeLeases": {"leases": [lease]},
        "getSignals": {"names": ["s"]},
        "addFigures": {"figures": [figure]},
    }


REFUSED: dict[str, Any] = {
    "registerWorker": {"name": ""},
    "claim": {"tasks": ["\0"]},
    "enqueue": {"jobs": [{"task": ""}]},
    "setLimit": {"queue": "documented", "most": -1},
    "clearLimit": {},
    "writeCheckpoint": {"token": str(uuid4()), "name": ""},
    "settleLeases": {"items": [{"job_id": str(uuid4()), "token": str(uuid4()), "event": "failed", "failures": 0}]},
    "writeCheckpointsOfLeases": {
        "items": [{"job_id": str(uuid4()), "token": str(uuid4()), "part": {"name": "", "state": "failed"}}]
    },
    "getSignals": {"names": [""]},
    "addFigures": {
        "figures": [{"queue": "", "task": "t", "event": "failed", "count": 1, "waits": [0] * BUCKETS, "runs": [0] * BUCKETS}]
    },
}
"""Bodies with a value that no store accepts."""


class Provoked:
    """Brings about one status of one endpoint."""

    def __init__(self, ask: Asking, operation: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ask = ask
        self.operation = operation
        self.monkeypatch = monkeypatch

    def send(self, job_id: object = None, body: Any = None, **more: Any) -> httpx2.Response:
        path = self.operation.path.replace("{id}", str(job_id or uuid4()))
        if self.operation.body is not None:
            more = {"json": {} if body is None else body} | more
        return self.ask.client.request(self.operation.method, path, **more)

    def status(self, status: int) -> httpx2.Response:
        return getattr(self, f"status_{status}")()  # type: ignore[no-any-return]

    def _id_of(self, job: dict[str, Any]) -> object:
        return self.ask.worker() if self.operation.path.startswith("/workers") else UUID(job["job_id"])

    def status_200(self) -> httpx2.Response:
        job = self.ask.claimed()
        return self.send(self._id_of(job), bodies(job).get(self.operation.name))

    def status_400(self) -> httpx2.Response:
        if self.operation.query is not None:
            return self.send(params={"target": "none"})
        if self.operation.body is None:
            return self.send("no-uuid")
        return self.send(content=b"{", json=None, headers={"Content-Type": "application/json"})

    def status_401(self) -> httpx2.Response:
        return self.send(headers=bearer("nobody"))

    def status_403(self) -> httpx2.Response:
        return self.send(headers=bearer(self.ask.key(Role.ADMIN, actions=("audit",))))

    def status_404(self) -> httpx2.Response:
        return self.send(body=bodies(self.ask.claimed()).get(self.operation.name))

    def status_409(self) -> httpx2.Response:
        job = self.ask.claimed()
        if self.operation.name == "enqueue":
            return self.send(body={"jobs": [{"task": "t", "queue": "full"}], "caps": {"full": 0}})
        taken = self.ask.taken_over(job)
        self.ask.post(f"/jobs/{job['job_id']}/complete", {"token": taken["token"]})
        return self.send(job["job_id"], bodies(job).get(self.operation.name))

    def status_413(self) -> httpx2.Response:
        return self.send(content=b" " * (2 * 1024 * 1024 + 1), json=None, headers={"Content-Type": "application/json"})

    def status_415(self) -> httpx2.Response:
        return self.send(content=b"{}", json=None, headers={"Content-Type": "text/plain"})

    def status_422(self) -> httpx2.Response:
        job = self.ask.claimed()
        return self.send(self._id_of(job), REFUSED[self.operation.name])

    def status_429(self) -> httpx2.Response:
        door: Any = self.ask.served.server.context.door
        for buckets in (door._requests, door._leases):
            self.monkeypatch.setattr(buckets, "take", lambda _: 1.0)
        return self.send()

    def status_503(self) -> httpx2.Response:
        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("somewhere", 0.0, "gone")

        self.monkeypatch.setattr(self.ask.served.server.context.keyring, "key", away)
        return self.send()


@pytest.mark.parametrize(
    ("operation", "status"),
    [(operation, status) for operation in ASKED for status in operation.statuses],
    ids=lambda one: one if isinstance(one, int) else one.name,
)
def test_every_status_in_the_document_is_answered_in_the_shape_it_says(
    ask: Asking, monkeypatch: pytest.MonkeyPatch, operation: Operation, status: int
) -> None:
    answer = Provoked(ask, operation, monkeypatch).status(status)
    assert answer.status_code == status, answer.text
    kind = operation.answer if status == 200 else Problem
    assert kind is not None
    msgspec.json.decode(answer.content, type=kind)
    if status in (429, 503):
        assert int(answer.headers["Retry-After"]) >= 1


# -- anything at all -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Served]:
    """A server for whatever comes."""
    with serving(Holdfast("memory://"), housekeeping=False, key_rate=1e6, longest_poll=0.01) as served:
        yield served


@pytest.mark.parametrize("operation", ASKED, ids=lambda operation: operation.name)
def test_whatever_is_sent_is_answered_as_documented_and_never_by_an_error_of_the_servers_own(
    fuzzed: Served, operation: Operation
) -> None:
    strategy = SCHEMA[f"{ROOT}{operation.path}"][operation.method].as_strategy()
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

    @settings(
        max_examples=8,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def send(case: Any) -> None:
        case.call_and_validate(base_url=fuzzed.url, headers=bearer(SECRET), checks=checks)

    send()
