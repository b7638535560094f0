"""A folder whose files become jobs: each once, however often somebody looks."""

import asyncio
import subprocess
import sys
from pathlib import Path

from holdfast import Holdfast

app = Holdfast("sqlite:///films.db")


@app.task(name="transcode")
async def transcode(path: str) -> str:
    return f"transcoded {Path(path).name}"


def look() -> list[str]:
    """Look once, as `holdfast watch incoming --task transcode` does all the time; return the ids of the new jobs."""
    command = [sys.executable, "-m", "holdfast", "watch", "incoming", "--task", "transcode", "--url", "sqlite:///films.db"]
    command += ["--pattern", "*.mov", "--settle", "200ms", "--once"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  our own program
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def main() -> None:
    incoming = Path("incoming")
    incoming.mkdir()
    (incoming / "one.mov").write_text("a film")
    (incoming / "two.mov").write_text("another film")
    (incoming / "three.mov.part").write_text("still being copied")
    first = look()
    print("there before:", len(first))
    print("when somebody looks again:", len(look()))

    (incoming / "three.mov.part").rename(incoming / "three.mov")
    (incoming / "one.mov").write_text("a film, cut anew")
    second = look()
    print("new or changed:", len(second))
    asyncio.run(work(first + second))


async def work(job_ids: list[str]) -> None:
    async with app.worker():
        for job_id in job_ids:
            print(await app.job(job_id).result(timeout=30))


if __name__ == "__main__":
    main()
