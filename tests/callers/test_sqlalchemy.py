"""SQLAlchemy: rows of the ORM, hooks of sessions, and what cannot be used."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from sqlalchemy import create_engine, event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from holdfast import BadSetting
from holdfast.callers.sqlalchemy import Sqlalchemy
from tests.callers.conftest import exists
from tests.callers.stacks import engine_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from holdfast import Handle, Holdfast
    from tests.callers.conftest import Place


@pytest_asyncio.fixture(params=["asyncpg", "psycopg", "aiosqlite"])
async def engine(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(engine_url(place.url, request.param))
    yield engine
    await engine.dispose()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    kind = "sqlite_place" if params.get("engine") == "aiosqlite" else "postgres_place"
    place: Place = request.getfixturevalue(kind)
    return place


@pytest.fixture
def mail(app: Holdfast) -> Any:
    return app.tasks["mail"]


@pytest.fixture
def order_class(place: Place) -> type[Any]:
    """A class of the ORM whose rows lie in the caller's table."""

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = place.table
        n: Mapped[int] = mapped_column(primary_key=True)

    return Order


async def test_rows_and_jobs_of_one_flush_stand_and_fall_together(
    engine: AsyncEngine, place: Place, mail: Any, order_class: Callable[..., Any]
) -> None:
    async with AsyncSession(engine) as session:
        session.add(order_class(n=1))
        stands = await mail.options(conn=session).enqueue(1)
        await session.commit()
        session.add(order_class(n=2))
        await session.flush()
        falls = await mail.options(conn=session).enqueue(2)
        await session.rollback()
    assert await place.rows() == [1]
    assert await exists(stands)
    assert not await exists(falls)


async def test_jobs_fall_with_a_flush_that_fails(
    engine: AsyncEngine, place: Place, mail: Any, order_class: Callable[..., Any]
) -> None:
    async with AsyncSession(engine) as session:
        handle = await mail.options(conn=session).enqueue(1)
        session.add(order_class(n=5_000))
        with pytest.raises(IntegrityError):
            await session.commit()
    assert not await exists(handle)
    assert await place.rows() == []


async def test_objects_that_are_not_flushed_yet_stay_so(
    engine: AsyncEngine, mail: Any, order_class: Callable[..., Any]
) -> None:
    async with AsyncSession(engine) as session:
        session.add(order_class(n=1))
        await mail.options(conn=session).enqueue(1)
        assert len(session.new) == 1


async def test_a_listener_of_the_session_enqueues_as_well(
    app: Holdfast, place: Place, mail: Any, order_class: Callable[..., Any]
) -> None:
    """Inside of an AsyncSession all is blocking; there the blocking session is what there is to give."""
    engine = create_async_engine(engine_url(place.url, "asyncpg"))
    made: list[Handle[Any]] = []

    def enqueue(session: Session, _context: Any) -> None:
        caller = app._adapters.caller(session)
        assert caller.blocking
        call = mail.call(1)
        with pytest.raises(StopIteration):
            caller.enqueue([call.job]).send(None)
        made.append(app.job(call.job.id))

    async with AsyncSession(engine) as session:
        event.listen(session.sync_session, "after_flush", enqueue)
        session.add(order_class(n=1))
        await session.commit()
    await engine.dispose()
    assert await exists(made[0])


async def test_a_session_that_is_used_again_and_again_calls_once_for_each_commit(place: Place) -> None:
    engine = create_engine(engine_url(place.url, "psycopg"))
    called: list[int] = []
    with Session(engine) as session:
        for turn in range(5):
            through = Sqlalchemy(session)
            session.connection()
            assert through.after_commit(lambda turn=turn: called.append(turn))  # type: ignore[misc]
            with session.begin_nested():
                session.connection()
            assert turn not in called
            if turn % 2:
                session.rollback()
            else:
                session.commit()
        session.commit()
    engine.dispose()
    assert called == [0, 2, 4]


async def test_a_session_takes_its_listeners_along_when_it_goes(place: Place) -> None:
    engine = create_engine(engine_url(place.url, "psycopg"))
    session = Session(engine)
    Sqlalchemy(session).after_commit(lambda: None)
    session.close()
    watched = weakref.ref(session)
    del session
    gc.collect()
    engine.dispose()
    assert watched() is None


async def test_the_commit_stands_when_workers_cannot_be_told(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    engine = create_engine(engine_url(place.url, "psycopg"))
    called: list[int] = []
    with Session(engine) as session:
        session.connection()
        through = Sqlalchemy(session)
        through.after_commit(lambda: called.remove(7))
        through.after_commit(lambda: called.append(1))
        session.commit()
    engine.dispose()
    assert called == [1]
    assert "could not tell workers" in caplog.text


async def test_a_session_on_an_outer_transaction_does_not_call_its_commit_the_end(place: Place, mail: Any) -> None:
    engine = create_engine(engine_url(place.url, "psycopg"))
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            assert not Sqlalchemy(session).after_commit(lambda: None)
            session.commit()
        outer.rollback()
    engine.dispose()


async def test_a_job_is_not_completed_by_a_session_on_an_outer_transaction(engine: AsyncEngine, app: Holdfast) -> None:
    """Its commit would leave everything undecided, and the job would be taken for completed."""
    async with engine.connect() as connection:
        async with AsyncSession(connection) as session:
            caller = app.caller(session)
            await caller.begin()  # where none is open, the session's commit is that of the connection
            await caller.rollback()
        async with connection.begin(), AsyncSession(connection) as session:
            with pytest.raises(BadSetting, match=r"job\.transaction\(conn=…\) outside"):
                await app.caller(session).begin()


async def test_autocommit_is_refused(engine: AsyncEngine, app: Holdfast, mail: Any) -> None:
    async with AsyncSession(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(BadSetting, match=r"AUTOCOMMIT.*begin\(\) as session"):
            await mail.options(conn=session).enqueue(1)
    assert (await app.stats())["live"] == 0


async def test_a_scoped_async_session_is_the_one_of_its_scope(engine: AsyncEngine, app: Holdfast, mail: Any) -> None:
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    falls = await mail.options(conn=scoped).enqueue(1)
    await scoped.rollback()
    stands = await mail.options(conn=scoped).enqueue(2)
    await scoped.commit()
    await scoped.remove()
    assert not await exists(falls)
    assert await exists(stands)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_connection_that_streams_its_rows_enqueues_as_any_other(
    app: Holdfast, place: Place, mail: Any, driver: str
) -> None:
    engine = create_async_engine(engine_url(place.url, driver))
    async with engine.connect() as connection:
        await connection.execution_options(stream_results=True)
        handle = await mail.options(conn=connection).enqueue(1)
        await connection.commit()
    await engine.dispose()
    assert await exists(handle)


async def test_a_session_without_a_bind_asks_for_the_connection(app: Holdfast, place: Place, mail: Any) -> None:
    with pytest.raises(BadSetting, match="no bind"):
        await mail.options(conn=sessionmaker()()).enqueue(1)


async def test_a_session_on_a_driver_that_is_not_taken_is_told_which_are(mail: Any) -> None:
    engine = create_engine("postgresql+pg8000://x/y", module=_NoDriver())
    with pytest.raises(BadSetting, match=r"postgresql\+pg8000.*postgresql\+psycopg"):
        await mail.options(conn=Session(engine)).enqueue(1)


class _NoDriver:
    paramstyle = "format"
    __version__ = "1.31.0"

    class Error(Exception):
        pass
