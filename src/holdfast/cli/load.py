"""`holdfast load`: simulated work at a rate, and what it came to."""

import asyncio
import math
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, with_store
from holdfast.cli.working import loop_factory
from holdfast.config import load as load_settings
from holdfast.finding import Mistake, seconds

if TYPE_CHECKING:
    from holdfast.load.arrivals import Pace
    from holdfast.load.report import Report, Seen
    from holdfast.load.runner import Audience, Plan

MOST_RATE = 100_000.0
MOST_JOBS = 10_000_000
USUAL_SECONDS = 60.0


def load(
    catalog: str | None = None,
    /,
    *,
    rate: float = 50.0,
    pattern: str = "steady",
    minutes: float | None = None,
    seconds: float | None = None,
    jobs: int | None = None,
    seed: int = 1,
    workers: int = 2,
    concurrency: int = 20,
    drain: str = "5m",
    chart: str | None = None,
    common: Common = COMMON,
) -> int:
    """Enqueue simulated work at a rate, watch it, and tell what it came to.

    Example: holdfast load --rate 200 --pattern wave --minutes 5 --chart load.svg

    The kinds of work come from a catalog; the same seed gives the same jobs, and each does the same on every attempt. Workers
    run in this process, or elsewhere: holdfast worker holdfast.load:app, with the catalog's file in HOLDFAST_LOAD_CATALOG.
    Where no store is named, it makes a SQLite file of its own and removes it afterwards. Ctrl-C ends the load, and the report
    still comes.

    Parameters
    ----------
    catalog
        A TOML file of kinds; else the one that comes with Holdfast.
    rate
        Jobs per second, on average over the whole time.
    pattern
        steady, burst (all within a tenth of every 10 s), wave (up and down once a minute) or spike (eleven times as many in the
        middle).
    minutes
        How long to enqueue.
    seconds
        How long to enqueue; with --minutes both add up. 60 unless something else is said.
    jobs
        How many jobs to enqueue, however long it takes; instead of a time.
    seed
        Another number makes other jobs.
    workers
        Workers in this process; 0: others run the jobs.
    concurrency
        Slots of each of them.
    drain
        How long to wait for the jobs to end when all are enqueued: 30s, 5m, 0.
    chart
        Write a chart of it into this file, as SVG: load.svg.
    """
    from holdfast.load.catalog import read  # noqa: PLC0415  not needed for --help

    target = _chart_file(chart)
    pace = _pace(rate, pattern, minutes, seconds, jobs)
    if not 0 <= workers <= 100 or not 1 <= concurrency <= 1000:  # noqa: PLR2004  one process
        raise Mistake("--workers must be 0 to 100, and --concurrency 1 to 1000")
    kinds = read(catalog)
    wait = _drain(drain)
    url = load_settings({"url": common.url}).settings.url
    if url is None and not workers:
        raise Mistake("--workers 0 leaves the work to others, and they need the same store: name it with --url or HOLDFAST_URL")

    from holdfast.load.runner import Plan  # noqa: PLC0415  not needed for --help

    def plan(place: str) -> Plan:
        return Plan(
            catalog=kinds,
            pace=pace,
            seed=seed,
            tag=f"load:{secrets.token_hex(4)}",
            url=place,
            workers=workers,
            concurrency=concurrency,
            all_of_them=jobs is not None,
            drain=wait,
        )

    async def work() -> "tuple[Report, Seen]":
        async with _place(url) as place:
            return await _run(plan(place), as_json=common.as_json)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        report, seen = runner.run(work())
    if target is not None:
        from holdfast.load.chart import draw  # noqa: PLC0415  only with --chart

        target.write_text(draw(report, seen), "utf-8")
    if common.as_json:
        output.print_json(report)
    else:
        from holdfast.cli.loadview import print_report  # noqa: PLC0415  not needed for --help

        print_report(report, url)
        if target is not None:
            output.note(f"the chart is in {target}")
    return output.INTERRUPTED if report.interrupted else output.OK


async def _run(plan: "Plan", *, as_json: bool) -> "tuple[Report, Seen]":
    """Run it; the first Ctrl-C or SIGTERM ends it, and the second ends everything."""
    from holdfast.cli.loadview import Nobody, Screen  # noqa: PLC0415  not needed for --help
    from holdfast.load.runner import run  # noqa: PLC0415  as above

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.current_task()

    def end() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)

    async def watched_by(audience: "Audience") -> "tuple[Report, Seen]":
        return await with_store(plan.url, lambda store: run(plan, store, stop, audience), create=True)

    try:
        if as_json or not output.interactive():
            pace = plan.pace
            output.note(f"{pace.total:,} jobs in {pace.seconds:g} s ({pace.pattern}), seed {plan.seed}; Ctrl-C ends it")
            return await watched_by(Nobody())
        from rich.live import Live  # noqa: PLC0415  only on a terminal

        with Live(console=output.console(), transient=True, auto_refresh=False) as live:
            return await watched_by(Screen(live))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@asynccontextmanager
async def _place(url: str | None) -> AsyncIterator[str]:
    """Give the store that is named, or one of its own for as long as it takes."""
    if url is not None:
        yield url
        return
    from holdfast.demo.place import make_place  # noqa: PLC0415  only without a store

    async with make_place(None, keep=False, purpose="load") as place:
        yield place.url


def _pace(rate: float, pattern: str, minutes: float | None, seconds: float | None, jobs: int | None) -> "Pace":
    from holdfast.load.arrivals import Pace, Pattern  # noqa: PLC0415  not needed for --help

    if pattern not in set(Pattern):
        raise Mistake(f"--pattern: {pattern!r} is none of {', '.join(Pattern)}")
    if not 0 < rate <= MOST_RATE:
        raise Mistake(f"--rate must be more than 0, and {MOST_RATE:,.0f} at most, not {rate:g}")
    if jobs is not None and (minutes is not None or seconds is not None):
        raise Mistake("give --jobs, or a time with --minutes and --seconds, not both: the rate says the other")
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise Mistake(f"--jobs must be 1 to {MOST_JOBS:,}, not {jobs}")
    given = [part for part in (None if minutes is None else 60 * minutes, seconds) if part is not None]
    if not all(math.isfinite(part) and part >= 0 for part in given) or (given and not sum(given)):
        raise Mistake("--minutes and --seconds must be more than 0")
    length = jobs / rate if jobs is not None else sum(given) if given else USUAL_SECONDS
    pace = Pace(pattern=Pattern(pattern), rate=rate, seconds=length)
    if not 1 <= pace.total <= MOST_JOBS:
        raise Mistake(f"{rate:g} a second for {length:g} s are {pace.total:,} jobs; it must be 1 to {MOST_JOBS:,}")
    return pace


def _drain(text: str) -> float:
    return seconds(text, "--drain")


def _chart_file(chart: str | None) -> Path | None:
    if chart is None:
        return None
    path = Path(chart)
    if path.suffix.lower() != ".svg":
        raise Mistake(f"--chart: charts are written as SVG only: name a file that ends with .svg, not {chart}")
    if not path.absolute().parent.is_dir():
        raise Mistake(f"--chart: there is no folder {path.absolute().parent}")
    return path
