"""What is written relies on seeing what was committed meanwhile: it happens at READ COMMITTED, or it is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from holdfast.core.job import OnConflict
from holdfast.core.outcome import Continued, Succeeded, Suspended
from holdfast.core.states import State
from holdfast.errors import BadSetting
from holdfast.store.port import Settled
from holdfast.store.postgres import scripts
from holdfast.store.postgres.connection import LEVEL, NOTICING
from tests.callers.asyncpg_world import World, keyed, new, on, opened, settlement
from tests.support.postgres import database_of
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEVELS = ["repeatable read", "serializable"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest_asyncio.fixture(params=[True, False], ids=["prepared", "unprepared"])
async def strict(request: pytest.FixtureRequest, level: str, postgres_url: str) -> AsyncIterator[World]:
    """A store in a database whose transactions are stricter unless they say otherwise."""
    database = database_of(postgres_url)
    async with opened(postgres_url) as world:
        await world.store._db.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
        try:
            async with opened(postgres_url, prepare=request.param) as strict:
                yield strict
        finally:
            await world.store._db.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")


@pytest_asyncio.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    async with opened(postgres_url) as world:
        yield world


# -- a database that is stricter by default --------------------------------------------------------------------------------


@pytest.mark.row(24)
async def test_a_waiter_under_way_is_seen_by_the_settlement_that_waits_for_it(strict: World) -> None:
    blocker = await strict.running()
    waiter = new(after=(blocker.job_id,))
    async with strict.connection() as creating:
        await creating.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        await strict.store._script(creating, scripts.enqueue([waiter]))  # type: ignore[arg-type]
        settling = asyncio.create_task(strict.settle(blocker, Succeeded()))
        await until(strict.anybody_waits)
        await creating.execute("COMMIT")
    assert await settling is Settled.FREED
    assert await strict.states(waiter) == [State.READY]


async def test_a_signal_under_way_is_seen_by_who_comes_to_wait_for_it(strict: World) -> None:
    claimed, signal = await strict.running(), f"paid:{uuid4()}"
    suspended = settlement(claimed, Suspended(signal=signal))
    async with strict.connection() as emitting:
        await emitting.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        await emitting.fetch("SELECT * FROM holdfast.emit($1, '1', '')", signal)
        settling = asyncio.create_task(strict.store.settle([suspended]))
        await until(strict.anybody_waits)
        await emitting.execute("COMMIT")
    await settling
    [view] = await strict.store.get([claimed.job_id])
    assert view is not None
    assert view.state is State.READY


@pytest.mark.row(24)
async def test_transactions_of_handlers_and_batches_are_begun_as_they_must_be(strict: World) -> None:
    claims = [await strict.running() for _ in range(2)]
    step = keyed(f"{uuid4()}", OnConflict.REPLACE)
    transaction = await strict.store.begin()
    assert await transaction.execute("SHOW transaction_isolation") == [("read committed",)]
    assert await transaction.settle(settlement(claims[0], Continued(step))) is Settled.APPLIED
    await transaction.commit()
    assert await strict.settle(claims[1], Continued(new())) is Settled.APPLIED
    assert (await strict.store.emit(f"paid:{uuid4()}", "1")).first


@pytest.mark.parametrize("strict", [False, True], ids=["usual", "serializable"])
async def test_a_pooler_that_takes_no_settings_is_asked_for_none(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, *, strict: bool
) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("DROP SCHEMA IF EXISTS holdfast CASCADE")
    if strict:  # then the level is said with each transaction
        name = database_of(postgres_url)
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_isolation = serializable')
    await connection.close()
    asked: list[dict[str, str]] = []
    create_pool = asyncpg.create_pool

    def refusing(url: str, **settings: object) -> object:
        given = settings["server_settings"]
        assert isinstance(given, dict)
        asked.append(given)
        if set(given) != {"application_name"}:
            raise asyncpg.ProtocolViolationError("unsupported startup parameter: default_transaction_isolation")
        return create_pool(url, **settings)  # type: ignore[call-overload]

    monkeypatch.setattr(asyncpg, "create_pool", refusing)
    async with opened(postgres_url) as world:
        assert await world.settle(await world.running(), Succeeded()) is Settled.APPLIED
    assert [set(given) for given in asked] == [{"application_name", *LEVEL, *NOTICING}, {"application_name"}]


# -- a transaction that is stricter by its own choice ----------------------------------------------------------------------


@pytest.mark.row(24)
async def test_ending_an_attempt_at_another_level_is_refused_with_the_line_to_write(world: World, level: str) -> None:
    claimed = await world.running()
    async with world.connection() as connection:
        await connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        await connection.fetchval("SELECT count(*) FROM pg_class")
        for refused in (on(connection).settle(settlement(claimed, Succeeded())), on(connection).prove(claimed.lease)):
            with pytest.raises(BadSetting, match="SET TRANSACTION ISOLATION LEVEL READ COMMITTED") as error:
                await refused
            assert level in str(error.value)
        await on(connection).enqueue([new()])
        await connection.execute("COMMIT")
    assert await world.settle(claimed, Succeeded()) is Settled.APPLIED


@pytest.mark.row(24)
async def test_a_handler_that_makes_its_transaction_stricter_cannot_complete_in_it(world: World, level: str) -> None:
    claimed = await world.running()
    transaction = await world.store.begin()
    await transaction.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    with pytest.raises(BadSetting, match="READ COMMITTED"):
        await transaction.settle(settlement(claimed, Succeeded()))
    await transaction.rollback()
    assert await world.settle(claimed, Succeeded()) is Settled.APPLIED


@pytest.mark.row(24)
async def test_nothing_that_must_see_others_is_done_in_silence_at_another_level(world: World, level: str) -> None:
    claimed, blocker = await world.running(), new()
    await world.store.enqueue([blocker])
    await world.store.enqueue([new(after=(blocker.id,))])
    statements = [
        "SELECT holdfast.emit('paid', '1', '')",
        f"SELECT holdfast.settle(false, '{{{claimed.job_id}}}', '{{{claimed.token}}}', {'NULL, ' * 11}NULL)",
        f"SELECT holdfast.cancel('{{{blocker.id}}}', '{{ready}}', '', 'CANCELED', '')",
    ]
    async with world.connection() as connection:
        for statement in statements:
            await connection.execute(f"BEGIN ISOLATION LEVEL {level}")
            with pytest.raises(asyncpg.PostgresError) as error:
                await connection.execute(statement)
            assert error.value.sqlstate == "HF007"
            await connection.execute("ROLLBACK")
