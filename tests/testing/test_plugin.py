"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

APP = """
from holdfast import Holdfast

app = Holdfast("postgresql://nobody@localhost:1/nowhere")

@app.task(name="double")
async def double(n: int) -> int:
    return 2 * n

@app.task(name="halve")
def halve(n: int) -> int:
    double.enqueue_sync(n)
    return n // 2
"""

BLOCKING = """
from holdfast.testing import assert_enqueued, drain_sync
from myapp import app, double, halve

def test_blocking(holdfast_override, holdfast_clock):
    assert holdfast_override(app) is app
    handle = halve.options(delay=60).enqueue_sync(4)
    assert [job.result for job in drain_sync(app, advance=True)] == [2, 8]
    assert holdfast_clock.monotonic() == 60
    assert_enqueued(app, double, args={"n": 4}, count=1)

def test_restored():
    assert app.url.startswith("postgresql://")
"""

ASYNC = """
import pytest
from holdfast.testing import assert_enqueued, drain
from myapp import app, double, halve

MARK

async def test_async(holdfast_override, holdfast_clock):
    holdfast_override(app)
    handle = await halve.options(delay=60).enqueue(4)
    assert [job.result for job in await drain(app, advance=True)] == [2, 8]
    assert await handle.result(timeout=5) == 2
    assert holdfast_clock.monotonic() == 60
    assert_enqueued(app, double, args={"n": 4}, count=1)

async def test_a_file(holdfast_override, tmp_path):
    holdfast_override(app, f"sqlite:///{tmp_path}/jobs.db")
    await double.enqueue(4)
    assert [job.result for job in await drain(app)] == [8]
CLOSE
"""


def written(mark: str, close: str = "") -> str:
    return ASYNC.replace("MARK", f"pytestmark = pytest.mark.{mark}").replace("CLOSE", f"    {close}")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    if not entry_points(group="pytest11", name="holdfast"):  # a checkout installed before the plugin was declared
        options = ("-p", "holdfast.testing.plugin", *options)
    pytester.makepyfile(myapp=APP)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", "--strict-markers", *options)


def test_blocking_tests_get_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BLOCKING)
    run(pytester, "-p", "no:asyncio").assert_outcomes(passed=2)


def test_tests_under_pytest_asyncio_get_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(written("asyncio"))
    run(pytester, "-o", "asyncio_default_fixture_loop_scope=function").assert_outcomes(passed=2)


def test_tests_under_anyio_get_fixtures(pytester: pytest.Pytester) -> None:
    pytest.importorskip("anyio")
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'")
    pytester.makepyfile(written("anyio", "await app.close()"))
    run(pytester, "-p", "no:asyncio").assert_outcomes(passed=2)


def test_the_plugin_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (name, module) = next(iter(project["entry-points"]["pytest11"].items()))
    assert name == "holdfast"
    assert hasattr(import_module(module), "holdfast_clock")


def test_the_plugin_loads_nothing_that_only_its_users_need() -> None:
    code = (
        "import sys, holdfast\n"
        "before = set(sys.modules)\n"
        "import pytest\n"
        "import holdfast.testing.plugin\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('holdfast')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['holdfast.testing', 'holdfast.testing.plugin']"


def test_every_exported_name_exists() -> None:
    testing = import_module("holdfast.testing")
    assert [name for name in testing.__all__ if not hasattr(testing, name)] == []
    assert set(testing._HOMES) == set(testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = testing.nothing
