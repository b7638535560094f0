"""A process that tries every write under leases it is given: `python -m tests.faults.machine.late LEASES`, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import msgspec

from holdfast import connect
from holdfast.core.lease import Lease
from tests.faults.holder import write_everything
from tests.faults.tracing import URL


async def main() -> None:
    store = connect(os.environ[URL])
    await store.open()
    try:
        answers = await write_everything(store, msgspec.json.decode(sys.argv[1], type=list[Lease]))
    finally:
        await store.close()
    print(json.dumps(answers))  # noqa: T201  for the test


if __name__ == "__main__":
    asyncio.run(main())
