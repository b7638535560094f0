"""A worker without a database: it takes its jobs from a server over HTTP, and runs them like any other."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import Holdfast, Job

STORE = "sqlite:///jobs.db"
HOLDFAST = [sys.executable, "-m", "holdfast"]

app = Holdfast(STORE)


@app.task()
async def resize(picture: str, width: int, *, job: Job) -> str:
    job.progress(50, "half of it")
    return f"{picture} is {width} wide"


@contextmanager
def server() -> Iterator[str]:
    """Serve the store, as `holdfast server` does beside the database."""
    command = [*HOLDFAST, "server", "--url", STORE, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:  # noqa: S603  our own command
        line = running.stderr.readline() if running.stderr else ""
        found = re.search(r"http://\S+:\d+", line)
        try:
            if found is None:
                raise RuntimeError(line)
            yield found[0]
        finally:
            running.terminate()


def make_key() -> str:
    """Make a key for workers, beside the database."""
    command = [*HOLDFAST, "keys", "add", "gallery", "--role", "worker", "--url", STORE]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  our own command


async def main() -> None:
    key = make_key()
    with server() as url, app.override(url, key=key):
        async with app, app.worker(concurrency=4):  # as `holdfast worker gallery:app --server … --key …` far away
            handles = [await resize.enqueue(name, 320) for name in ("cat.png", "dog.png")]
            for handle in handles:
                print(await handle.result(timeout=30))
            print("run by attempt", (await handles[0].view()).attempt)


if __name__ == "__main__":
    asyncio.run(main())
