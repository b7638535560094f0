"""Jobs, and a manager that runs as many workers for them as they need."""

import asyncio
import sys

from holdfast import Holdfast

app = Holdfast("sqlite:///jobs.db")


@app.task()
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def main() -> None:
    words = ("manager", "scaling:app", "--default-count", "1", "--max-count", "3", "--concurrency", "5", "--interval", "200ms")
    async with app:
        handles = await app.enqueue_many([nap.call(0.1) for _ in range(300)])
        manager = await asyncio.create_subprocess_exec(sys.executable, "-m", "holdfast", *words)
        for handle in handles:
            await handle.result(timeout=60)
        print(f"{len(handles)} jobs have run")
        manager.terminate()
        print(f"the manager ended with code {await manager.wait()}")


if __name__ == "__main__":
    asyncio.run(main())
