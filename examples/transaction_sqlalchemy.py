"""An order and the mail about it, in one transaction of an AsyncSession."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Handle, Holdfast, JobNotFound

app = Holdfast()  # on the database that HOLDFAST_URL names: the one in which the orders are
engine = create_async_engine(app.url.replace("postgresql:", "postgresql+asyncpg:"))
new_session = async_sessionmaker(engine)


class Base(DeclarativeBase):
    """What the shop stores."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@app.task(queue="mail")
async def confirm(order: int) -> str:
    async with new_session() as session:
        found = await session.get_one(Order, order)
    return f"order {order} is confirmed: {found.item}"


async def place_order(session: AsyncSession, item: str) -> Handle[str]:
    order = Order(item=item)
    session.add(order)
    await session.flush()  # so that it has its id
    return await confirm.options(conn=session).enqueue(order.id)


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with app.worker():
        async with new_session.begin() as session:  # commits at its end
            handle = await place_order(session, "lamp")
        print(await handle.result(timeout=10))
        async with new_session() as session:
            undone = await place_order(session, "moon")
            await session.rollback()  # neither the order nor the job was ever there
        try:
            await undone.state()
        except JobNotFound as error:
            print(error)
    await engine.dispose()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
