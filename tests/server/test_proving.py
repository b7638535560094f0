"""Routes beside the server: who holds a job, proven before something is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from holdfast.core.job import NewJob
from holdfast.core.lease import Extended, Hold, Lease
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.errors import HoldfastError
from holdfast.store.port import Role, Settlement
from holdfast.system import SystemEnvironment
from tests.server.served import SECRET, bearer

if TYPE_CHECKING:
    from starlette.requests import Request

    from tests.server.conftest import Asking


def take(ask: Asking, job: dict[str, Any], key: str = SECRET, /, **changes: Any) -> httpx2.Response:
    """Ask a route that stands beside the server, as in a program, on the event loop of the server."""
    server = ask.served.server

    async def route(request: Request) -> Response:
        query = request.query_params
        try:
            held = await server.held(request, job_id=query["job"], token=query["token"], attempt=int(query["attempt"]))
        except HoldfastError as error:
            return server.refusal(error)
        return JSONResponse({"job": str(held.job.id), "first": held.first.args, "by": held.by, "may_enqueue": held.may_enqueue})

    app = Starlette(routes=[Route("/take", route), Mount("", app=server)])
    shown = {"job": job["job_id"], "token": job["token"], "attempt": job["attempt"], **changes}

    async def asked() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://beside") as client:
            return await client.get("/take", params=shown, headers=bearer(key))

    answer: httpx2.Response = ask.run(asked())
    return answer


def test_the_holder_is_let_in_and_its_lease_prolonged(ask: Asking) -> None:
    job = ask.claimed(args={"a": 1})
    ask.run(ask.store.rewind(0.9 * job["lease_ms"] / 1000))
    answer = take(ask, job)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"job": job["job_id"], "first": '{"a":1}', "by": "admin", "may_enqueue": False}
    ask.run(ask.store.rewind(0.9 * job["lease_ms"] / 1000))
    ask.run(ask.store.reap(1000))
    assert ask.state(job) == "running"


def test_who_lost_the_lease_is_told_who_has_it(ask: Asking) -> None:
    job = ask.claimed()
    ask.taken_over(job, "the other")
    answer = take(ask, job)
    assert answer.status_code == 409
    assert (answer.json()["error"], answer.json()["holder"]["worker"]) == ("stale", "the other")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"token": str(uuid4())}, 409),
        ({"attempt": 2}, 409),
        ({"job": str(uuid4())}, 404),
        ({"token": "x"}, 400),
        ({"job": ""}, 400),
    ],
)
def test_what_is_no_lease_is_refused(ask: Asking, changes: dict[str, Any], status: int) -> None:
    assert take(ask, ask.claimed(), **changes).status_code == status


def test_keys_are_asked_for(ask: Asking) -> None:
    job = ask.claimed()
    assert take(ask, job, "hf_unknown").status_code == 401
    assert take(ask, job, ask.key(Role.VIEWER)).status_code == 403
    assert take(ask, job, ask.key(Role.WORKER, queues=("other",))).status_code == 403
    assert take(ask, job, ask.key(Role.WORKER)).json()["may_enqueue"]
    assert not take(ask, job, ask.key(Role.WORKER, actions=("work",))).json()["may_enqueue"]


def test_of_a_chain_the_args_of_the_first_step_are_told(ask: Asking) -> None:
    job = ask.claimed(args={"a": 1})
    then = NewJob(id=SystemEnvironment().job_id(), task="forged", args='{"a": 2}')
    lease = Lease(UUID(job["job_id"]), UUID(job["token"]))
    ask.run(ask.store.settle([Settlement(lease, Write(Event.CONTINUE, failures=0), then=then)]))
    step = ask.claim(ask.worker("two"), tasks=["forged"])[0]
    assert take(ask, step).json()["first"] == '{"a":1}'


def test_a_lease_that_is_in_other_hands_for_long_is_to_be_asked_for_again(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ask.claimed()
    answers = iter([Hold.SETTLING, Hold.SETTLING, Hold.HELD])

    async def extend(leases: Any) -> list[Extended]:
        return [Extended(next(answers, Hold.SETTLING)) for _ in leases]

    monkeypatch.setattr(ask.store, "extend", extend)
    assert take(ask, job).status_code == 200
    answer = take(ask, job)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
