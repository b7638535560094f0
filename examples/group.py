"""A group: many jobs at once, awaited together, and one job that waits for all of them."""

import asyncio

from holdfast import Fatal, Holdfast, Job, JobFailed

app = Holdfast("sqlite:///jobs.db")


@app.task()
async def count(text: str) -> int:
    if not text:
        raise Fatal("an empty page", code="EMPTY")
    return len(text.split())


@app.task()
async def total(*, job: Job) -> int:
    return sum(job.results_of(count))


@app.task()
async def summary(*, job: Job) -> str:
    return ", ".join(f"{blocker.state}" for blocker in job.blockers)


async def main() -> None:
    pages = ["one two", "three four five", "six"]
    async with app, app.worker():
        group = await app.group([count.call(page) for page in pages])
        print("counts:", await group.results(timeout=10))

        again = await app.group([count.call(page) for page in pages])
        words = await total.options(after=again).enqueue()
        print("total:", await words.result(timeout=10))

        broken = await app.group([count.call("seven"), count.call("")])
        strict = await total.options(after=broken).enqueue()
        lenient = await summary.options(after=broken, on_blocker_failure="run").enqueue()
        try:
            await strict.result(timeout=10)
        except JobFailed as failed:
            print("strict:", failed.code)
        print("lenient:", await lenient.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
