"""While a transaction is open on PostgreSQL: its keys are busy, blockers of its waiters end, and others take their places.

All of it is decided by the server, so one stack of each family will do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import KeyBusy
from holdfast.core.states import State
from holdfast.store.port import Enqueue
from tests.callers.stacks import Asyncpg

if TYPE_CHECKING:
    from holdfast import Holdfast
    from tests.callers.conftest import Place
    from tests.callers.stacks import Stack


@pytest.fixture(params=["asyncpg", "sqlalchemy-session", "django"])
def stack_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def mail(app: Holdfast) -> Any:
    return app.tasks["mail"]


async def test_a_key_that_the_transaction_holds_is_busy_for_others_and_decided_at_its_end(stack: Stack, mail: Any) -> None:
    held = await stack.enqueue(mail, 1, key="order:1")
    with pytest.raises(KeyBusy) as busy:
        await asyncio.wait_for(mail.options(key="order:1").enqueue(1), timeout=30)
    assert busy.value.keys == ("order:1",)
    await stack.commit()
    after = await mail.options(key="order:1").enqueue(1)
    assert (after.id, after.status) == (held.id, Enqueue.EXISTING)


async def test_a_key_that_a_transaction_held_is_free_after_its_rollback(stack: Stack, mail: Any) -> None:
    await stack.enqueue(mail, 1, key="order:1")
    await stack.rollback()
    assert (await mail.options(key="order:1").enqueue(1)).status is Enqueue.CREATED


async def test_a_key_that_another_transaction_holds_is_busy_and_leaves_this_one_usable(
    stack: Stack, place: Place, mail: Any
) -> None:
    other = Asyncpg(place.url, place.table)
    await other.open()
    await other.begin()
    held = await other.enqueue(mail, 1, key="order:1")
    await stack.write(1)
    with pytest.raises(KeyBusy):
        await asyncio.wait_for(stack.enqueue(mail, 1, key="order:1"), timeout=30)
    await other.commit()
    await other.close()
    again = await stack.enqueue(mail, 1, key="order:1")
    await stack.commit()
    assert (again.id, again.status) == (held.id, Enqueue.EXISTING)
    assert await place.rows() == [1]


async def test_a_waiter_is_freed_whose_blocker_ends_before_the_commit(stack: Stack, app: Holdfast, mail: Any) -> None:
    blocker = await mail.enqueue(1)
    waiter = await stack.enqueue(mail, 2, after=[blocker])
    async with app.worker(poll=60):
        assert await asyncio.wait_for(blocker.result(timeout=30), timeout=30) == "order 1"
        await stack.commit()
        assert await waiter.result(timeout=30) == "order 2"


async def test_an_open_transaction_with_a_waiter_does_not_hold_up_its_blocker(stack: Stack, app: Holdfast, mail: Any) -> None:
    blocker = await mail.enqueue(1)
    await stack.enqueue(mail, 2, after=[blocker])
    assert (await app.complete(blocker.id, "by hand")).applied
    assert await blocker.state() is State.SUCCEEDED
    await stack.rollback()


async def test_a_job_that_took_its_place_early_and_was_committed_late_is_found(stack: Stack, app: Holdfast, mail: Any) -> None:
    early = await stack.enqueue(mail, 1)
    async with app.worker(poll=60):
        assert await (await mail.enqueue(2)).result(timeout=30) == "order 2"
        await stack.commit()
        assert await early.result(timeout=30) == "order 1"
