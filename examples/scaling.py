"""More jobs than one worker manages at a time, and a manager that starts others for them and lets them go again."""

import asyncio
import json
import os
import subprocess
import sys

from holdfast import Holdfast

MOST = 3

app = Holdfast("sqlite:///jobs.db")


@app.task()
async def resize(picture: str) -> int:  # noqa: ARG001  nothing is done to it
    await asyncio.sleep(0.1)  # as long as a small picture takes
    return os.getpid()


def holdfast(*words: str) -> subprocess.Popen[str]:
    """Run a command of Holdfast's."""
    return subprocess.Popen([sys.executable, "-m", "holdfast", *words], stdout=subprocess.PIPE, text=True)  # noqa: S603  our own


def decided() -> list[int]:
    """Return the numbers of workers that the manager decided on, oldest first."""
    with holdfast("audit", "--action", "scale", "--json", "--url", "sqlite:///jobs.db") as asked:
        lines = json.loads(asked.communicate()[0])["lines"]
    return [int(line["targets"][0].split()[0]) for line in reversed(lines)]


async def main() -> None:
    size = ("--default-count", "1", "--max-count", str(MOST), "--concurrency", "2")
    pace = ("--interval", "100ms", "--waiting-target", "500ms", "--scale-down-after", "1s")
    async with app:
        with holdfast("manager", "scaling:app", *size, *pace) as manager:
            try:
                workers: set[int] = set()
                while len(workers) < MOST:
                    handles = await app.enqueue_many([resize.call(f"{number}.png") for number in range(50)])
                    workers |= {await handle.result(timeout=60) for handle in handles}
                print(f"{len(workers)} workers took part")
                while (numbers := decided())[-1] > 1:  # noqa: ASYNC110  another process decides
                    await asyncio.sleep(0.1)
            finally:
                manager.terminate()
        print(f"from {numbers[0]} to {max(numbers)} and back to {numbers[-1]}; the manager ended with {manager.returncode}")


if __name__ == "__main__":
    asyncio.run(main())
