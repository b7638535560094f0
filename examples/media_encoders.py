"""Encoders without a database and a storage: a film is encoded by a process that has a URL and a key, and nothing else."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.applications import Starlette

from holdfast import Holdfast
from holdfast.server import create_server
from holdfast_media import Media, Video
from holdfast_media.ffmpeg import find_ffmpeg
from holdfast_media.transfer import with_transfer

STORE = "sqlite:///jobs.db"

app = Holdfast(STORE)
media = Media(app, reserve=0, pictures=False)  # where its files are is said by HOLDFAST_MEDIA_STORAGE


def application() -> Starlette:
    """Return the server with the files beside it, for `uvicorn --factory media_encoders:application`."""
    return with_transfer(create_server(app), media.storage, Path("uploads"), grants=media.grants)


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    whole = [sys.executable, "-m", *command]
    with subprocess.Popen(whole, env=os.environ | environment, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603  our own
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


def address_of(server: subprocess.Popen[str]) -> str:
    lines = iter(server.stderr) if server.stderr else iter(())
    return next(match[0] for line in lines if (match := re.search(r"http://\S+:\d+", line)))


def make_key() -> str:
    """Make a key that only works: who may also enqueue could name any file in the args of a job."""
    command = [sys.executable, "-m", "holdfast", "keys", "add", "encoder", "--role", "worker", "--queues", "media-encode"]
    command += ["--actions", "work,get", "--url", STORE]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  our own command


def ffmpeg(*arguments: str) -> str:
    command = [str(find_ffmpeg()), "-v", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603  our own command


async def ended(video: Video) -> Video:
    while video.newest is None or video.newest.active:
        await asyncio.sleep(0.1)
        video = await media.library.get(video.id)
    return video


async def main() -> None:
    key = make_key()
    with running("uvicorn", "--factory", "media_encoders:application", "--no-access-log", "--port", "0") as server:
        url = address_of(server)
        encoder = ("holdfast", "worker", "media_encoders:app", "--server", url, "--queues", "media-encode", "--name", "far")
        with running(*encoder, HOLDFAST_KEY=key, HOLDFAST_MEDIA_STORAGE=url, HOLDFAST_MEDIA_SCRATCH="far"):
            async with app.worker(queues=["media"], name="near"), asyncio.timeout(60):
                video = await ended(await media.library.add("film.mp4", copy=True))
    if video.newest is not None:
        grid = await media.grid(video.newest)
        print(
            f"{video.title} is {video.state}; its chunks were encoded by {', '.join(cell.worker or '' for cell in grid.cells)}"
        )
    shown = ffmpeg("-i", f"media/videos/{video.id}/master.m3u8", "-map", "0:v:0", "-f", "framemd5", "-")
    print(f"{sum(not line.startswith('#') for line in shown.splitlines())} frames play")
    await media.close()
    await app.close()


if __name__ == "__main__":
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=320x180:rate=10:duration=4", "-pix_fmt", "yuv420p", "film.mp4")
    asyncio.run(main())
