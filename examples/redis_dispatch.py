"""Jobs on PostgreSQL, told of through Redis: HOLDFAST_URL and HOLDFAST_REDIS_URL say where both are."""

import asyncio

from holdfast import Holdfast

app = Holdfast()  # with a Redis in the settings, dispatch is "hybrid" unless HOLDFAST_DISPATCH says otherwise


@app.task()
async def welcome(user: int) -> str:
    return f"welcome, user {user}"


async def main() -> None:
    async with app, app.worker():
        handles = [await welcome.enqueue(user) for user in range(3)]
        for handle in handles:
            print(await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
