"""Two tasks for a worker in another terminal, and the program that enqueues them."""

import asyncio

from holdfast import Holdfast, Job, Retry

app = Holdfast("sqlite:///jobs.db")


@app.task()
async def welcome(name: str) -> str:
    return f"welcome, {name}"


@app.task(lease=3, retry=Retry(initial=1))
async def count(to: int, *, job: Job) -> str:
    begin = job.data("counted", 0)  # what an attempt before this one got to
    for number in range(begin + 1, to + 1):
        await asyncio.sleep(1)
        job.log.info("%d of %d", number, to)
        await job.checkpoint("counted", data=number)
    return f"counted from {begin + 1} to {to} in attempt {job.attempt}"


async def main() -> None:
    async with app:
        greeting = await welcome.enqueue("Ada")
        counting = await count.enqueue(10)
        print(await greeting.result(timeout=60))
        print(await counting.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main())
