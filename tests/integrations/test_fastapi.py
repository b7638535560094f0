"""FastAPI: what the lifespan composes, where routes find the app, and a real server that reloads."""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI, Request

from holdfast import BadSetting, Holdfast
from holdfast.fastapi import Jobs, lifespan
from tests.integrations.installing import ROOT
from tests.integrations.pages import WAIT, clean_environment, free_port, started, wait_for_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def served(api: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application inside its lifespan, whose state requests get as from a server."""
    async with api.router.lifespan_context(api) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await api({**scope, "state": dict(state or {})}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(with_state), base_url="http://shop") as client:
            yield client


def shop(happened: list[str], *, worker: Any) -> FastAPI:
    jobs = Holdfast("memory://")

    @jobs.task()
    async def work(n: int) -> int:
        happened.append(f"ran {n}")
        return n * 2

    @jobs.on_worker
    def heard(event: str, _worker: object) -> None:
        happened.append(event)

    @asynccontextmanager
    async def own(_api: FastAPI) -> AsyncIterator[dict[str, str]]:
        happened.append("own began")
        yield {"pool": "a pool"}
        happened.append("own ended")

    api = FastAPI(lifespan=lifespan(jobs, own, worker=worker))

    @api.get("/work/{n}")
    async def ask(n: int, request: Request, jobs: Jobs) -> dict[str, Any]:
        handle = await work.enqueue(n)
        assert (await jobs.job(handle.id).view()).id == handle.id
        result = await handle.result(timeout=WAIT) if worker else None
        return {"result": result, "state": await handle.state(), "pool": request.state.pool}

    return api


@pytest.mark.parametrize("worker", [True, {"concurrency": 1, "name": "beside"}])
async def test_a_worker_beside_the_requests_stops_before_the_programs_own_lifespan_ends(worker: Any) -> None:
    happened: list[str] = []
    async with served(shop(happened, worker=worker)) as client:
        assert (await client.get("/work/21")).json() == {"result": 42, "state": "succeeded", "pool": "a pool"}
    assert happened == ["own began", "worker_started", "ran 21", "worker_stopping", "worker_stopped", "own ended"]


async def test_without_a_worker_requests_only_enqueue() -> None:
    happened: list[str] = []
    async with served(shop(happened, worker=False)) as client:
        assert (await client.get("/work/21")).json() == {"result": None, "state": "ready", "pool": "a pool"}
    assert happened == ["own began", "own ended"]


async def test_a_program_without_a_lifespan_of_its_own_needs_none() -> None:
    jobs = Holdfast("memory://")
    api = FastAPI(lifespan=lifespan(jobs))

    @api.get("/")
    async def look(jobs: Jobs) -> int:
        return int((await jobs.stats())["live"])

    async with served(api) as client:
        assert (await client.get("/")).json() == 0


async def test_a_request_outside_of_the_lifespan_is_told_what_is_missing() -> None:
    api = FastAPI()

    @api.get("/")
    async def look(jobs: Jobs) -> None: ...

    async with served(api) as client:
        with pytest.raises(BadSetting, match=r"FastAPI\(lifespan=holdfast\.fastapi\.lifespan\(app\)\)"):
            await client.get("/")


def test_the_holdfast_app_comes_first() -> None:
    with pytest.raises(BadSetting, match="takes the Holdfast app first"):
        lifespan(FastAPI())  # type: ignore[arg-type]


def test_a_worker_beside_the_requests_goes_on_after_a_reload(tmp_path: Path) -> None:
    source = (ROOT / "examples/fastapi_app/main.py").read_text()
    (tmp_path / "main.py").write_text(source)
    port, log = free_port(), tmp_path / "log"
    with (
        log.open("w") as output,
        started(f"uvicorn main:api --reload --port {port}", tmp_path, clean_environment(), output),
    ):
        wait_for_port(port, log)
        url = f"http://localhost:{port}/orders"
        assert httpx.post(url, params={"item": "tea"}).json() == {"order": 1}
        assert httpx.get(f"{url}/1/mail").json() == "mail about order 1 sent: tea"
        (tmp_path / "main.py").write_text(source.replace("mail about order", "letter about order"))
        deadline = time.monotonic() + WAIT
        while len(re.findall("Application startup complete", log.read_text())) < 2:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        assert httpx.post(url, params={"item": "milk"}).json() == {"order": 2}
        assert httpx.get(f"{url}/2/mail").json() == "letter about order 2 sent: milk"


@pytest.mark.parametrize(
    ("own", "worker", "words"),
    [
        (3, True, "takes your own lifespan second, a function of the program that gives an async context manager, not 3"),
        (None, "yes", r"worker= must be True, False or the options of app\.worker, such as {'concurrency': 4}, not 'yes'"),
    ],
)
def test_a_lifespan_that_could_not_be_entered_is_refused(own: Any, worker: Any, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        lifespan(Holdfast("memory://"), own, worker=worker)
