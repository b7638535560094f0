"""Running a manager in this process: its options, and the command line of its workers."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.cli.embedded import embedding
from holdfast.cli.loading import another_store, unused_lease
from holdfast.cli.working import set_up_logs
from holdfast.connect import connect
from holdfast.core.scaling import Scaling
from holdfast.fleet.manager import Manager
from holdfast.fleet.options import ManagerOptions
from holdfast.fleet.rehearsal import Rehearsal

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.config import Loaded

logger = logging.getLogger("holdfast.manager")

UNHURRIED: Final = "365d"
"""What a worker gives its jobs to end: it is the manager that decides when they are aborted, and scaling down never does."""


def run_manager(app: Holdfast, loaded: Loaded, *, name: str | None = None) -> None:
    """Manage until a signal ends it. First SIGTERM or Ctrl-C: let all workers finish; second: abort."""
    settings, options = loaded.settings, _options(loaded, name)
    if (around := embedding.get()) is None or not around.keeps_logs:
        set_up_logs(level=settings.log_level, style=settings.log_format, worker=f"manager {options.name}")
    for warning in (another_store(app, loaded), unused_lease(app, loaded), _crowded(loaded)):
        if warning is not None:
            logger.warning("%s", warning)
    # not on uvloop: the processes are started by this very thread, whose end is theirs
    asyncio.run(Manager(app.world(), options, partial(worker_command, loaded)).serve())


def rehearse(app: Holdfast, loaded: Loaded, *, name: str | None = None) -> None:
    """Print what a manager would decide, until Ctrl-C."""
    store = connect(app.url, create=False)  # the app's own would make what is not there
    asyncio.run(Rehearsal(app.world(), store, _options(loaded, name), partial(print, flush=True)).run())


def worker_command(loaded: Loaded, name: str, max_jobs: int | None) -> list[str]:
    """Return what starts a worker of this name: as it stands in the settings, which it reads too, and in our own flags."""
    settings, around = loaded.settings, embedding.get()
    program = (sys.executable, "-m", "holdfast") if around is None else around.command
    flags: dict[str, object] = {
        "--name": name,
        "--concurrency": settings.concurrency,
        "--prefetch": settings.prefetch,
        "--retry-share": settings.retry_share,
        "--queues": None if settings.queues is None else ",".join(settings.queues),
        "--capabilities": None if settings.capabilities is None else ",".join(settings.capabilities),
        "--shutdown-timeout": UNHURRIED,
        "--log-format": settings.log_format,
        "--log-level": settings.log_level,
        "--max-jobs": max_jobs,
        "--health": None if settings.health is None else "0",
    }
    words = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    return [*program, "worker", *([settings.app] if settings.app else []), *words]


def _options(loaded: Loaded, name: str | None) -> ManagerOptions:
    settings = loaded.settings
    fewest = settings.default_count
    if loaded.origins["default_count"] == "default":  # who allows one alone need not say that one is enough
        fewest = min(fewest, settings.max_count)
    return ManagerOptions(
        name=name or f"{socket.gethostname()}:{os.getpid()}",
        scaling=Scaling(
            default_count=fewest,
            max_count=settings.max_count,
            waiting_target=settings.waiting_target,
            up_after=2 * settings.scale_interval,
            down_after=settings.scale_down_after,
            down_every=settings.scale_down_after / 6,
        ),
        interval=settings.scale_interval,
        queues=None if settings.queues is None else frozenset(settings.queues),
        slots=settings.concurrency,
        max_jobs=settings.max_jobs,
        max_memory=settings.max_memory,
        shutdown_timeout=settings.shutdown_timeout,
    )


def _crowded(loaded: Loaded) -> str | None:
    """Return a warning where all workers would have to answer at one address."""
    if loaded.settings.health is None:
        return None
    return (
        f"{loaded.origins['health']} names one address for probes, and there are several workers: each answers at a port that "
        "is free, which its log tells"
    )
