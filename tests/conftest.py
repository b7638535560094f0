"""What every test gets: real PostgreSQL servers on demand, a leak check, and slow tests behind `--slow`."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import pytest_asyncio
from hypothesis import settings

from holdfast.system import SystemEnvironment
from tests.support import postgres, rows, spread
from tests.support.lots import Steady

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

settings.register_profile("holdfast", deadline=None)  # a busy machine is not a bug
settings.load_profile("holdfast")

MACHINE = Path(__file__).parent / "faults/machine"
_left_out = pytest.StashKey[int]()


# -- one order --------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="session")
def steady() -> Iterator[None]:
    """Among equals whoever was first is first, in the process of the tests: what a test says about order is not to be a lot.

    What is about lots has an environment of its own (`tests.support.lots`); processes that tests start draw as any does.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemEnvironment, "lot", Steady.lot)
        yield


# -- slow tests ------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--screenshots", action="store_true", help="write the pictures of the dashboard into docs/images")
    parser.addoption("--rows", help="only the tests of some rows of the catalogue of faults, as 5,11 or all (see ./dev faults)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even look for tests that only `./dev faults` runs: there are thousands."""
    return True if collection_path == MACHINE and config.getoption("--rows") is None else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted, others = rows.select(items, config.getoption("--rows"))
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = wanted
    if hasattr(config, "workerinput"):  # in one process it does not matter who is last
        items[:] = spread.in_order(items)
    if config.getoption("--slow") or config.getoption("--rows"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.stash[_left_out] = len(slow)
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> spread.Spread | None:
    return spread.Spread(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of a parallel run: tell the process that prints the summary what was left out here."""
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["left_out"] = session.config.stash.get(_left_out, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker of a parallel run collects all tests, so any of them knows the number."""
    node.config.stash[_left_out] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if text := config.getoption("--rows"):
        reports = [one for kind in ("passed", "failed", "error") for one in terminalreporter.stats.get(kind, [])]
        terminalreporter.section("faults")
        for line in rows.table(reports, text):
            terminalreporter.write_line(line)
    if count := config.stash.get(_left_out, 0):
        noun = "test" if count == 1 else "tests"
        terminalreporter.write_line(f"{count} slow {noun} left out; to run them too: ./dev test --slow", yellow=True)


# -- PostgreSQL ------------------------------------------------------------------------------------------------------------


def pytest_sessionstart(session: pytest.Session) -> None:
    """A parallel run collects in its workers, which cannot end the whole: so it asks before it starts them."""
    if session.config.getoption("numprocesses", None):
        _require_postgres()


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the run at once when a test needs a server that cannot be had: nothing is skipped silently."""
    if any("postgres_servers" in getattr(item, "fixturenames", ()) for item in session.items):
        _require_postgres()


def _require_postgres() -> None:
    try:
        postgres.require()
    except postgres.MissingServer as missing:
        pytest.exit(str(missing), returncode=1)


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[PostgresServers]:
    """The servers by major version, `postgres_servers[16]`; each is started when first asked for."""
    servers = postgres.PostgresServers()
    yield servers
    servers.stop()


@pytest.fixture(scope="module", params=[f"pg{major}" for major in postgres.MAJORS])
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server; the test runs once for each major version."""
    return postgres_servers[int(request.param.removeprefix("pg"))]


@pytest.fixture(scope="module")
def postgres_url(request: pytest.FixtureRequest, postgres_server: PostgresServer | GivenServer) -> Iterator[str]:
    """The URL of an empty database of this test module, on each major version. Connections left open fail the module."""
    url = postgres_server.create_database()
    yield url
    leaked = _wait_for_none(lambda: postgres_server.sessions(url))
    postgres_server.drop_database(url)
    if leaked:
        # pytest shows this at the test that happens to be next: so the message says whose they are
        whose = f"the tests of {request.path.name} on PostgreSQL {postgres_server.major}"
        pytest.fail(f"connections left open by {whose}:\n" + "\n".join(leaked))


# -- leaks -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a non-daemon thread or an unfinished asyncio task behind."""
    if marker := request.node.get_closest_marker("asyncio"):
        # set up first, so torn down last: the test's own fixtures have closed what they opened by then
        request.getfixturevalue(f"no_pending_tasks_{marker.kwargs.get('loop_scope') or 'function'}")
    before = set(threading.enumerate())
    yield
    leaked = _wait_for_none(
        lambda: [thread.name for thread in threading.enumerate() if thread not in before and not thread.daemon]
    )
    if leaked:
        pytest.fail(f"threads left running: {', '.join(leaked)}")


def _no_pending_tasks(scope: Literal["function", "class", "module", "session"]) -> object:
    """The check must run on the loop of the test, and a fixture's loop is fixed when it is declared: so one for each scope."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"no_pending_tasks_{scope}")
    async def fixture() -> AsyncIterator[None]:
        before = asyncio.all_tasks()
        yield
        await asyncio.sleep(0)  # what was cancelled last gets its turn to end
        pending = asyncio.all_tasks() - before - {asyncio.current_task()}
        if pending:
            pytest.fail("asyncio tasks left pending:\n" + "\n".join(sorted(map(repr, pending))))

    return fixture


_on_function_loop = _no_pending_tasks("function")
_on_class_loop = _no_pending_tasks("class")
_on_module_loop = _no_pending_tasks("module")
_on_session_loop = _no_pending_tasks("session")


def _wait_for_none(look: Callable[[], list[str]], seconds: float = 2.0) -> list[str]:
    """Look until nothing is left or the time is up: threads and server sessions end a moment after they were told to."""
    deadline = time.monotonic() + seconds
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found
