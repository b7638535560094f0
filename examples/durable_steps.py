"""One function, several attempts: what has a name is done once, and waiting holds no slot."""

import asyncio

from holdfast import Holdfast, Job, Retry

app = Holdfast("sqlite:///jobs.db")


async def charge(order: int) -> str:
    print(f"charged for order {order}")
    return f"receipt {order}"


def pack(order: int) -> int:
    print(f"packed order {order}")
    return 3


@app.task(retry=Retry(max_attempts=3, initial=0.1))
async def fulfil(order: int, *, job: Job) -> str:
    paid = await job.step("charge", charge, order)
    boxes = await job.step("pack", pack, order)
    if job.failures == 0:
        raise ConnectionError("the courier's system is down")
    await job.sleep(0.5)
    courier = await job.wait_for(f"picked up:{order}", timeout=3600, type=str)
    return f"{boxes} boxes with {courier}, {paid}, in attempt {job.attempt}"


async def main() -> None:
    async with app, app.worker(concurrency=1):
        job = await fulfil.enqueue(7)
        await app.signal("picked up:7", "the red van")
        print(await job.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main())
