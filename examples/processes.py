"""Functions that may hang or crash: each attempt in a child process, which is killed at its time-out."""

import asyncio
import os
import signal

from holdfast import Holdfast, Job, JobFailed, Retry

app = Holdfast("sqlite:///jobs.db")
AT_ONCE = Retry(max_attempts=2, initial=0)


@app.task(executor="process", retry=AT_ONCE)
def digest(text: str, rounds: int) -> int:
    value = 0
    for _ in range(rounds):
        value = (value * 31 + sum(text.encode())) % 1_000_003
    return value


@app.task(executor="process", retry=AT_ONCE)
def crash_once(*, job: Job) -> str:
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return f"done in attempt {job.attempt}"


@app.task(executor="process", retry=AT_ONCE)
def crash_always() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process", timeout=1, retry=1)
def hang() -> None:
    while True:
        pass


async def main() -> None:
    async with app, app.worker(concurrency=2):
        print(await (await digest.enqueue("holdfast", 100_000)).result(timeout=30))
        print(await (await crash_once.enqueue()).result(timeout=30))
        for doomed in (await crash_always.enqueue(), await hang.enqueue()):
            try:
                await doomed.result(timeout=30)
            except JobFailed as failed:
                print(f"{failed.code}: {failed.error}")


if __name__ == "__main__":
    asyncio.run(main())
