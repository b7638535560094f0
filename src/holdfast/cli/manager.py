"""`holdfast manager`: parsing; the work itself is in `managing`."""

from typing import Annotated

from cyclopts import Parameter

from holdfast.cli.common import Yes
from holdfast.cli.loading import load_app
from holdfast.cli.output import OK
from holdfast.config import load
from holdfast.errors import BadSetting


def manager(
    app: str | None = None,
    /,
    *,
    default_count: int | None = None,
    max_count: int | None = None,
    queues: str | None = None,
    concurrency: int | None = None,
    prefetch: int | None = None,
    retry_share: float | None = None,
    capabilities: str | None = None,
    waiting_target: str | None = None,
    scale_down_after: str | None = None,
    scale_interval: Annotated[str | None, Parameter(name="--interval")] = None,
    max_jobs: int | None = None,
    max_memory: str | None = None,
    name: str | None = None,
    dry_run: Yes = False,
    shutdown_timeout: str | None = None,
    log_format: str | None = None,
    log_level: str | None = None,
) -> int:
    """Run as many worker processes as the work needs, until it is asked to stop.

    Example: holdfast manager shop.jobs:app --default-count 2 --max-count 8

    It looks every second. More workers come when jobs wait longer than they should and the slots are taken; fewer stay when for
    a while fewer would have done. Idle ones go first, and one that runs jobs finishes them, or is taken back before it has. A
    worker that crashes is started again. Every change of the number, and what keeps it as it is, with the reason:
    holdfast audit --action scale

    The first SIGTERM or Ctrl-C lets all workers finish what they run, up to --shutdown-timeout; the second aborts. All that is
    set here can stand in the [workers] table of holdfast.toml.

    Parameters
    ----------
    app
        MODULE:APP: the module to import and the Holdfast object in it (MODULE alone: its `app`).
    default_count
        Workers that there are at least. 2 unless said otherwise, or max_count where that is less.
    max_count
        Processes that there are at most, those that still finish something included. 8 unless said otherwise.
    queues
        Serve only these, separated by commas; else every queue.
    concurrency
        Slots of each worker: how many jobs it runs at the same time. 20 unless said otherwise.
    prefetch
        How many jobs each worker may hold beyond its slots, for short jobs.
    retry_share
        The share of each worker's claims that look for retries first, from 0 to 1; usual is 0.2.
    capabilities
        What each worker has that some jobs require, separated by commas: gpu,nvenc.
    waiting_target
        How long a job may wait before it starts: 500ms, 1m. Beyond half of it more workers come. 5s unless said otherwise.
    scale_down_after
        For how long fewer workers must have been enough before one goes: 10s, 5m. 30s unless said otherwise.
    scale_interval
        How long between two decisions: 500ms, 5s. 1s unless said otherwise.
    max_jobs
        Replace a worker after about so many jobs. Never unless said.
    max_memory
        Replace a worker that takes more memory than this, once its successor is up: 512MB, 2GB. At least 32MB. Never unless
        said.
    name
        What it is called in lists, and its workers with it; else host and process.
    dry_run
        Only print what it would decide, until Ctrl-C. Starts nothing, writes nothing.
    shutdown_timeout
        How long running jobs may take to end when the manager is asked to stop: 10s, 5m. Scaling down never hurries them. 30s
        unless said otherwise.
    log_format
        console or json; logs go to standard error.
    log_level
        debug, info, warning, error or critical.
    """
    flags = {
        "app": app,
        "default_count": default_count,
        "max_count": max_count,
        "queues": queues,
        "concurrency": concurrency,
        "prefetch": prefetch,
        "retry_share": retry_share,
        "capabilities": capabilities,
        "waiting_target": waiting_target,
        "scale_down_after": scale_down_after,
        "scale_interval": scale_interval,
        "max_jobs": max_jobs,
        "max_memory": max_memory,
        "shutdown_timeout": shutdown_timeout,
        "log_format": log_format,
        "log_level": log_level,
    }
    found = load(flags, spelled={"scale_interval": "--interval"})
    if found.settings.server is not None:
        raise BadSetting(
            f"{found.origins['server']} names a server, and a manager works beside the database: it counts what waits there. "
            "Leave the server out, or run workers by themselves: holdfast worker MODULE:APP --server URL"
        )
    loaded = load_app(found.settings.app, command="manager")
    if loaded.url.startswith("memory:"):
        raise BadSetting("a memory:// store lives in one process, and a manager starts others: use sqlite:/// or postgresql://")
    from holdfast.cli.managing import rehearse, run_manager  # noqa: PLC0415  after the app: its mistakes are told at once

    if dry_run:
        rehearse(loaded, found, name=name)
    else:
        run_manager(loaded, found, name=name)
    return OK
