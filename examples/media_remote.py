"""An encoder without a database and without a storage: it reads its source and publishes its result through the server."""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.applications import Starlette

from holdfast import Holdfast, Job
from holdfast.server.asgi import create_server
from holdfast_media.storage import Attempt, storage_from
from holdfast_media.transfer import with_transfer

STORE = "sqlite:///jobs.db"

app = Holdfast(STORE)


@app.task(queue="video")
def encode(source: str, output: str, *, job: Job) -> str:
    storage = storage_from(os.environ["MEDIA_STORAGE"], cache=Path("cache"))
    files = storage.bind(Attempt.of(job), stop=lambda: job.abort.reason)
    with files.lend(source) as film, tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "loud.txt"
        made.write_text(film.read_text().upper())
        stored = files.put(f"{output}/loud.txt", made)
    storage.close()
    return f"{stored.key}, {stored.size} bytes, {'made' if stored.created else 'found'}"


def application() -> Starlette:
    """Return the server with the files beside it, for `uvicorn --factory media_remote:application`."""
    return with_transfer(create_server(app), storage_from("./media"), Path("uploads"))


@contextmanager
def serving() -> Iterator[str]:
    command = [sys.executable, "-m", "uvicorn", "--factory", "media_remote:application", "--no-access-log", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:  # noqa: S603  our own command
        lines = iter(running.stderr) if running.stderr else iter(())
        found = next(match for line in lines if (match := re.search(r"http://\S+:\d+", line)))
        try:
            yield found[0]
        finally:
            running.terminate()
            running.communicate()


def make_key() -> str:
    """Make a key that only works: who may also enqueue could name any file in the args of a job."""
    command = [sys.executable, "-m", "holdfast", "keys", "add", "encoder", "--role", "worker", "--queues", "video"]
    command += ["--actions", "work,get", "--url", STORE]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  our own command


async def main() -> None:
    async with app:  # beside the database, as a web application does
        handles = [await encode.enqueue("sources/film.txt", "encoded/film") for _ in range(2)]
    key = make_key()
    with serving() as url, app.override(url, key=key):
        os.environ |= {"MEDIA_STORAGE": url, "HOLDFAST_KEY": key}  # what the encoder far away is told
        async with app, app.worker(concurrency=1):
            for handle in handles:
                print(await handle.result(timeout=30))


if __name__ == "__main__":
    Path("film.txt").write_text("a quiet film")
    storage_from("./media").put("sources/film.txt", Path("film.txt"))
    asyncio.run(main())
    print(Path("media/encoded/film/loud.txt").read_text())
