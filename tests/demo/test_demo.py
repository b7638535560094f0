"""The demonstration itself: real processes, a real kill, a real freeze."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import asyncpg
import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEMO = [sys.executable, "-m", "holdfast", "demo"]


def run_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run([*DEMO, *arguments], capture_output=True, text=True, check=False, env=environment)


def account_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    account: dict[str, Any] = json.loads(done.stdout)
    return account


def check(account: dict[str, Any], *, jobs: int) -> None:
    assert account["adds_up"]
    assert account["problems"] == []
    assert account["enqueued"] == account["succeeded"] + account["failed_as_intended"] == jobs
    assert account["failed_as_intended"] > 0
    assert (account["lost"], account["wrong"], account["canceled"], account["parts_redone"]) == (0, 0, 0, 0)
    assert account["killed"] != account["frozen"]
    assert account["killed_holding"] > 0
    assert account["frozen_holding"] > 0
    # a job may be struck twice: once with the worker that was killed, and again with the one that was frozen
    assert account["recovered"] >= max(account["killed_holding"], account["frozen_holding"])
    assert account["stale_writes_refused"] > 0
    assert account["seconds"] < 60


def test_on_sqlite_a_kill_and_a_freeze_lose_nothing(tmp_path: Path) -> None:
    check(account_of(run_demo(tmp_path, "--jobs", "60", "--json")), jobs=60)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("postgres_server", ["pg18"], indirect=True)
def test_on_postgresql_a_kill_and_a_freeze_lose_nothing(tmp_path: Path, postgres_url: str) -> None:
    check(account_of(run_demo(tmp_path, "--jobs", "60", "--json", "--url", postgres_url)), jobs=60)
    assert list(tmp_path.iterdir()) == []
    assert asyncio.run(schemas_of(postgres_url)) == []


async def schemas_of(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'")
    finally:
        await connection.close()
    return [row["nspname"] for row in rows]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_no_worker_is_left(tmp_path: Path, ending: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*DEMO, "--jobs", "60"], stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        seen = []
        for line in demo.stdout:
            seen.append(line)
            if "enqueued 60 jobs" in line:
                break
        workers = psutil.Process(demo.pid).children()
        assert len(workers) == 3, "".join(seen)
        demo.send_signal(ending)
        code = demo.wait()
    assert holds_within(lambda: not any(worker.is_running() for worker in workers), seconds=30)
    if ending is not signal.SIGKILL:
        assert code == 130
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--jobs", "39"], 2, "--jobs must be 40 or more"),
        (["--url", "sqlite:///jobs.db"], 2, "leave --url out"),
        (["--url", "memory://"], 2, "leave --url out"),
        (["--url", "postgresql://nobody@127.0.0.1:1/nowhere"], 1, "cannot use the database"),
    ],
)
def test_what_cannot_work_is_said_in_one_message(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    done = run_demo(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def holds_within(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
