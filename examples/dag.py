"""A graph of jobs: each waits for those it needs, and is handed what they gave."""

import asyncio

from holdfast import Holdfast, Job

app = Holdfast("sqlite:///jobs.db")


@app.task()
async def fetch(source: str) -> list[int]:
    return {"sales": [3, 5, 8], "costs": [2, 2, 3]}[source]


@app.task()
async def sum_up(*, job: Job) -> int:
    (numbers,) = job.results(fetch)
    return sum(numbers)


@app.task()
async def highest(*, job: Job) -> int:
    return max(max(numbers) for numbers in job.results_of(fetch))


@app.task()
async def report(title: str, *, job: Job) -> str:
    earned, spent, top = job.results(sum_up, sum_up, highest)  # in the order of after=, each with its own type
    return f"{title}: earned {earned - spent}, highest figure {top}"


async def main() -> None:
    async with app:
        sales, costs = await app.group([fetch.call("sales"), fetch.call("costs")])
        earned = await sum_up.options(after=sales).enqueue()
        spent = await sum_up.options(after=costs).enqueue()
        top = await highest.options(after=[sales, costs]).enqueue()
        last = await report.options(after=[earned, spent, top]).enqueue("May")
        print("before a worker runs:", await last.state(), "behind", len((await last.view()).waits_for))
        async with app.worker():
            print(await last.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
