"""Two-phase commit: PostgreSQL prepares no transaction that has notified, so nothing may be told in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from holdfast import BadSetting
from holdfast.connect import postgres_parts
from holdfast.core.states import State
from holdfast.tasks.blocking import by_hand
from tests.callers.stacks import Blocking, engine_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Handle, Holdfast
    from tests.callers.conftest import Place, Workers


class Thread(Blocking):
    """Somewhere to block in."""

    async def close(self) -> None:
        assert self._thread is not None
        self._thread.shutdown()


@pytest.fixture
def place(postgres_place: Place) -> Place:
    return postgres_place


def by_psycopg(place: Place, enqueue: Callable[[Any], Handle[Any]]) -> Handle[Any]:
    with psycopg.connect(postgres_parts(place.url)[0]) as connection:
        connection.tpc_begin("orders")
        handle = enqueue(connection)
        connection.tpc_commit()
        enqueue(connection)  # an ordinary transaction on the same connection tells, as always
        connection.rollback()
    return handle


def by_sqlalchemy(place: Place, enqueue: Callable[[Any], Handle[Any]]) -> Handle[Any]:
    engine = create_engine(engine_url(place.url, "psycopg"))
    with engine.connect() as connection, connection.begin_twophase():
        handle = enqueue(connection)
    engine.dispose()
    return handle


def by_session(place: Place, enqueue: Callable[[Any], Handle[Any]]) -> Handle[Any]:
    engine = create_engine(engine_url(place.url, "psycopg"))
    with engine.connect() as connection, connection.begin_twophase(), Session(connection) as session:
        handle = enqueue(session)
        session.commit()
    engine.dispose()
    return handle


@pytest.mark.parametrize("way", [by_psycopg, by_sqlalchemy, by_session])
async def test_nothing_is_told_in_a_transaction_that_may_be_prepared(
    app: Holdfast, place: Place, workers: Workers, way: Any
) -> None:
    mail, thread = app.tasks["mail"], Thread(place.url, place.table)
    handle = await thread.do(lambda: way(place, lambda connection: mail.options(conn=connection).enqueue_sync(1)))
    await thread.close()
    assert await handle.state() is State.READY
    assert await workers.heard() == []


async def test_a_job_is_not_completed_in_two_phases(app: Holdfast, place: Place) -> None:
    """psycopg forbids the commit in one."""

    def begin() -> None:
        with psycopg.connect(postgres_parts(place.url)[0]) as connection:
            connection.tpc_begin("orders")
            try:
                by_hand(app.caller(connection).begin())
            finally:
                connection.tpc_rollback()

    thread = Thread(place.url, place.table)
    with pytest.raises(BadSetting, match="two-phase"):
        await thread.do(begin)
    await thread.close()
