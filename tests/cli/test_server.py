"""`holdfast server` as a process of its own: what the settings say holds, jobs run in it, and a signal ends it in peace."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "a-secret-of-the-tests"
PATIENCE = 60.0
APP = """
from holdfast import Holdfast
app = Holdfast("sqlite:///jobs.db")

@app.task(name="pay", queue="money")
async def pay(amount: int, iban: str) -> int:
    return 2 * amount
"""


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    """Start the command in a folder, and yield its process and a client of its admin."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "holdfast", "server", *arguments, "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=own | {"HOLDFAST_ADMIN_SECRET": SECRET}, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stderr is not None
            line = running.stderr.readline()
            found = re.search(r"on (http://127\.0\.0\.1:\d+\S*)", line)
            assert found is not None, line
            headers = {"Authorization": f"Bearer {SECRET}"}
            with httpx2.Client(base_url=found[1], headers=headers, verify=False, timeout=PATIENCE) as client:
                yield running, client
        finally:
            running.kill()


def ended(client: httpx2.Client, job: str) -> dict[str, Any]:
    """Ask for a job until it has ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        view: dict[str, Any] = client.get(f"/api/v1/jobs/{job}").json()
        if view["state"] in ("succeeded", "failed", "canceled"):
            return view
        assert time.monotonic() < deadline, view
        time.sleep(0.05)


def test_a_server_with_a_worker_runs_on_sqlite_what_is_enqueued_over_http_and_ends_at_sigterm(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with serving(tmp_path, "shop:app", "--worker") as (running, client):
        job = {"task": "pay", "queue": "money", "args": {"amount": 21, "iban": "DE02"}}
        enqueued = client.post("/api/v1/jobs", json={"jobs": [job]}).json()["jobs"][0]
        view = ended(client, enqueued["job_id"])
        assert (view["state"], view["result"]) == ("succeeded", 42)
        begun = time.monotonic()
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
        assert time.monotonic() - begun < 15
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()


def test_prefix_cookies_and_redacted_fields_are_as_the_flags_say(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    flags = ("--prefix", "/team/jobs", "--secure-cookies", "--redact", "iban,tax_id")
    with serving(tmp_path, "shop:app", *flags) as (_, client):
        assert client.base_url.path == "/team/jobs/"
        job = {"task": "pay", "args": {"amount": 21, "iban": "DE02"}}
        job_id = client.post("/api/v1/jobs", json={"jobs": [job]}).json()["jobs"][0]["job_id"]
        page = client.get(f"/jobs/{job_id}").text
        assert "[redacted]" in page
        assert "DE02" not in page
        answer = client.post("/login", data={"secret": SECRET}, headers={"Sec-Fetch-Site": "same-origin"})
        cookie = answer.headers["set-cookie"].lower()
        assert "path=/team/jobs;" in cookie
        assert "secure" in cookie
        outside = str(client.base_url.copy_with(path="/health/live"))
        assert httpx2.get(outside, verify=False).status_code == 404


def test_how_much_it_takes_is_as_the_flags_say(tmp_path: Path) -> None:
    flags = ("--key-rate", "1", "--failure-rate", "1", "--body-limit", "3MiB", "--longest-poll", "7s", "--page-timeout", "2s")
    with serving(tmp_path, "--url", "sqlite:///jobs.db", *flags) as (_, client):
        told = client.get("/api/v1/server").json()
        assert (told["body_limit"], told["longest_wait_ms"]) == (3 * 2**20, 7000)
        answers = [client.get("/api/v1/server") for _ in range(20)]
        assert "1 a second" in next(answer.json()["message"] for answer in answers if answer.status_code == 429)
        guess = {"Authorization": "Bearer nobody"}
        guesses = [client.get("/api/v1/server", headers=guess).status_code for _ in range(3)]
        assert guesses == [401, 429, 429]


def test_a_prefix_that_is_no_path_is_refused_before_anything_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "server", "--url", "memory://", "--prefix", "jobs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--prefix: prefix must be a path such as /jobs" in done.stderr
