"""On every stack that leads to PostgreSQL: hints, and sessions that end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from holdfast import BadSetting, Holdfast, StoreUnavailable
from tests.callers.conftest import exists
from tests.callers.stacks import POSTGRES

if TYPE_CHECKING:
    from tests.callers.conftest import Place, Workers
    from tests.callers.stacks import Stack


@pytest.fixture(params=POSTGRES)
def stack_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def mail(app: Holdfast) -> Any:
    return app.tasks["mail"]


async def test_workers_are_told_once_and_after_the_commit(stack: Stack, workers: Workers, mail: Any) -> None:
    for order in range(3):
        await stack.enqueue(mail, order)
    assert await workers.heard() == []
    await stack.commit()
    await workers.hear_of("mail")
    assert [hint.queues for hint in await workers.heard()] == [{"mail"}]


async def test_workers_are_told_once_where_savepoints_were_released(stack: Stack, workers: Workers, mail: Any) -> None:
    await stack.savepoint()
    await stack.enqueue(mail, 1)
    await stack.keep_savepoint()
    assert await workers.heard() == []
    await stack.commit()
    await workers.hear_of("mail")
    assert [hint.queues for hint in await workers.heard()] == [{"mail"}]


async def test_workers_are_told_of_waiters_whose_blockers_may_have_ended_unseen(
    stack: Stack, workers: Workers, mail: Any
) -> None:
    blocker = await stack.enqueue(mail, 1)
    await stack.enqueue(mail, 2, after=[blocker])
    await stack.commit()
    await workers.hear_of_waiters()


async def test_workers_are_told_nothing_of_what_was_rolled_back(stack: Stack, workers: Workers, mail: Any) -> None:
    await stack.enqueue(mail, 1)
    await stack.rollback()
    await stack.begin()
    await stack.write(1)
    await stack.commit()
    assert await workers.heard() == []


async def test_a_job_never_was_when_the_session_is_ended_before_the_commit(stack: Stack, place: Place, mail: Any) -> None:
    await stack.write(1)
    handle = await stack.enqueue(mail, 1)
    await place.end_sessions()
    with pytest.raises(Exception):  # noqa: B017, PT011  each library says it in its own words
        await stack.commit()
    assert not await exists(handle)
    assert await place.rows() == []


async def test_enqueuing_in_an_ended_session_says_that_the_database_is_away(stack: Stack, place: Place, mail: Any) -> None:
    await stack.enqueue(mail, 1)
    await place.end_sessions()
    with pytest.raises(StoreUnavailable):
        await stack.enqueue(mail, 1)


async def test_a_connection_to_another_database_of_the_server_is_refused(stack: Stack, place: Place) -> None:
    """A job there would be one that no worker finds; that it has a schema too is what makes it a likely slip."""
    elsewhere = Holdfast(urlunsplit(urlsplit(place.url)._replace(path="/elsewhere")))

    @elsewhere.task(name="mail")
    async def mail(order: int) -> None: ...

    with pytest.raises(BadSetting, match=r"to the database '\w+', but the jobs of this app are kept in .*/elsewhere"):
        await stack.enqueue(mail, 1)
    await stack.write(1)
    await stack.commit()
    assert await place.rows() == [1]
