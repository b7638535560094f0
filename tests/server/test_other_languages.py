"""A worker in another language, written against the documentation alone: `examples/remote_worker.mjs`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.core.states import State
from holdfast.store.port import Role, WorkerKind, WorkerState
from tests.server.conftest import Asking
from tests.server.served import SECRET, bearer, serving
from tests.server.test_remote_worker import answers, free_port, process, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import Popen

    from holdfast.store.port import JobView

ROOT = Path(__file__).parents[2]
LONG = 60.0


class Node:
    """The example as a process, and what it has printed."""

    def __init__(self, url: str, key: str) -> None:
        node = shutil.which("node")
        if node is None:
            pytest.fail("there is no node on PATH. Install it with: apt-get install nodejs")
        self.process = subprocess.Popen(
            [node, str(ROOT / "examples" / "remote_worker.mjs")],
            env=os.environ | {"HOLDFAST_SERVER": url, "HOLDFAST_KEY": key},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line.strip())
                self._more.notify_all()

    def wait_for(self, text: str) -> None:
        """Wait for a line that holds this text."""
        with self._more:
            assert self._more.wait_for(lambda: any(text in line for line in self.lines), LONG), self.lines

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(LONG)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def ask() -> Iterator[Asking]:
    with serving(Holdfast("memory://"), housekeeping=False) as served:
        asking = Asking(served)
        yield asking
        asking.client.close()


@pytest.fixture
def node(ask: Asking) -> Iterator[Node]:
    with closing(Node(ask.served.url, ask.key(Role.WORKER))) as node:
        node.wait_for("worker ")
        yield node


def view(ask: Asking, job_id: object) -> Any:
    return ask.get(f"/jobs/{job_id}").json()


def test_it_runs_fails_cancels_and_stops_in_peace(ask: Asking, node: Node) -> None:
    made = ask.enqueue(task="thumbnail.make", args={"file": "a.png"})
    broken = ask.enqueue(task="thumbnail.break", args={"fatal": True})
    again = ask.enqueue(task="thumbnail.break", args={})
    endless = ask.enqueue(task="thumbnail.forever", args={})
    for job_id, state in ((made, "succeeded"), (broken, "failed"), (again, "scheduled")):
        node.wait_for(f"{job_id}: {state}")
    assert view(ask, made)["result"]["file"] == "a.png@320"
    assert (view(ask, made)["progress"], view(ask, made)["message"]) == (75.0, "scaling a.png")
    assert view(ask, broken)["error"]["code"] == "BAD_FILE"
    assert view(ask, again)["failures"] == 1

    ask.post(f"/jobs/{endless}/cancel", {"reason": "enough"})
    node.wait_for(f"{endless}: canceled")

    last = ask.enqueue(task="thumbnail.make", args={"file": "last.png"})
    node.wait_for(f"{last}: succeeded")
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(LONG) == 0
    node.wait_for("stopped")
    worker = next(one for one in ask.run(ask.store.workers()) if one.worker.name.startswith("node-"))
    assert (worker.worker.kind, worker.state) == (WorkerKind.REMOTE, WorkerState.OFFLINE)


def test_one_that_lost_its_job_changes_nothing_and_stops_working_on_it(ask: Asking, node: Node) -> None:
    endless = ask.enqueue(task="thumbnail.forever", args={})
    deadline = threading.Event()
    while view(ask, endless)["state"] != "running":
        deadline.wait(0.02)
    ask.run(ask.store.complete({endless: '"by hand"'}, by="ann"))
    node.wait_for(f"{endless}: stale")
    assert (view(ask, endless)["state"], view(ask, endless)["result"]) == ("succeeded", "by hand")


# -- a server that goes away, or does not know it any more -----------------------------------------------------------------


class Place:
    """A server in a process of its own, its jobs in a file, and a look at them that needs no server."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._url = f"sqlite:///{folder}/jobs.db"
        self._stack = stack
        self._port = free_port()
        self.app = Holdfast(self._url)
        self.at = f"http://127.0.0.1:{self._port}"

    async def serve(self) -> Popen[str]:
        """Start the server; an earlier one has ended."""
        command = ("server", "--url", self._url, "--port", str(self._port), "--log-level", "error")
        running = self._stack.enter_context(process(*command, HOLDFAST_ADMIN_SECRET=SECRET))
        await until(lambda: answers(self.at), "the server did not start")
        return running

    def node(self, url: str = "") -> Node:
        """Start the worker."""
        node = self._stack.enter_context(closing(Node(url or self.at, SECRET)))
        node.wait_for("worker ")
        return node

    def ask(self, path: str, body: object) -> Any:
        answer = httpx2.post(f"{self.at}/api/v1{path}", json=body, headers=bearer(SECRET), verify=False)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def enqueue(self, **job: object) -> UUID:
        return UUID(self.ask("/jobs", {"jobs": [job]})["jobs"][0]["job_id"])

    async def view(self, job_id: UUID) -> JobView:
        view = (await self.app.client().store.get([job_id]))[0]
        assert view is not None
        return view

    async def runs(self, job_id: UUID, attempt: int) -> bool:
        view = await self.view(job_id)
        return (view.state, view.attempt) == (State.RUNNING, attempt)

    async def cost(self, job_id: UUID) -> tuple[int, list[str]]:
        """Return how many failures a job was charged with, and what has become of its leases."""
        events = [line.event.value for line in await self.app.client().store.events(job_id)]
        return (await self.view(job_id)).failures, [event for event in events if event.startswith(("released", "requeued"))]


@contextmanager
def between(server: str, passes: Callable[[str, httpx2.Response], bool]) -> Iterator[str]:
    """Stand between a worker and its server: what does not pass is not answered."""

    class Between(BaseHTTPRequestHandler):
        def hand_on(self) -> None:
            said = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            shown = {name: self.headers[name] for name in ("Authorization", "Content-Type")}
            try:
                answer = httpx2.request(self.command, server + self.path, content=said, headers=shown, verify=False)
            except httpx2.TransportError:
                return
            if passes(self.path, answer):
                self.send_response(answer.status_code)
                self.end_headers()
                self.wfile.write(answer.content)

        do_GET = do_POST = do_DELETE = hand_on  # noqa: N815  as http.server calls them

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}"
        finally:
            proxy.shutdown()
            thread.join(LONG)


async def test_what_a_server_has_claimed_that_was_killed_before_it_said_so_is_given_back(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place, killed = Place(tmp_path, stack), threading.Event()
        first = await place.serve()

        def kill_once_claimed(path: str, answer: httpx2.Response) -> bool:
            if killed.is_set() or not path.endswith("/claim") or not answer.json()["jobs"]:
                return True
            first.kill()
            first.wait(LONG)
            killed.set()
            return False

        node = place.node(stack.enter_context(between(place.at, kill_once_claimed)))
        async with place.app:
            job_id = place.enqueue(task="thumbnail.make", args={"file": "a.png"}, lease_ms=10 * 60_000)
            assert killed.wait(LONG)
            assert await place.runs(job_id, 1)
            await place.serve()
            node.wait_for(f"{job_id}: succeeded")
            assert await place.cost(job_id) == (0, ["released"])


async def test_handlers_stop_before_their_leases_end_while_the_server_is_away_and_run_anew_at_no_cost(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = Place(tmp_path, stack)
        first = await place.serve()
        node = place.node()
        async with place.app:
            job_id = place.enqueue(task="thumbnail.forever", args={}, lease_ms=4000)
            await until(lambda: place.runs(job_id, 1), "the job did not begin")
            first.kill()
            first.wait(LONG)
            node.wait_for(f"{job_id}: asked to stop: its lease ends")
            view, store = await place.view(job_id), place.app.client().store
            assert view.expires_at is not None
            assert view.expires_at > await store.now()
            await until(lambda: overdue(place, job_id), "the lease goes on without anybody who extends it")
            await place.serve()
            await until(lambda: place.runs(job_id, 2), "the worker did not give it back and go on with it")
            place.ask(f"/jobs/{job_id}/cancel", {})
            node.wait_for(f"{job_id}: canceled")
            assert await place.cost(job_id) == (0, ["released"])


async def overdue(place: Place, job_id: UUID) -> bool:
    """Tell whether a lease is over, by the store's clock."""
    view = await place.view(job_id)
    return view.expires_at is not None and view.expires_at < await place.app.client().store.now()


def test_one_that_is_unknown_registers_again_and_goes_on() -> None:
    with ExitStack() as stack:
        with serving(Holdfast("memory://"), housekeeping=False) as served, closing(Asking(served).client) as client:
            port = int(served.url.rpartition(":")[2])
            node = stack.enter_context(closing(Node(served.url, SECRET)))
            old = client.post("/jobs", json={"jobs": [{"task": "thumbnail.forever"}]}).json()["jobs"][0]["job_id"]
            wait = threading.Event()
            while client.get(f"/jobs/{old}").json()["state"] != "running":
                wait.wait(0.02)
        with serving(Holdfast("memory://"), housekeeping=False, port=port) as served, closing(Asking(served).client) as client:
            node.wait_for(f"{old}: asked to stop: its lease is gone")  # in this store there is no such job
            job = {"task": "thumbnail.make", "args": {"file": "a.png"}}
            made = client.post("/jobs", json={"jobs": [job]}).json()["jobs"][0]["job_id"]
            node.wait_for(f"{made}: succeeded")
            node.wait_for(f"{old}: job_not_found")
            (worker,) = served.run(served.server.context.store.workers())
            assert f"worker {worker.worker.id} " in node.lines[0]


def test_a_key_that_is_refused_for_a_while_costs_a_pause_and_one_that_never_was_good_ends_it() -> None:
    app, refused = Holdfast("memory://"), threading.Event()

    def note(_: str, answer: httpx2.Response) -> bool:
        if answer.status_code == 401:
            refused.set()
        return True

    with ExitStack() as stack:
        with serving(app, housekeeping=False) as served:
            port = int(served.url.rpartition(":")[2])
            node = stack.enter_context(closing(Node(stack.enter_context(between(served.url, note)), SECRET)))
            node.wait_for("worker ")
        with serving(app, housekeeping=False, port=port, admin_secret=SECRET[::-1]):
            assert refused.wait(LONG)
        with serving(app, housekeeping=False, port=port) as served, closing(Asking(served).client) as client:
            job = {"task": "thumbnail.make", "args": {"file": "a.png"}}
            made = client.post("/jobs", json={"jobs": [job]}).json()["jobs"][0]["job_id"]
            node.wait_for(f"{made}: succeeded")
            stranger = stack.enter_context(closing(Node(served.url, "hf_000000000000_" + "x" * 43)))
            assert stranger.process.wait(LONG) == 1
            stranger.wait_for("not known here")
