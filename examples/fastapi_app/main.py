"""A shop: an order and the mail about it are written together, or neither is."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Holdfast
from holdfast.fastapi import Jobs, lifespan

URL = os.environ.get("DATABASE_URL", "sqlite:///shop.db")  # one database, for orders and for jobs

jobs = Holdfast(URL)
engine = create_async_engine(URL.replace("sqlite:", "sqlite+aiosqlite:").replace("postgresql:", "postgresql+asyncpg:"))
new_session = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    """What the shop stores."""


class Order(Base):
    """An order, and the job that sends the mail about it."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    mail: Mapped[UUID | None]


@jobs.task(queue="mail")
async def send_mail(order: int, item: str) -> str:
    return f"mail about order {order} sent: {item}"


@asynccontextmanager
async def tables(_api: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan(jobs, tables, worker=True))


async def transaction() -> AsyncIterator[AsyncSession]:
    async with new_session.begin() as session:  # commits when the route has returned, rolls back when it raised
        yield session


Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]  # ends before the answer is sent


@api.post("/orders")
async def create(item: str, session: Transaction) -> dict[str, int]:
    order = Order(item=item)
    session.add(order)
    await session.flush()
    mail = await send_mail.options(conn=session).enqueue(order.id, item)
    order.mail = mail.id
    if item == "coffee":
        raise HTTPException(409, "we have no coffee")  # and neither the order nor the job was ever there
    return {"order": order.id}


@api.get("/orders/{number}/mail")
async def mail(number: int, jobs: Jobs) -> str:
    async with new_session() as session:
        order = await session.get(Order, number)
    if order is None or order.mail is None:
        raise HTTPException(404, "there is no such order")
    return str(await jobs.job(order.mail).result(timeout=10))


@api.get("/jobs")
async def count(jobs: Jobs) -> dict[str, int]:
    stats = await jobs.stats()
    return {"live": stats["live"], "succeeded": stats["succeeded"]}
