"""A first job: declare a task, enqueue it, run it, read its result."""

import asyncio

from holdfast import BadArgs, Holdfast

app = Holdfast("sqlite:///jobs.db")


@app.task(queue="mail")
async def welcome(user_id: int, greeting: str = "hello") -> str:
    return f"{greeting}, user {user_id}"


async def main() -> None:
    async with app, app.worker(concurrency=5):
        handle = await welcome.enqueue(42)
        print(await handle.result(timeout=10))

        later = await welcome.options(delay=1, priority="high").enqueue(43, greeting="good evening")
        print(await later.state())
        print(await later.result(timeout=10))

        handles = await app.enqueue_many([welcome.call(user) for user in range(3)])
        print([await handle.result(timeout=10) for handle in handles])

        try:
            await welcome.enqueue("forty-two")  # type: ignore[arg-type]
        except BadArgs as refused:
            print(refused)

        print(await welcome(7, "plain"))  # the function itself: no job, no store

        for event in await later.events():
            print(f"  {event.event} -> {event.state}")


if __name__ == "__main__":
    asyncio.run(main())
