"""Django: outside of `atomic`, in async code, and with aliases that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction

from holdfast import BadSetting
from tests.callers.conftest import exists
from tests.callers.stacks import Django

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast import Holdfast
    from tests.callers.conftest import Place, Workers


@pytest.fixture(params=["postgres_place", "sqlite_place"])
def place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    return place


@pytest_asyncio.fixture
async def django(place: Place) -> AsyncIterator[Django]:
    """A connection of Django outside of `atomic`."""
    django = Django(place.url, place.table)
    await django.open()
    yield django
    await django.close()


@pytest.fixture
def mail(app: Holdfast) -> Any:
    return app.tasks["mail"]


async def test_outside_of_atomic_a_job_exists_at_once_as_rows_do(
    django: Django, app: Holdfast, workers: Workers, mail: Any
) -> None:
    handle = await django.enqueue(mail, 1)
    assert await exists(handle)
    await workers.hear_of("mail")


async def test_an_exception_in_atomic_undoes_jobs_and_rows(django: Django, app: Holdfast, place: Place, mail: Any) -> None:
    def place_order() -> None:
        with transaction.atomic(using=django.alias):
            with connections[django.alias].cursor() as cursor:
                cursor.execute(f"INSERT INTO {place.table} (n) VALUES (1)")
            mail.options(using=django.alias).enqueue_sync(1)
            raise LookupError

    with pytest.raises(LookupError):
        await django.do(place_order)
    assert (await app.stats())["live"] == 0
    assert await place.rows() == []


async def test_a_transaction_begun_by_hand_is_taken_part_in(django: Django, app: Holdfast, workers: Workers, mail: Any) -> None:
    def by_hand() -> Any:
        transaction.set_autocommit(False, using=django.alias)
        handle = mail.options(using=django.alias).enqueue_sync(1)
        transaction.commit(using=django.alias)
        gone = mail.options(using=django.alias).enqueue_sync(2)
        transaction.rollback(using=django.alias)
        transaction.set_autocommit(True, using=django.alias)
        return handle, gone

    handle, gone = await django.do(by_hand)
    assert await exists(handle)
    assert not await exists(gone)
    await workers.hear_of("mail")


async def test_a_broken_transaction_is_refused_by_django_itself(django: Django, app: Holdfast, mail: Any) -> None:
    def broken() -> None:
        with transaction.atomic(using=django.alias):
            transaction.set_rollback(True, using=django.alias)
            mail.options(using=django.alias).enqueue_sync(1)

    with pytest.raises(transaction.TransactionManagementError, match="atomic"):
        await django.do(broken)


async def test_async_code_is_told_to_leave_the_event_loop(django: Django, app: Holdfast, mail: Any) -> None:
    with pytest.raises(SynchronousOnlyOperation) as refused:
        await mail.options(using=django.alias).enqueue(1)
    assert any("sync_to_async" in note for note in refused.value.__notes__)
    del connections[django.alias]  # the one of this thread, never connected


async def test_an_alias_that_is_none_is_refused_with_those_there_are(django: Django, app: Holdfast, mail: Any) -> None:
    with pytest.raises(BadSetting, match=r"using='orders' names no database of Django.*'holdfast-callers'"):
        await django.do(lambda: mail.options(using="orders").enqueue_sync(1))


async def test_a_transaction_of_a_job_begins_and_ends_with_atomic(django: Django, app: Holdfast, place: Place) -> None:
    def run(*, undo: bool, n: int) -> None:
        caller = app._adapters.caller_using(django.alias)
        _done(caller.begin())
        with connections[django.alias].cursor() as cursor:
            cursor.execute(f"INSERT INTO {place.table} (n) VALUES ({n})")
        _done(caller.rollback() if undo else caller.commit())

    await django.do(lambda: run(undo=True, n=1))
    await django.do(lambda: run(undo=False, n=2))
    assert await place.rows() == [2]


async def test_a_transaction_of_a_job_does_not_begin_inside_atomic(django: Django, app: Holdfast) -> None:
    def run() -> None:
        with transaction.atomic(using=django.alias):
            _done(app._adapters.caller_using(django.alias).begin())

    with pytest.raises(BadSetting, match=r"inside transaction\.atomic\(\) already"):
        await django.do(run)


def _done(coroutine: Any) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


async def test_a_job_is_not_completed_where_the_commit_is_left_to_others(django: Django, app: Holdfast) -> None:
    """Django would take the end of its block for that of a savepoint, and the job for completed."""
    await django.do(lambda: django.conn.set_autocommit(False))
    caller = await django.caller(app)
    with pytest.raises(BadSetting, match="set_autocommit"):
        await django.drive(caller.begin())
    await django.do(lambda: django.conn.set_autocommit(True))
