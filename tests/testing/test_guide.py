"""The guide's examples run as they stand."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.majors import NEWEST

if TYPE_CHECKING:
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parents[2] / "docs/guides/testing.md"


def blocks() -> dict[str, str]:
    found = re.findall(r"```python\n(# (\S+)\n.*?)```", GUIDE.read_text(), re.DOTALL)
    return {name: text for text, name in found}


def run(pytester: pytest.Pytester) -> pytest.RunResult:
    for name, text in blocks().items():
        pytester.path.joinpath(name).write_text(text)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error")
    plugin = () if entry_points(group="pytest11", name="holdfast") else ("-p", "holdfast.testing.plugin")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugin)


def test_every_block_of_code_is_a_file_of_its_own() -> None:
    assert len(blocks()) == GUIDE.read_text().count("```python\n")


def test_every_example_passes(pytester: pytest.Pytester) -> None:
    count = sum(len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE)) for text in blocks().values())
    assert count > 10
    run(pytester).assert_outcomes(passed=count)


@pytest.fixture(scope="module", params=NEWEST)
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server of the newest version; the older one with `--slow`."""
    return postgres_servers[request.param]


def test_the_examples_pass_on_postgres_too(
    pytester: pytest.Pytester, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_DATABASE_URL", postgres_url)
    result = run(pytester)
    assert result.ret == 0


def test_the_failure_shown_is_the_one_that_is_raised(pytester: pytest.Pytester) -> None:
    shown = re.search(r"```\nAssertionError: (.*?)```", GUIDE.read_text(), re.DOTALL)
    assert shown is not None
    pytester.path.joinpath("shop.py").write_text(blocks()["shop.py"])
    pytester.syspathinsert()
    code = (
        "import asyncio\n"
        "from holdfast.testing import assert_enqueued, override\n"
        "from shop import app, buy, receipt\n"
        "async def main():\n"
        "    async with override(app):\n"
        "        await buy(7)\n"
        "        try:\n"
        "            assert_enqueued(app, receipt, args={'order': 8})\n"
        "        except AssertionError as error:\n"
        "            print(error)\n"
        "asyncio.run(main())"
    )
    result = pytester.runpython_c(code)
    assert result.stdout.lines == shown.group(1).splitlines()
