"""A worker process: `python -m lab.soak.worker NAME QUEUES PARENT`, where the queues are a list with commas, or `all`."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Final

from holdfast import StoreUnavailable
from lab.soak import pulse
from lab.soak.tasks import app
from tests.faults.work import die_with_parent

if TYPE_CHECKING:
    from uuid import UUID

UNREACHABLE: Final = 75
"""The exit code of a worker that could not begin, because the store did not answer: it is started anew."""


def main() -> None:
    """Serve until asked to stop."""
    name, queues, parent = sys.argv[1:]
    die_with_parent(int(parent))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    pulse.beat()
    begun: list[UUID] = []
    app.on_worker(lambda _, worker_id: begun.append(worker_id))
    worker = app.worker(
        name=name,
        queues=None if queues == "all" else queues.split(","),
        concurrency=10,
        prefetch=10,
        shutdown_timeout=5.0,
        exit_when_blocked=True,
    )
    try:
        asyncio.run(worker.serve())
    except StoreUnavailable as error:
        if begun:  # from then on an outage must not end it
            raise
        print(f"it could not begin: {error}", file=sys.stderr)
        sys.exit(UNREACHABLE)


if __name__ == "__main__":
    main()
