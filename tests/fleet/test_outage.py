"""The store goes away under a manager: its workers stay, nothing is decided, it says so once, and goes on by itself."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from holdfast.core.states import State
from tests.fleet.conftest import place_on, process_of
from tests.support.postgres import MAJORS, PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.fleet.conftest import Place

SAID = "the store does not answer, the number of workers stays at 2"
OPTIONS = ("--default-count", "2", "--max-count", "3", "--concurrency", "1")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test's own, to be stopped."""
    with PostgresServer(MAJORS[-1]) as server:
        yield server


@pytest_asyncio.fixture
async def place(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Place]:
    async with place_on(server.create_database(), tmp_path) as made:
        yield made


async def said(place: Place, text: str, times: int = 1) -> None:
    """Wait until the manager or its workers have said something."""

    async def holds() -> bool:
        return place.log().read_text().count(text) >= times

    await place.until(holds)


def changes(place: Place) -> list[str]:
    return [line for line in place.log().read_text().splitlines() if "up from" in line or "down from" in line]


async def test_while_the_store_is_away_workers_stay_and_nothing_is_decided_and_it_goes_on_afterwards(
    place: Place, server: PostgresServer
) -> None:
    with place.manager(*OPTIONS):
        await place.until_up(2)
        held = await place.enqueue()
        await place.until_running(held)
        before = place.started()
        with server.down():
            await said(place, SAID)
            # the workers find out by themselves, each as soon as it asks; until then the manager has looked many times
            await said(place, "does not answer; trying again", times=2)
            assert sorted(place.started()) == sorted(before)
            assert changes(place) == []
        await said(place, "the store answers again: decisions go on")
        assert sorted(place.started()) == sorted(before)
        assert place.log().read_text().count(SAID) == 1
        held += await place.enqueue(count=20)
        await place.until_up(3)
        place.open()
        ended = await place.until_all_ended(held)
    assert {(job.state, job.attempt, job.failures) for job in ended} == {(State.SUCCEEDED, 1, 0)}
    assert (await place.decided())[:2] == [2, 3]


async def test_a_worker_that_crashes_while_the_store_is_away_is_replaced_all_the_same(
    place: Place, server: PostgresServer
) -> None:
    with place.manager(*OPTIONS):
        up = await place.until_up(2)
        crashed = next(process_of(view) for view in up if view.worker.name == "m.1")
        with server.down():
            await said(place, SAID)
            os.kill(crashed, signal.SIGKILL)
            await said(place, "worker m.1 crashed with code -9; it is replaced")

        async def replaced() -> bool:
            """What was killed stays in the registry for a while: its successors come after the two that it began with."""
            return any(int(view.worker.name.removeprefix("m.")) > 2 for view in await place.workers())

        await place.until(replaced)
        assert len(place.started()) == 2
    assert changes(place) == []


async def test_a_rehearsal_goes_on_after_an_outage_too(place: Place, server: PostgresServer) -> None:
    with place.manager(*OPTIONS, "--dry-run") as process:
        await said(place, "begins with 2")
        with server.down():
            await said(place, SAID)
        await said(place, "the store answers again: decisions go on")
        await place.enqueue(count=20)
        await said(place, "up from 2 to 3: ")
        assert process.poll() is None
    assert place.log().read_text().count(SAID) == 1
