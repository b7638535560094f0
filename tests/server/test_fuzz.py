"""Whatever is sent about jobs that are there, by who holds them, held them or never did: on SQLite and PostgreSQL.

What is sent about ids that nobody knows ends at 404 or 422, and reaches little of a store: test_openapi.py does that.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

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

from holdfast import Holdfast
from holdfast.core.job import NewJob
from holdfast.core.lease import Lease
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.server.api.openapi import ROOT, document
from holdfast.server.api.operations import OPERATIONS
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment
from holdfast.wire.problems import Problem
from tests.server.conftest import Asking
from tests.server.served import SECRET, bearer, serving
from tests.server.test_openapi import bodies
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from holdfast.server.api.table import Operation
    from holdfast.store.port import Store
    from tests.support.postgres import PostgresServers

SCHEMA: Final = schemathesis.openapi.from_dict(document("0"))
CHECKS: Final = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
WORLD: Final = SystemEnvironment()
EXAMPLES: Final = 2
MANY: Final = 60
"""Requests to each endpoint that are made up: in every run, and with `--slow`."""
ABOUT_JOBS: Final = [
    one
    for one in OPERATIONS
    if "{id}" in one.path or one.path.startswith("/leases/") or one.name in ("enqueue", "getJobs", "cancelJobs", "getChains")
]
KINDS: Final = ("held", "lost", "ended", "waiting", "unknown")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def ask(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_servers: PostgresServers
) -> Iterator[Asking]:
    """A server on each kind of database."""
    server = postgres_servers[MAJORS[-1]] if request.param == "postgres" else None
    url = f"sqlite:///{tmp_path_factory.mktemp('fuzz')}/jobs.db" if server is None else server.create_database()
    with serving(Holdfast(url), housekeeping=False, key_rate=1e6, longest_poll=0.01) as served:
        asking = Asking(served)
        yield asking
        asking.client.close()
    if server is not None:
        server.drop_database(url)


class Cast:
    """A job of each kind, with the token that whoever asks about it shows; and a worker."""

    def __init__(self, worker: UUID, leases: dict[str, Lease]) -> None:
        self.worker = worker
        self.leases = leases

    def path(self, operation: Operation, kind: str) -> str:
        return str(self.worker if operation.path.startswith("/workers") else self.leases[kind].job_id)

    def lease(self, kind: str) -> dict[str, Any]:
        return {"job_id": str(self.leases[kind].job_id), "token": str(self.leases[kind].token)}


async def gathered(store: Store) -> Cast:
    """Bring about a job of each kind."""
    first, second, task = Worker(id=WORLD.job_id(), name="one"), Worker(id=WORLD.job_id(), name="two"), str(uuid4())
    jobs = {kind: NewJob(id=WORLD.job_id(), task=f"{task}.{kind}") for kind in ("held", "lost", "ended")}
    waiting = NewJob(id=WORLD.job_id(), task=task, delay=3600.0)
    await store.enqueue([*jobs.values(), waiting])
    leases = {"waiting": Lease(waiting.id, WORLD.token()), "unknown": Lease(WORLD.job_id(), WORLD.token())}

    async def claim(worker: Worker, *kinds: str) -> None:
        await store.register(worker)
        tasks = frozenset(jobs[kind].task for kind in kinds)
        claimed = await store.claim(ClaimRequest(worker=worker.id, tasks=tasks, limit=9, look=True))
        assert len(claimed) == len(kinds)
        leases.update({one.task.rpartition(".")[2]: one.lease for one in claimed})

    await claim(first, *jobs)
    lost, ended = leases["lost"], leases["ended"]
    await store.settle(
        [Settlement(lost, Write(Event.RELEASE, 0)), Settlement(ended, Write(Event.SUCCEED, 0, result="1"))],
    )
    await claim(second, "lost")
    return Cast(first.id, leases | {"lost": lost})


def good(operation: Operation, lease: dict[str, Any]) -> Any:
    """Return a body that there is nothing wrong with."""
    about = {"enqueue": {"jobs": [{"task": "t"}], "under": lease}, "heartbeat": {"leases": [lease]}, "cancelJob": {}}
    about["cancelJobs"] = {"ids": [lease["job_id"]]}
    return (bodies(lease) | about).get(operation.name)


def about(body: Any, lease: dict[str, Any]) -> Any:
    """Return a body that was made up as one about a job that is there."""
    if not isinstance(body, dict):
        return body
    real: dict[str, Any] = {"token": lease["token"], "ids": [lease["job_id"]]}
    real = {name: value for name, value in real.items() if name in body}
    for name in ("leases", "items"):
        if isinstance(body.get(name), list):
            real[name] = [one | lease if isinstance(one, dict) else one for one in body[name]]
    if isinstance(body.get("under"), dict):
        real["under"] = lease
    return body | real


@pytest.mark.parametrize("operation", ABOUT_JOBS, ids=lambda operation: operation.name)
def test_whatever_is_sent_about_a_job_that_is_there_is_answered_as_documented(
    ask: Asking, operation: Operation, request: pytest.FixtureRequest
) -> None:
    slow = request.config.getoption("--slow")
    cast = ask.run(gathered(ask.store))
    kinds = cycle(KINDS)

    @settings(
        max_examples=MANY if slow else EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=SCHEMA[f"{ROOT}{operation.path}"][operation.method].as_strategy())
    def made_up(case: Any) -> None:
        kind = next(kinds)
        case.path_parameters = {"id": cast.path(operation, kind)} if case.path_parameters else case.path_parameters
        case.body = about(case.body, cast.lease(kind))
        case.call_and_validate(base_url=ask.served.url, headers=bearer(SECRET), checks=CHECKS)

    made_up()

    cast = ask.run(gathered(ask.store))  # what was made up may have ended the first
    statuses = {kind: sent(ask, operation, cast, kind) for kind in KINDS}
    assert statuses["held"] == 200
    if 409 in operation.statuses:
        assert 409 in statuses.values()


def sent(ask: Asking, operation: Operation, cast: Cast, kind: str) -> int:
    """Send a good request about a job, and return how it was answered: in the shape that the document says."""
    path = operation.path.replace("{id}", cast.path(operation, kind))
    body = {} if operation.body is None else {"json": good(operation, cast.lease(kind))}
    answer = ask.client.request(operation.method, path, **body)
    assert answer.status_code in operation.statuses, answer.text
    shape = operation.answer if answer.status_code == 200 else Problem
    assert shape is not None
    msgspec.json.decode(answer.content, type=shape)
    return answer.status_code
