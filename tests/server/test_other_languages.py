"""A worker in another language, written against the documentation alone: `examples/remote_worker.mjs`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.store.port import Role, WorkerKind, WorkerState
from tests.server.conftest import Asking
from tests.server.served import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LONG = 60.0


class Node:
    """The example as a process, and what it has printed."""

    def __init__(self, ask: Asking, key: str) -> None:
        node = shutil.which("node")
        if node is None:
            pytest.fail("there is no node on PATH. Install it with: apt-get install nodejs")
        self.process = subprocess.Popen(
            [node, str(ROOT / "examples" / "remote_worker.mjs")],
            env=os.environ | {"HOLDFAST_SERVER": ask.served.url, "HOLDFAST_KEY": key},
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
    node = Node(ask, ask.key(Role.WORKER))
    node.wait_for("worker ")
    yield node
    node.close()


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
