"""On every stack: what is enqueued in the caller's transaction stands or falls with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadJob, QueueFull
from holdfast.core.states import State
from holdfast.store.port import Enqueue
from tests.callers.conftest import exists

if TYPE_CHECKING:
    from holdfast import Holdfast
    from tests.callers.conftest import Place
    from tests.callers.stacks import Stack


@pytest.fixture
def mail(app: Holdfast) -> Any:
    return app.tasks["mail"]


async def test_a_job_exists_once_the_transaction_has_committed(stack: Stack, place: Place, mail: Any) -> None:
    await stack.write(1)
    handle = await stack.enqueue(mail, 1)
    assert not await exists(handle)
    await stack.commit()
    assert await handle.state() is State.READY
    assert await place.rows() == [1]


async def test_a_job_may_be_the_first_thing_of_a_transaction_and_rows_the_last(stack: Stack, place: Place, mail: Any) -> None:
    handle = await stack.enqueue(mail, 1)
    await stack.write(1)
    await stack.commit()
    assert await exists(handle)
    assert await place.rows() == [1]


async def test_a_job_never_was_when_the_transaction_is_rolled_back(stack: Stack, place: Place, mail: Any) -> None:
    await stack.write(1)
    handle = await stack.enqueue(mail, 1)
    await stack.rollback()
    assert not await exists(handle)
    assert await place.rows() == []


async def test_a_job_never_was_when_its_savepoint_is_rolled_back(stack: Stack, place: Place, mail: Any) -> None:
    await stack.write(1)
    kept = await stack.enqueue(mail, 1)
    await stack.savepoint()
    await stack.write(2)
    undone = await stack.enqueue(mail, 2)
    await stack.undo_savepoint()
    await stack.commit()
    assert await exists(kept)
    assert not await exists(undone)
    assert await place.rows() == [1]


async def test_a_job_in_a_released_savepoint_falls_with_the_transaction(stack: Stack, mail: Any) -> None:
    await stack.write(1)
    await stack.savepoint()
    handle = await stack.enqueue(mail, 1)
    await stack.keep_savepoint()
    await stack.rollback()
    assert not await exists(handle)


async def test_a_job_never_was_when_the_connection_is_closed_before_the_commit(stack: Stack, place: Place, mail: Any) -> None:
    await stack.write(1)
    handle = await stack.enqueue(mail, 1)
    await stack.close()
    assert not await exists(handle)
    assert await place.rows() == []
    await stack.open()  # so that it can be closed again


async def test_jobs_in_bulk_stand_in_order_and_are_typed(stack: Stack, app: Holdfast, mail: Any) -> None:
    handles = await stack.enqueue_many(app, [mail.call(order) for order in range(60)])
    assert (await app.stats())["live"] == 0
    await stack.commit()
    assert (await app.stats())["ready"] == 60
    async with app.worker(poll=0.2):
        assert [await handle.result(timeout=60) for handle in handles] == [f"order {order}" for order in range(60)]


async def test_jobs_in_bulk_never_were_after_a_rollback(stack: Stack, app: Holdfast, mail: Any) -> None:
    await stack.enqueue_many(app, [mail.call(order) for order in range(30)])
    await stack.rollback()
    assert (await app.stats())["live"] == 0


async def test_a_waiting_worker_runs_it_right_after_the_commit(stack: Stack, app: Holdfast, mail: Any) -> None:
    async with app.worker(poll=60):
        handle = await stack.enqueue(mail, 7)
        await stack.commit()
        assert await handle.result(timeout=30) == "order 7"


async def test_a_unique_key_that_is_taken_answers_with_its_holder(stack: Stack, mail: Any) -> None:
    holder = await mail.options(key="order:1").enqueue(1)
    handle = await stack.enqueue(mail, 1, key="order:1")
    again = await stack.enqueue(mail, 1, key="order:2")
    twice = await stack.enqueue(mail, 1, key="order:2")
    await stack.commit()
    assert (handle.id, handle.status) == (holder.id, Enqueue.EXISTING)
    assert (twice.id, twice.status) == (again.id, Enqueue.EXISTING)
    assert await exists(again)


async def test_a_full_queue_leaves_the_transaction_usable(stack: Stack, place: Place, mail: Any) -> None:
    await stack.write(1)
    first = await stack.enqueue(mail, 1, queue="small")
    with pytest.raises(QueueFull):
        await stack.enqueue(mail, 2, queue="small")
    await stack.write(2)
    third = await stack.enqueue(mail, 3)
    await stack.commit()
    assert await place.rows() == [1, 2]
    assert await exists(first)
    assert await exists(third)


async def test_a_refused_job_leaves_the_transaction_usable(stack: Stack, app: Holdfast, place: Place, mail: Any) -> None:
    with pytest.raises(BadJob, match="no job"):
        await stack.enqueue(mail, 2, after=[app.new_id()])
    await stack.write(2)
    handle = await stack.enqueue(mail, 3)
    await stack.commit()
    assert await place.rows() == [2]
    assert await exists(handle)


async def test_a_waiter_of_a_job_in_the_same_transaction_runs_after_it(stack: Stack, app: Holdfast, mail: Any) -> None:
    first = await stack.enqueue(mail, 1)
    second = await stack.enqueue(mail, 2, after=[first])
    await stack.commit()
    assert await second.state() is State.BLOCKED
    async with app.worker(poll=0.2):
        assert await second.result(timeout=30) == "order 2"


async def test_a_connection_goes_on_to_serve_further_transactions(stack: Stack, place: Place, mail: Any) -> None:
    handles = []
    for order in range(4):
        if order:
            await stack.begin()
        await stack.write(order)
        handles.append(await stack.enqueue(mail, order))
        await (stack.commit() if order % 2 else stack.rollback())
    assert [await exists(handle) for handle in handles] == [False, True, False, True]
    assert await place.rows() == [1, 3]
