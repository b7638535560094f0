"""An order and the mail about it, in one transaction on an asyncpg connection."""

import asyncio

import asyncpg

from holdfast import Handle, Holdfast

app = Holdfast()  # on the database that HOLDFAST_URL names: the one in which the orders are


@app.task(queue="mail")
async def confirm(order: int) -> str:
    return f"order {order} is confirmed"


async def place_order(connection: "asyncpg.Connection[asyncpg.Record]", item: str) -> Handle[str]:
    async with connection.transaction():
        order = await connection.fetchval("INSERT INTO orders (item) VALUES ($1) RETURNING id", item)
        handle = await confirm.options(conn=connection).enqueue(order)
        if item == "moon":
            raise ValueError("we do not sell the moon")  # neither the order nor the job was ever there
    return handle  # both are there, and a worker has been told


async def main() -> None:
    connection = await asyncpg.connect(app.url)
    await connection.execute("CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY, item text)")
    async with app.worker():
        handle = await place_order(connection, "lamp")
        print(await handle.result(timeout=10))
        try:
            await place_order(connection, "moon")
        except ValueError as error:
            print(error)
        orders = await connection.fetchval("SELECT count(*) FROM orders")
        print("orders:", orders, "jobs:", (await app.stats())["succeeded"])
    await connection.close()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
