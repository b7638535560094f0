"""Keys, expiry and caps: at most one of a kind, not too late, not too many."""

import asyncio

from holdfast import Holdfast, JobCanceled, QueueFull

app = Holdfast("sqlite:///jobs.db")
app.queue("reports", max_depth=3)


@app.task(key="index:{document}")
async def index(document: int, version: int = 1) -> str:
    return f"document {document}, version {version}"


@app.task(queue="reports")
async def report(number: int) -> int:
    return number


async def keys() -> None:
    first = await index.enqueue(7)
    again = await index.enqueue(7)
    print("skip:", again.created, again.id == first.id)

    newer = await index.options(on_conflict="replace").enqueue(7, version=2)
    print("replace:", newer.created, await first.state())

    calm = index.options(on_conflict="debounce", delay=0.3)  # each one cancels the one before, and waits anew
    *_, last = [await calm.enqueue(7, version=version) for version in (3, 4, 5)]
    async with app.worker():
        print("debounce:", await last.result(timeout=10))


async def limits() -> None:
    reports = [await report.enqueue(number) for number in range(3)]
    try:
        await report.enqueue(3)
    except QueueFull as full:
        print("full:", full)

    late = await index.options(expires_in=0.2).enqueue(8)
    await asyncio.sleep(0.4)  # no worker was there in time
    async with app.worker():
        try:
            await late.result(timeout=10)
        except JobCanceled as canceled:
            print("expired:", canceled.code)
        print("reports:", [await handle.result(timeout=10) for handle in reports])


async def main() -> None:
    async with app:
        await keys()
        await limits()


if __name__ == "__main__":
    asyncio.run(main())
