"""The command line as a person meets it: real processes, their output and exit codes, terminals, pipes and signals."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as package
from holdfast.cli.output import short_id
from holdfast.store.port import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Shop

PATIENCE = 60.0
APP = """
from holdfast import Holdfast
app = Holdfast({url!r})

@app.task(name="greet")
async def greet(name: str) -> str:
    return {greeting!r} + name
"""

FAILING = """
import logging
from holdfast import Holdfast
app = Holdfast({url!r})

@app.task(name="greet", retry=1)
async def greet(name: str) -> None:
    logging.getLogger("shop.mail").info("begins")
    raise ValueError("no " + name)
"""


def holdfast(*arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line, optionally as if a package were not installed."""
    block = f"import sys; sys.modules[{without!r}] = None; " if without else ""
    program = f"{block}from holdfast.__main__ import main; main()"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_migrate_creates_and_then_leaves_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert holdfast("migrate", url).stdout == "created: version 1\n"
    assert holdfast("migrate", url).stdout == "up to date: version 1\n"
    assert json.loads(holdfast("migrate", "--url", url, "--json").stdout) == {"before": 1, "after": 1}


def test_a_users_mistake_ends_with_one_message_and_no_traceback(tmp_path: Path) -> None:
    for arguments, code in (
        (["migrate", "mysql://x"], 2),
        (["migrate", f"sqlite:///{tmp_path}/no/such/folder/jobs.db"], 1),
        (["migrate", "memory://"], 2),
    ):
        done = holdfast(*arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


def test_the_reference_is_up_to_date() -> None:
    root = Path(__file__).parent.parent.parent
    subprocess.run([sys.executable, "tools/cli_reference.py", "--check"], check=True, cwd=root)


def test_an_interrupt_ends_it_with_130_and_without_a_traceback(shop: Shop) -> None:
    job_id = shop.enqueue()
    command = [sys.executable, "-m", "holdfast", "jobs", "logs", str(job_id), "--follow", "--url", shop.url, "--json"]
    claimed = shop.claim()[0]
    shop.do(lambda store: store.log([LogLine(lease=claimed.lease, message="begun")]))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "begun" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (130, "")


def test_help_teaches_and_the_version_is_the_packages() -> None:
    assert "holdfast migrate postgresql://user@host/database" in holdfast("migrate", "--help").stdout
    assert holdfast("--version").stdout.strip() == package.__version__


def test_without_its_packages_the_command_line_says_what_to_install() -> None:
    done = holdfast("migrate", "memory://", without="cyclopts")
    assert done.returncode == 1
    assert "pip install 'holdfast[cli]'" in done.stderr


def test_a_reader_that_has_seen_enough_ends_it_quietly(shop: Shop) -> None:
    args = json.dumps({"x": "y" * 50_000})
    for _ in range(10):
        shop.enqueue(args=args)
    command = [sys.executable, "-m", "holdfast", "jobs", "ls", "--url", shop.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert (process.stderr.read(), process.wait(PATIENCE)) == ("", 0)


def on_terminal(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run a command on a terminal of its own and return what it showed."""
    leader, follower = pty.openpty()
    env = {**os.environ, "COLUMNS": "120", "TERM": "xterm-256color", **(environment or {})}
    with subprocess.Popen([sys.executable, "-m", "holdfast", *arguments], stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        shown = b""
        while select.select([leader], [], [], PATIENCE)[0]:
            try:
                data = os.read(leader, 65536)
            except OSError:  # the process has closed its side
                break
            if not data:
                break
            shown += data
        process.wait(PATIENCE)
    os.close(leader)
    return shown.decode()


def test_on_a_terminal_there_are_tables_and_colours_unless_they_are_not_wanted(shop: Shop) -> None:
    job_id = shop.fail()
    coloured = on_terminal("jobs", "ls", "--url", shop.url)
    assert "attempt" in coloured
    assert str(job_id) in coloured
    assert "\x1b[1;31mfailed" in coloured
    plain = on_terminal("jobs", "ls", "--url", shop.url, environment={"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain)
    narrow = on_terminal("jobs", "ls", "--url", shop.url, environment={"COLUMNS": "80"})
    assert short_id(str(job_id)) in narrow
    assert re.search(r"ago.*BOOM: it broke", narrow)
    long = shop.fail(task="accounting.invoices.send_reminder")
    narrow = on_terminal(
        "jobs", "ls", "task:accounting.invoices.send_reminder", "--url", shop.url, environment={"COLUMNS": "80"}
    )
    assert short_id(str(long)) in narrow
    assert "BOOM: it broke" in narrow
    assert "no jobs match" in on_terminal("jobs", "ls", "queue:none", "--url", shop.url)


def test_top_is_drawn_on_a_terminal(shop: Shop) -> None:
    shop.enqueue(queue="video")
    shop.worker("w1")
    shown = on_terminal("top", "--once", "--url", shop.url)
    for part in ("queues (1)", "video", "workers (1)", "w1", "running (0)", "1 ready"):
        assert part in shown


@contextmanager
def worker(
    tmp_path: Path, *arguments: str, unset: str = "", ignoring: signal.Signals | None = None
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "holdfast", "worker", *arguments]
    if ignoring is not None:
        command = ["/bin/sh", "-c", f'trap "" {ignoring.name[3:]}; exec "$0" "$@"', *command]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop(unset, None)
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment)
    too_long = threading.Timer(2 * PATIENCE, process.terminate)  # so that nobody waits for ever for a line that does not come
    too_long.start()
    try:
        yield process
    finally:
        too_long.cancel()
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


def ended(shop: Shop, job_id: object) -> str | None:
    """Wait for the end of a job and return its result."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        record = json.loads(holdfast("jobs", "show", str(job_id), "--json", "--url", shop.url).stdout)
        if record["state"] in {"succeeded", "failed"}:
            return str(record["result"])
    return None


def test_a_worker_runs_jobs_logs_json_and_stops_on_request(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(APP.format(url=shop.url, greeting="hello "))
    with worker(tmp_path, "greeter:app", "--concurrency", "2", "--log-format", "json", "--name", "w9") as process:
        job_id = shop.enqueue(task="greet", args='{"name":"ann"}')
        assert ended(shop, job_id) == "hello ann"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    records = [json.loads(line) for line in log.splitlines()]
    assert all({"event", "level", "logger", "timestamp"} <= set(record) for record in records)
    assert all(record["worker"] == "w9" for record in records)
    assert "warning" not in {record["level"] for record in records}


def failing(shop: Shop, tmp_path: Path, style: str) -> tuple[str, str]:
    """Return the id of a job that logs a line and fails, and the log of its worker; the settings name another store."""
    (tmp_path / "greeter.py").write_text(FAILING.format(url=shop.url))
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///another.db"\n[workers]\nlease_timeout_seconds = 7')
    with worker(tmp_path, "greeter:app", "--log-format", style, "--name", "w9", unset="HOLDFAST_URL") as process:
        job_id = shop.enqueue(task="greet", args='{"name":"ann"}')
        ended(shop, job_id)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    assert "holdfast.toml:1 names the store sqlite:///another.db, but the app was given" in log
    assert "holdfast.toml:3 says a lease of 7s, but the app was given a URL" in log
    return str(job_id), log


def test_every_line_about_a_job_says_which_in_fields(shop: Shop, tmp_path: Path) -> None:
    job_id, log = failing(shop, tmp_path, "json")
    records = [json.loads(line) for line in log.splitlines()]
    told = [record for record in records if job_id in record["event"] or record["event"] == "begins"]
    assert [record["logger"] for record in told] == ["shop.mail", "holdfast.worker"]
    for record in told:
        assert (record["job_id"], record["task"], record["attempt"]) == (job_id, "greet", 1)
    assert all(record["worker"] == "w9" for record in records)


def test_lines_for_people_carry_the_same_fields(shop: Shop, tmp_path: Path) -> None:
    job_id, log = failing(shop, tmp_path, "console")
    fields = f"attempt=1 job_id={job_id} task=greet worker=w9"
    assert re.search(rf"begins .*{fields}", log)
    assert re.search(rf"ValueError: no ann\n.*{fields}", log)


def test_a_worker_is_started_anew_when_a_file_changes(shop: Shop, tmp_path: Path) -> None:
    module = tmp_path / "greeter.py"
    module.write_text(APP.format(url=shop.url, greeting="hello "))
    # as a script starts it in the background: with interrupts ignored
    with worker(tmp_path, "greeter:app", "--reload", ignoring=signal.SIGINT) as process:
        assert ended(shop, shop.enqueue(task="greet", args='{"name":"ann"}')) == "hello ann"
        module.write_text(APP.format(url=shop.url, greeting="goodbye "))
        assert process.stderr is not None
        while "starting the worker anew" not in (line := process.stderr.readline()):
            assert line
        while "every queue" not in (line := process.stderr.readline()):
            assert line
        assert ended(shop, shop.enqueue(task="greet", args='{"name":"ann"}')) == "goodbye ann"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
