"""Waiting for people and other services: a job that somebody else completes, and a job that waits for a signal."""

import asyncio

from holdfast import Holdfast, Job, JobFailed

app = Holdfast("sqlite:///jobs.db")


@app.task(executor="outside")
async def approve(document: str) -> bool:
    """Wait until somebody has read the document: no worker runs this."""
    raise NotImplementedError


@app.task()
async def publish(document: str, *, job: Job) -> str:
    (approved,) = job.results(approve)
    return f"{document} is {'published' if approved else 'put aside'}"


@app.task()
async def deliver(order: int, *, job: Job) -> str:
    paid: dict[str, int] = await job.wait_for(f"paid:{order}", timeout=3600)
    return f"order {order} delivered, {paid['amount']} paid"


async def people() -> None:
    approval = await approve.enqueue("the report")
    published = await publish.options(after=approval).enqueue("the report")
    print("approval:", await approval.state(), "- publishing:", await published.state())

    done = await app.complete(approval.id, result=True, by="anna")
    print("anna:", done.applied, done.state)
    late = await app.fail(approval.id, "too long", by="bert")
    print("bert:", late.applied, "- it was", late.by)
    print(await published.result(timeout=10))

    refused = await approve.enqueue("the poem")
    await app.fail(refused.id, "it does not rhyme", code="REFUSED", by="bert")
    try:
        await refused.result(timeout=10)
    except JobFailed as failed:
        print(failed.code, "-", failed.error)


async def services() -> None:
    first, second = await deliver.enqueue(1), await deliver.enqueue(2)
    await app.signal("paid:2", {"amount": 20})  # there is one slot, and the first has given it back
    print(await second.result(timeout=10))
    print("emitted:", await app.signal("paid:1", {"amount": 10}))
    print("emitted again:", await app.signal("paid:1", {"amount": 999}))
    print(await first.result(timeout=10))


async def main() -> None:
    async with app, app.worker(concurrency=1):
        await people()
        await services()


if __name__ == "__main__":
    asyncio.run(main())
