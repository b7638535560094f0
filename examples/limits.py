"""Limits: so many at once and so many a second, over all workers; by key, with turns, and changed while jobs run."""

import asyncio
import time
from collections import Counter

from holdfast import Holdfast, Limit

app = Holdfast("sqlite:///jobs.db")
app.queue("reports", limit=Limit(3))

running: Counter[str] = Counter()
most: Counter[str] = Counter()
order: list[str] = []


@app.task(limit=Limit(2, key="{tenant}", scope="tenants"))
async def render(tenant: str, page: int) -> int:
    order.append(tenant)
    running[tenant] += 1
    most[tenant] = max(most[tenant], running[tenant])
    await asyncio.sleep(0.05)
    running[tenant] -= 1
    return page


@app.task(limit=Limit(rate=600, per=60, burst=2, cost=lambda tokens: tokens))
async def ask_model(tokens: float) -> float:
    return tokens


async def keys() -> None:
    await app.enqueue_many([render.call("acme", page) for page in range(8)])
    handles = await app.enqueue_many([render.call("globex", page) for page in range(4)])
    async with app.worker(concurrency=8):
        for handle in handles:
            await handle.result(timeout=60)
    print("at once:", dict(sorted(most.items())))
    print("the first four:", sorted(order[:4]))


async def rates() -> None:
    handles = await app.enqueue_many([ask_model.call(2) for _ in range(4)])
    began = time.monotonic()
    async with app.worker():
        for handle in handles:
            await handle.result(timeout=60)
    print(f"eight tokens, of which two were there: at least {min(time.monotonic() - began, 0.6):.1f} s")


async def change() -> None:
    await app.set_limit(scope="tenants", key="acme", most=4, weight=3, by="ann")
    for limit in await app.limits():
        print(f"{limit.name}: {limit.rule}" + (f", set by {limit.override_by}" if limit.override else ""))
    await app.clear_limit(scope="tenants", key="acme")


async def main() -> None:
    async with app:
        await keys()
        await rates()
        await change()


if __name__ == "__main__":
    asyncio.run(main())
