"""From blocking code: a WSGI application that enqueues, and a worker that runs functions which block."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.util import setup_testing_defaults

from holdfast import Holdfast

app = Holdfast("sqlite:///jobs.db")


@app.task(timeout=30)
def resize(picture: str, width: int) -> str:  # blocks, so it runs in a thread of the worker
    time.sleep(0.1)
    return f"{picture} at {width} px"


def web(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer `/resize` with the id of a job, and `/jobs/<id>` with its state."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/resize":
        return [str(resize.enqueue_sync("cat.jpg", 640).id).encode()]
    job_id = environ["PATH_INFO"].rpartition("/")[2]
    return [app.job(job_id).state_sync().encode()]


def get(path: str) -> str:
    """Ask the application as a server would."""
    environ: WSGIEnvironment = {}
    setup_testing_defaults(environ)
    environ["PATH_INFO"] = path
    return b"".join(web(environ, started)).decode()


def started(_status: str, _headers: list[tuple[str, str]], _error: object = None, /) -> Callable[[bytes], object]:
    """Stand in for the server's own function."""
    return bytes


async def work(until: threading.Event) -> None:
    async with app.worker(concurrency=4):
        await asyncio.to_thread(until.wait)


def main() -> None:
    done = threading.Event()
    worker = threading.Thread(target=lambda: asyncio.run(work(done)))  # in earnest: holdfast worker sync_web:app
    job_id = get("/resize")
    print(get(f"/jobs/{job_id}"))
    worker.start()
    print(app.job(job_id).result_sync(timeout=10))
    print(get(f"/jobs/{job_id}"))
    done.set()
    worker.join()
    app.close_sync()


if __name__ == "__main__":
    main()
