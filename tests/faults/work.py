"""A worker process: `python -m tests.faults.work MODULE OPTIONS`, where the module has an `app` and the options are JSON.

With the option `gate` it begins when the test opens that gate: many begin at the same moment.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import logging
import os
import signal
import sys

from tests.faults.tracing import note, opened

PR_SET_PDEATHSIG = 1


def main() -> None:
    module, options, parent = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    die_with_parent(parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(work(module, options))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the test run ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the test is gone")


async def work(module: str, options: dict[str, object]) -> None:
    app = importlib.import_module(module).app
    if (gate := options.pop("gate", None)) is not None:
        note("waits")
        await opened(str(gate))
    await app.worker(**options).serve()


if __name__ == "__main__":
    main()
