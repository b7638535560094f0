"""Running a worker in this process: its logs, its event loop."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import math
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.cli.embedded import embedding
from holdfast.cli.loading import another_store, unused_lease
from holdfast.runtime.counters import CLAIMED, MemoryCounters
from holdfast.runtime.logs import fields_of, job_of

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from holdfast.app import Holdfast
    from holdfast.config import Loaded

logger = logging.getLogger("holdfast.worker")


def run_worker(app: Holdfast, loaded: Loaded, *, name: str | None = None) -> None:
    """Serve until a signal ends it. First SIGTERM or Ctrl-C: finish what runs; second: abort."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(app, loaded, name))


async def _serve(app: Holdfast, loaded: Loaded, name: str | None) -> None:
    settings = loaded.settings
    counters = _Counted(settings.max_jobs)
    worker = app.worker(
        concurrency=settings.concurrency,
        queues=settings.queues,
        name=name,
        capabilities=settings.capabilities or (),
        prefetch=settings.prefetch,
        retry_share=settings.retry_share,
        poll=settings.poll,
        shutdown_timeout=settings.shutdown_timeout,
        retention=loaded.retention,
        health=settings.health,
        exit_when_blocked=True,  # this process does nothing else: a new one serves better than a stuck one
        counters=counters,
    )
    counters.enough = worker.finish
    if (around := embedding.get()) is None or not around.keeps_logs:
        set_up_logs(level=settings.log_level, style=settings.log_format, worker=worker.options.name)
    for warning in (another_store(app, loaded) if settings.server is None else None, unused_lease(app, loaded)):
        if warning is not None:
            logger.warning("%s", warning)
    await worker.serve()


class _Counted(MemoryCounters):
    """Counts what a worker claims, and says when that is enough: all of it is run, and then the worker ends."""

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self.enough: Callable[[], None] = lambda: None
        self._left = math.inf if most is None else most

    def add(self, name: str, amount: int = 1, *, label: str = "") -> None:
        """Count something. Claims are counted on the worker's event loop."""
        super().add(name, amount, label=label)
        if name == CLAIMED:
            self._left -= amount
            if self._left <= 0:
                self.enough()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415  where present

    return uvloop.new_event_loop


def set_up_logs(*, level: str, style: str, worker: str) -> None:
    """Send what is logged to standard error: lines for people, or one JSON object per line.

    What a record carries besides its message (job, task, attempt, …) becomes fields, and so does the worker's name.
    """
    import structlog  # noqa: PLC0415  only workers log

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if style == "json":
        last: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        last = [structlog.dev.ConsoleRenderer(colors=_coloured(), exception_formatter=structlog.dev.plain_traceback)]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[partial(_add_fields, worker), structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # which would write a line for every request of a remote worker
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _add_fields(worker: str, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the worker, what a record carries besides its message, and the job in whose context it was made."""
    record = event["_record"]
    fields = {name: value for name, value in fields_of(record).items() if not name.startswith("_") and name not in event}
    event.update(fields, worker=worker)
    if (job := job_of(record)) is not None:
        event.update(job_id=str(job.id), task=job.task, attempt=job.attempt)
    return event


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")
