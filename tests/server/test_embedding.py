"""The whole server inside other programs, under a path of theirs: Starlette, FastAPI and Django, under a real uvicorn."""

from __future__ import annotations

import re
import signal
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.errors import BadSetting
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings
from tests.integrations.pages import clean_environment, free_port, started, wait_for_port
from tests.server.served import SECRET, bearer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = {"Sec-Fetch-Site": "same-origin"}
STARLETTE = """
import os
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings

async def hello(request):
    return PlainTextResponse("hello " + request.path_params["name"])

server = create_server("sqlite:///jobs.db", ServerSettings(admin_secret=os.environ["JOBS_SECRET"]))
api = Starlette(
    routes=[Route("/greetings/{name}", hello, methods=["GET", "POST"]), Mount("/jobs", server)],
    lifespan=lambda _: server.running(),
)
"""
HOSTS = {
    "starlette": (STARLETTE, "api"),
    "fastapi": ((EXAMPLES / "serve_inside_fastapi.py").read_text(), "api"),
    "django": ((EXAMPLES / "serve_inside_django.py").read_text(), "application"),
}


@dataclass
class Host:
    """A program that runs, with the server under /jobs."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def client(self) -> httpx2.Client:
        """Return a client of the part of it that is Holdfast's."""
        return httpx2.Client(base_url=f"{self.url}/jobs", verify=False, timeout=20.0, headers=OWN)

    @contextmanager
    def logged_in(self) -> Iterator[httpx2.Client]:
        """Return a client with a session of the dashboard, and no key."""
        with self.client() as client:
            answer = client.post("/login", data={"secret": SECRET, "next": "/queues"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/queues"), answer.text
            yield client


@contextmanager
def hosted(name: str, folder: Path) -> Iterator[Host]:
    source, attribute = HOSTS[name]
    (folder / "main.py").write_text(source)
    port, log = free_port(), folder / "log"
    variables = clean_environment() | {"JOBS_SECRET": SECRET, "PYTHONWARNINGS": "error"}
    with (
        log.open("w") as output,
        started(f"python -m uvicorn main:{attribute} --port {port} --ws none", folder, variables, output) as process,
    ):
        wait_for_port(port, log)
        try:
            yield Host(name, f"http://127.0.0.1:{port}", process, log)
        except AssertionError as error:
            error.add_note(log.read_text())
            raise


@pytest.fixture(scope="module", params=sorted(HOSTS))
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(request.param, tmp_path_factory.mktemp(request.param)) as host:
        yield host


def test_the_program_around_it_answers_as_ever(host: Host) -> None:
    method = "GET" if host.name == "django" else "POST"
    answer = httpx2.request(method, f"{host.url}/greetings/ada", verify=False, timeout=20.0)
    assert (answer.status_code, "hello ada" in answer.text) == (200, True)
    assert httpx2.get(f"{host.url}/jobsworth", verify=False).status_code == 404


def test_pages_lead_to_the_login_and_nowhere_outside(host: Host) -> None:
    with host.client() as client:
        answer = client.get("/jobs", params={"q": "state:failed"})
        assert answer.headers["location"] == "/jobs/login?next=%2Fjobs%3Fq%3Dstate%253Afailed"
        page = client.get("/login")
    linked = re.findall(r'(?:href|src|action|data-root)="(/[^"]*)"', page.text)
    assert linked
    assert all(link.startswith("/jobs/") for link in linked), linked
    bare = httpx2.get(f"{host.url}/jobs", verify=False)
    assert bare.headers["location"].removeprefix(host.url) == "/jobs/"


def test_a_session_of_the_dashboard_is_for_its_path_alone(host: Host) -> None:
    with host.logged_in() as client:
        (cookie,) = (one for one in client.cookies.jar if one.name == "holdfast_session")
        assert cookie.path == "/jobs"
        page = client.get("/")
        assert (page.status_code, "<h1>Overview</h1>" in page.text) == (200, True)
        links = [link for link in re.findall(r'(?:href|src|action|hx-get|connect)="([^"#]*)"', page.text) if link]
        assert all(link.startswith("/jobs/") for link in links), links
        said = client.post("/queues/pause", data={"queue": "mail", "reason": "full", "back": "/jobs/queues"})
        assert said.headers["location"] == "/jobs/queues"
        assert client.post("/logout").headers["location"] == "/jobs/login"
        assert client.get("/").status_code == 303


def test_static_files_are_found_where_pages_say_they_are(host: Host) -> None:
    with host.client() as client:
        files = re.findall(r'(?:href|src)="(/jobs/static/[^"]*)"', client.get("/login").text)
        assert len(files) >= 5
        for file in files:
            answer = httpx2.get(f"{host.url}{file}", verify=False)
            assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True), file


def test_an_open_page_hears_of_changes(host: Host) -> None:
    with host.logged_in() as client, client.stream("GET", "/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "event: changed" in stream.iter_lines()


def test_a_remote_worker_claims_a_job(host: Host) -> None:
    with host.client() as client:
        client.headers.update(bearer(SECRET))
        worker = client.post("/api/v1/workers", json={"name": "far", "id": str(uuid4())}).json()["id"]
        client.post("/api/v1/jobs", json={"jobs": [{"task": "tests.far", "queue": "far"}]})
        answer = client.post(f"/api/v1/workers/{worker}/claim", json={"tasks": ["tests.far"], "queues": ["far"]})
        assert [job["task"] for job in answer.json()["jobs"]] == ["tests.far"], answer.text
        with client.stream("GET", "/api/v1/hints") as stream:
            assert "event: open" in stream.iter_lines()
        assert client.get("/api/v1/openapi.json").json()["servers"] == [{"url": "/jobs"}]
        assert client.get("/health/ready").json()["ok"] is True


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_signal_ends_the_program_while_pages_are_open(name: str, tmp_path: Path) -> None:
    with hosted(name, tmp_path) as host, host.logged_in() as client, client.stream("GET", "/live") as stream:
        lines = stream.iter_lines()
        assert "event: changed" in lines
        begun = time.monotonic()
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(20) in (0, -signal.SIGTERM)
        assert time.monotonic() - begun < 10
        assert "Traceback" not in host.log.read_text()


# -- forgotten, or done twice ----------------------------------------------------------------------------------------------


def test_a_server_that_nobody_has_started_says_so_and_how_to() -> None:
    server = create_server("memory://", ServerSettings(admin_secret=SECRET), housekeeping=False)
    with TestClient(Starlette(routes=[Mount("/jobs", server)])) as client:
        page = client.get("/jobs/")
        assert (page.status_code, page.headers["content-type"]) == (503, "text/plain; charset=utf-8")
        assert "has not started it" in page.text
        assert "async with server.running():" in page.text
        answer = client.get("/jobs/api/v1/server")
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        assert "async with server.running():" in answer.json()["fix"]


def test_a_server_that_has_ended_answers_no_more_and_is_not_started_again() -> None:
    server = create_server("memory://", ServerSettings(admin_secret=SECRET), housekeeping=False)
    with TestClient(server) as client:
        assert client.get("/health/live").status_code == 200
    assert client.get("/health/live").status_code == 503
    with pytest.raises(BadSetting, match="make another with create_server"), TestClient(server):
        pass


def test_an_error_of_the_store_ends_the_start_of_the_program_around_it(tmp_path: Path) -> None:
    server = create_server(Holdfast(f"sqlite:///{tmp_path}/no/such/folder/jobs.db"), housekeeping=False)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with server.running():
            yield

    api = Starlette(routes=[Mount("/jobs", server)], lifespan=lifespan)
    with pytest.raises(Exception, match="no/such/folder"), TestClient(api):
        pass


@pytest.mark.parametrize("prefix", ["jobs", "/jobs/", "/", "/a b", "/../x"])
def test_a_prefix_that_no_request_could_match_is_refused(prefix: str) -> None:
    with pytest.raises(BadSetting, match="prefix must be"):
        ServerSettings(prefix=prefix)
