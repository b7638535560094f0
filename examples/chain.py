"""A chain: an order that is checked, charged in several tries, and shipped, one step after the other."""

import asyncio

from holdfast import Holdfast, Job

app = Holdfast("sqlite:///jobs.db")
AT_ONCE = 100


@app.task(continues_with=["charge", "refuse"])
async def check(order: int, amount: int, *, job: Job) -> str:
    if amount <= 0:
        return job.continue_with(refuse, order, reason="nothing to pay")
    return job.continue_with(charge, order, amount)


@app.task(continues_with=["charge", "ship"])
async def charge(order: int, amount: int, *, job: Job) -> str:
    if amount > AT_ONCE:  # a loop: once more, with the rest
        return job.continue_with(charge.options(delay=0.05), order, amount - AT_ONCE)
    return job.continue_with(ship.options(tags=["shipping"]), order)


@app.task()
async def ship(order: int) -> str:
    return f"order {order} is on its way"


@app.task()
async def refuse(order: int, reason: str) -> str:
    return f"order {order} is refused: {reason}"


async def main() -> None:
    async with app, app.worker():
        chain = await check.start_chain(7, 250)
        print(await chain.result(timeout=10))
        print(" -> ".join(step.task.rpartition(".")[2] for step in await chain.steps()))

        refused = await check.enqueue(8, 0)  # a job that continues becomes a chain, and its handle follows
        print(await refused.result(timeout=10))

        view = await chain.view()
        print(f"{view.steps} steps, {view.state}; {len((await app.chains(task=check)).chains)} chains")


if __name__ == "__main__":
    asyncio.run(main())
