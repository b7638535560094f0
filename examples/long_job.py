"""A long job: stages, progress, checkpoints; what a second attempt need not do again; a time-out."""

import asyncio
import time

from holdfast import Holdfast, Job, JobFailed, Retry

app = Holdfast("sqlite:///jobs.db")
CHAPTERS = ("one", "two", "three")


@app.task(lease=60, timeout=600, retry=Retry(initial=0.2))
async def translate(book: str, *, job: Job) -> int:
    with job.stage("read"):
        job.progress(5, f"reading {book}")
    with job.stage("translate"):
        for index, chapter in enumerate(CHAPTERS):
            if job.done(chapter):
                print(f"attempt {job.attempt}: {chapter} is done already")
                continue
            await asyncio.sleep(0.1)
            if chapter == "three" and job.attempt == 1:
                raise ConnectionError("the translator hung up")
            print(f"attempt {job.attempt}: {chapter}")
            await job.checkpoint(chapter, data={"words": 1000 + index})
            job.progress(10 + 90 * (index + 1) / len(CHAPTERS))
    return sum(job.data(chapter)["words"] for chapter in CHAPTERS)


@app.task(timeout=0.5, retry=1)
def search(*, job: Job) -> str:  # no async: it runs in a thread, which can only be asked to stop
    while True:
        job.abort.check()
        time.sleep(0.05)


async def main() -> None:
    async with app, app.worker():
        book = await translate.enqueue("Momo")
        print(await book.result(timeout=10), "words")
        report = await book.report()
        print([f"{stage.name} ({stage.attempt}): {'failed' if stage.failed else 'done'}" for stage in report.stages])

        endless = await search.enqueue()
        try:
            await endless.result(timeout=10)
        except JobFailed as failed:
            print(failed.error)


if __name__ == "__main__":
    asyncio.run(main())
