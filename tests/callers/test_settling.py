"""On every stack: an attempt ends with the transaction in which its handler wrote, or it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadSetting, StaleLease
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.store.port import ClaimRequest, Settled, Settlement, Worker
from tests.callers.stacks import POSTGRES, SQLITE, Blocking

if TYPE_CHECKING:
    from holdfast import Handle, Holdfast
    from holdfast.core.lease import Lease
    from tests.callers.conftest import Place
    from tests.callers.stacks import Stack

DONE = Write(Event.SUCCEED, 0, result='"done"')


async def claimed(app: Holdfast) -> tuple[Handle[Any], Lease]:
    """Return a job that runs, and the lease under which it does."""
    handle = await app.tasks["mail"].enqueue(1)
    store, worker = app.client().store, Worker(id=app.new_id(), name="by hand")
    await store.register(worker)
    (claim,) = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"mail"}), limit=1, look=True))
    return handle, claim.lease


@pytest.fixture
def begins() -> bool:
    """The transactions of these tests are begun and ended by the caller."""
    return False


async def test_a_job_is_completed_with_the_commit(stack: Stack, app: Holdfast, place: Place) -> None:
    handle, lease = await claimed(app)
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    await stack.write(1)
    assert await stack.drive(caller.settle(Settlement(lease, DONE))) is Settled.APPLIED
    assert await handle.state() is State.RUNNING
    await stack.drive(caller.commit())
    assert await handle.result(timeout=1) == "done"
    assert await place.rows() == [1]


async def test_a_job_goes_on_after_a_rollback(stack: Stack, app: Holdfast, place: Place) -> None:
    handle, lease = await claimed(app)
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    await stack.write(1)
    assert await stack.drive(caller.settle(Settlement(lease, DONE))) is Settled.APPLIED
    await stack.drive(caller.rollback())
    assert await handle.state() is State.RUNNING
    assert await place.rows() == []


async def test_a_lost_lease_is_told(stack: Stack, app: Holdfast, place: Place) -> None:
    handle, lease = await claimed(app)
    await app.complete(handle.id, "from outside")
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    assert await stack.drive(caller.prove(lease)) is Settled.STALE
    assert await stack.drive(caller.settle(Settlement(lease, DONE))) is Settled.STALE
    if not place.on_postgres:
        with pytest.raises(StaleLease):
            await stack.drive(caller.commit())
    await stack.drive(caller.rollback())
    assert await handle.result(timeout=1) == "from outside"


async def test_a_held_lease_is_proved(stack: Stack, app: Holdfast) -> None:
    handle, lease = await claimed(app)
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    assert await stack.drive(caller.prove(lease)) is Settled.APPLIED
    await stack.drive(caller.commit())
    assert await handle.state() is State.RUNNING


# -- who ends the transaction ----------------------------------------------------------------------------------------------

WITH_COMMIT = [name for name in POSTGRES | SQLITE if not name.startswith(("asyncpg", "django"))]
"""Whose connections have a method that commits whatever is open."""
WITH_BLOCKS = [*POSTGRES, *(name for name in SQLITE if name.startswith(("sqlalchemy", "django")))]
"""Whose libraries have blocks of their own that end a transaction, or a savepoint."""


async def refused_as_ended(stack: Stack, app: Holdfast, end: Any) -> Handle[Any]:
    """Write in a transaction that is ended behind the caller's back, and return the job that could not be completed."""
    handle, lease = await claimed(app)
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    await stack.write(1)
    await end()
    await stack.write(2)  # libraries begin another transaction by themselves, and would take the job into that
    for last in (caller.prove(lease), caller.settle(Settlement(lease, DONE))):
        with pytest.raises(BadSetting, match="nothing was completed"):
            await stack.drive(last)
    await stack.drive(caller.rollback())
    return handle


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_a_statement_that_ends_the_transaction_inside_the_block_is_noticed(
    stack: Stack, app: Holdfast, statement: str
) -> None:
    handle = await refused_as_ended(stack, app, lambda: stack.run(statement))
    assert await handle.state() is State.RUNNING


@pytest.mark.parametrize("stack_name", WITH_COMMIT)
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_library_that_ends_the_transaction_inside_the_block_is_noticed(
    stack: Stack, app: Holdfast, place: Place, end: str
) -> None:
    async def ends() -> None:
        await (stack.do(getattr(stack.conn, end)) if isinstance(stack, Blocking) else getattr(stack.conn, end)())

    handle = await refused_as_ended(stack, app, ends)
    assert await handle.state() is State.RUNNING
    assert 1 in await place.rows() or end == "rollback"


async def test_savepoints_inside_the_block_are_the_callers(stack: Stack, app: Holdfast, place: Place) -> None:
    handle, lease = await claimed(app)
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    await stack.write(1)
    await stack.savepoint()
    await stack.write(2)
    await stack.undo_savepoint()
    await stack.write(3)
    await stack.savepoint()
    await stack.write(4)
    await stack.keep_savepoint()
    assert await stack.drive(caller.settle(Settlement(lease, DONE))) is Settled.APPLIED
    await stack.drive(caller.commit())
    assert await handle.result(timeout=1) == "done"
    assert set(await place.rows()) >= {1, 3, 4}


@pytest.mark.parametrize("stack_name", POSTGRES)
async def test_the_first_statement_inside_the_block_may_set_the_level(stack: Stack, app: Holdfast) -> None:
    handle, lease = await claimed(app)
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    await stack.run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert await stack.drive(caller.settle(Settlement(lease, DONE))) is Settled.APPLIED
    await stack.drive(caller.commit())
    assert await handle.result(timeout=1) == "done"


@pytest.mark.parametrize("stack_name", [name for name in POSTGRES if name.startswith("psycopg")])
async def test_a_block_of_psycopg_inside_is_a_savepoint(stack: Stack, app: Holdfast, place: Place) -> None:
    """As the first thing of all it would be the transaction, which psycopg commits at its end."""
    handle, lease = await claimed(app)
    caller = await stack.caller(app)
    await stack.drive(caller.begin())
    block = stack.conn.transaction()
    if isinstance(stack, Blocking):
        await stack.do(block.__enter__)
        await stack.write(1)
        await stack.do(lambda: block.__exit__(None, None, None))
    else:
        async with block:
            await stack.write(1)
    assert await place.rows() == []
    assert await stack.drive(caller.settle(Settlement(lease, DONE))) is Settled.APPLIED
    await stack.drive(caller.commit())
    assert await handle.result(timeout=1) == "done"


@pytest.mark.parametrize("stack_name", WITH_BLOCKS)
async def test_a_block_of_the_library_around_it_is_refused(stack: Stack, app: Holdfast, place: Place) -> None:
    """Its end would come too late, or end what is not there any more."""
    await stack.enter_block()
    await stack.write(1)
    caller = await stack.caller(app)
    with pytest.raises(BadSetting, match=r"job\.transaction\(conn=…\).* outside"):
        await stack.drive(caller.begin())
    await stack.drive(caller.rollback())
    assert await place.rows() == []
