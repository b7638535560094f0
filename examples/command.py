"""Programs as tasks: the function says what to run, the worker runs it and keeps what it writes."""

import asyncio
import re
import sys

from holdfast import Command, Holdfast, JobFailed

app = Holdfast("sqlite:///jobs.db")

ENCODER = """
import sys
for frame in range(1, 5):
    print(f"frame {frame}/4", flush=True)
sys.exit(int(sys.argv[1]))
"""


def percent(line: str) -> float | None:
    found = re.match(r"frame (\d+)/(\d+)", line)
    return 100 * int(found[1]) / int(found[2]) if found else None


@app.task(executor="command", timeout=3600, retry=1)
def encode(exit_code: int) -> Command:
    return Command([sys.executable, "-c", ENCODER, str(exit_code)], progress=percent, fatal=frozenset({2}))


async def main() -> None:
    async with app, app.worker():
        film = await encode.enqueue(0)
        result = await film.result(timeout=30)
        print(result.exit_code, result.stdout.split("\n"))
        print([line.message for line in await film.logs()])
        try:
            await (await encode.enqueue(2)).result(timeout=30)
        except JobFailed as failed:
            print(failed.code)


if __name__ == "__main__":
    asyncio.run(main())
