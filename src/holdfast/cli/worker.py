"""`holdfast worker`: parsing; the work itself is in `working`."""

import sys
from contextlib import ExitStack

from holdfast.cli.common import Yes
from holdfast.cli.loading import load_app
from holdfast.cli.output import OK
from holdfast.config import load


def worker(
    app: str | None = None,
    /,
    *,
    queues: str | None = None,
    concurrency: int | None = None,
    prefetch: int | None = None,
    retry_share: float | None = None,
    capabilities: str | None = None,
    name: str | None = None,
    reload: Yes = False,
    log_format: str | None = None,
    log_level: str | None = None,
    shutdown_timeout: str | None = None,
    health: str | None = None,
    max_jobs: int | None = None,
    server: str | None = None,
    key: str | None = None,
) -> int:
    """Run jobs of an app in this process, until it is asked to stop.

    Example: holdfast worker shop.jobs:app --queues mail,default --concurrency 20

    The current folder is on the path. The first SIGTERM or Ctrl-C stops claiming and lets running jobs end, up to
    --shutdown-timeout; the second aborts.

    Parameters
    ----------
    app
        MODULE:APP: the module to import and the Holdfast object in it (MODULE alone: its `app`).
    queues
        Serve only these, separated by commas; else every queue.
    concurrency
        Slots: how many jobs run at the same time.
    prefetch
        How many jobs it may hold beyond its slots, for short jobs.
    retry_share
        The share of claims that look for retries first, from 0 to 1; usual is 0.2.
    capabilities
        What it has that some jobs require, separated by commas: gpu,nvenc.
    name
        What it is called in lists; else host and process.
    reload
        Start anew whenever a .py file below the current folder changes. For development.
    log_format
        console or json; logs go to standard error.
    log_level
        debug, info, warning, error or critical.
    shutdown_timeout
        How long running jobs may take to end: 30s, 5m.
    health
        [HOST:]PORT where it answers /health/live, /health/ready and /metrics: 8080, 0.0.0.0:8080. 0 is any port that is free.
    max_jobs
        Finish and end after about so many jobs, for whoever starts it anew: holdfast manager, systemd. Else it runs for ever.
    server
        Take jobs over HTTP from this Holdfast server, instead of from the app's own store: https://jobs.example.com.
    key
        The key that lets it in there. Better in HOLDFAST_KEY: others see what is on a command line.
    """
    flags = {
        "app": app,
        "queues": queues,
        "concurrency": concurrency,
        "prefetch": prefetch,
        "retry_share": retry_share,
        "capabilities": capabilities,
        "log_format": log_format,
        "log_level": log_level,
        "shutdown_timeout": shutdown_timeout,
        "health": health,
        "max_jobs": max_jobs,
        "server": server,
        "key": key,
    }
    found = load(flags)
    settings = found.settings
    if reload:
        from holdfast.cli.reloading import own_command, run_reloading  # noqa: PLC0415  for development only

        return run_reloading(own_command(sys.argv[1:]), shutdown_timeout=settings.shutdown_timeout)
    loaded = load_app(settings.app)
    from holdfast.cli.working import run_worker  # noqa: PLC0415  after the app: its mistakes are told at once

    with ExitStack() as stack:
        if settings.server is not None:
            stack.enter_context(loaded.override(settings.server, key=settings.key))
        run_worker(loaded, found, name=name)
    return OK
