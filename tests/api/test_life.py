"""The life of an app: opened by use, closed when told to, usable again, from any loop and thread."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast import Holdfast, HoldfastError, SchemaMissing, State
from holdfast.connect import migrate
from tests.api.blocking import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT = 20.0


async def test_a_closed_app_opens_again_when_it_is_used(app: Holdfast) -> None:
    @app.task()
    async def note() -> str:
        return "done"

    await app.close()  # never opened
    handle = await note.enqueue()
    await app.close()
    await app.close()
    assert await handle.state() is State.READY
    async with app, app.worker():
        assert await handle.result(timeout=WAIT) == "done"
    assert await handle.result(timeout=WAIT) == "done"


def test_an_app_is_used_from_several_event_loops_and_threads(make_app_plain: Callable[[], Holdfast]) -> None:
    app = make_app_plain()

    @app.task()
    async def double(number: int) -> int:
        return number * 2

    async def one_loop(number: int) -> int:
        handle = await double.enqueue(number)
        async with app.worker(concurrency=2):
            result = await handle.result(timeout=WAIT)
        await app.close()
        return result

    assert [asyncio.run(one_loop(number)) for number in range(2)] == [0, 2]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda number: asyncio.run(one_loop(number)), range(4))) == [0, 2, 4, 6]
    handle = double.enqueue_sync(21)
    assert asyncio.run(one_loop(1)) == 2
    assert handle.result_sync(timeout=WAIT) == 42
    app.close_sync()
    assert app.stats_sync()["succeeded"] == 8
    app.close_sync()
    gc.collect()


@pytest.fixture
def make_app_plain(url: str) -> Callable[[], Holdfast]:
    """Make an app that the test closes itself: it has no event loop of its own."""
    return lambda: Holdfast(url)


def test_a_script_that_forgets_to_close_its_app_ends(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from holdfast import Holdfast\n"
        "app = Holdfast('sqlite:///jobs.db')\n"
        "@app.task()\n"
        "def note(number: int) -> int: return number\n"
        "print(note.enqueue_sync(1).state_sync())\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("ready\n", "", 0)


async def test_an_app_overridden_in_a_test_leaves_the_real_store_alone(app: Holdfast) -> None:
    @app.task()
    async def note() -> None: ...

    await note.enqueue()
    with app.override("memory://"):
        assert (await app.stats())["live"] == 0
        await note.enqueue()
        await note.enqueue()
        assert (await app.stats())["live"] == 2
        await app.close()
    assert (await app.stats())["live"] == 1


async def test_closing_in_a_loop_from_blocking_code_names_the_call_to_use(memory: Holdfast) -> None:
    await in_thread(memory.stats_sync)
    with pytest.raises(HoldfastError, match=r"close_sync was called inside a running event loop.* await ….close\("):
        memory.close_sync()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_missing_schema_that_is_not_to_be_created_is_named_until_it_is_there(
    store: str, tmp_path: Path, postgres_database: str
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db" if store == "sqlite" else f"{postgres_database}?schema=not_there_{uuid4().hex}"
    app = Holdfast(url, create=False)

    @app.task()
    async def note() -> None: ...

    for _ in range(2):
        with pytest.raises(SchemaMissing, match="holdfast migrate"):
            await note.enqueue()
        with pytest.raises(SchemaMissing):
            async with app.worker():
                pytest.fail("it must not start")
    await migrate(url)
    handle = await note.enqueue()
    assert await handle.state() is State.READY
    await app.close()
