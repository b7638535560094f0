"""`holdfast doctor`: what is wrong with this machine, its settings and its store, each with the fix."""

import asyncio
import importlib.util
import shutil
import sqlite3
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common
from holdfast.cli.output import Column
from holdfast.config import OWN_FILE, SHARED_FILE, load
from holdfast.core.spans import span
from holdfast.core.states import WAITING
from holdfast.errors import BadSetting, HoldfastError, SchemaError
from holdfast.explaining import GONE, longest_wait, unserved
from holdfast.store.port import Store, WorkerState, WorkerView

OLDEST_PYTHON = (3, 11)
EXTRAS = {
    "postgres": (("asyncpg",), "for postgresql:// stores"),
    "cli": (("cyclopts", "rich", "structlog", "watchfiles", "psutil"), "for the command line"),
}
SKEW = (1.0, 30.0)
"""Seconds between this clock and the store's: from here on a warning, from there on a failure."""
DISK = (1024**3, 100 * 1024**2)
"""Bytes free: below the first a warning, below the second a failure."""
LONG_WAIT = 600.0
"""Seconds a ready job may have waited before that is worth a word."""
SHOWN = 5

OK, WARN, FAIL = "ok", "warn", "fail"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    level: str
    text: str
    fix: str = ""


def doctor(*, common: Common = COMMON) -> int:
    """Look for what is wrong here: packages, settings, database, schema, clock, disk, workers, queues.

    Example: holdfast doctor --url postgresql://user@host/database

    Each line says ok, warn or fail, and how to mend it. Exit code 1 when something fails.
    """
    checks = [*machine(), *asyncio.run(_collected(common))]
    failed = any(check.level == FAIL for check in checks)
    if common.as_json:
        output.print_json({"ok": not failed, "checks": checks})
        return output.ERROR if failed else output.OK
    rows = []
    for check in checks:
        rows.append((check.level, check.name, check.text))
        rows += [("", "", f"-> {check.fix}")] * bool(check.fix)
    output.print_table((Column(""), Column("what"), Column("finding", wraps=True)), rows, empty="")
    return output.ERROR if failed else output.OK


async def _collected(common: Common) -> list[Check]:
    return [check async for check in _store(common)]


# --- this machine -------------------------------------------------------------------------------------------------------


def machine() -> Iterator[Check]:
    """Look at Python and what is installed."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(name="python", level=OK if sys.version_info >= OLDEST_PYTHON else FAIL, text=version)
    for extra, (packages, purpose) in EXTRAS.items():
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            text = f"{', '.join(missing)} not installed ({purpose})"
            yield Check(name=f"extra {extra}", level=WARN, text=text, fix=f"pip install 'holdfast[{extra}]'")
        else:
            yield Check(name=f"extra {extra}", level=OK, text="installed")
    yield from _sqlite()


def _sqlite() -> Iterator[Check]:
    from holdfast.connect import sqlite_flaws  # noqa: PLC0415  not needed for --help

    flaws = sqlite_flaws()
    if not flaws:
        yield Check(name="sqlite", level=OK, text=sqlite3.sqlite_version)
    for flaw in flaws:
        yield Check(
            name="sqlite",
            level=WARN,
            text=f"{sqlite3.sqlite_version}: {flaw}",
            fix="Holdfast's own processes keep clear of it; let no other program write to the file, or use a newer SQLite",
        )


# --- the settings and the store -----------------------------------------------------------------------------------------


async def _store(common: Common) -> AsyncIterator[Check]:
    try:
        loaded = load({"url": common.url})
    except BadSetting as error:
        yield Check(name="settings", level=FAIL, text=str(error), fix="correct it; holdfast config shows what is in force")
        return
    yield Check(name="settings", level=OK, text=loaded.file or f"no {OWN_FILE}, nor [tool.holdfast] in {SHARED_FILE}")
    url = loaded.settings.url
    if url is None:
        yield Check(
            name="store",
            level=WARN,
            text="no store is named, nothing more to look at",
            fix="--url, HOLDFAST_URL, or url in the file",
        )
        return
    from holdfast.connect import connect  # noqa: PLC0415  not needed for --help

    try:
        store = connect(url, create=False)
    except HoldfastError as error:
        yield Check(name="store", level=FAIL, text=str(error))
        return
    try:
        async for check in _opened(store, url):
            yield check
    finally:
        await store.close()


async def _opened(store: Store, url: str) -> AsyncIterator[Check]:
    from holdfast.connect import without_password  # noqa: PLC0415  not needed for --help

    if url.startswith("sqlite:"):
        for check in _disk(url):
            yield check
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            await store.open()
        except SchemaError as error:
            yield Check(name="schema", level=FAIL, text=str(error))  # which says the fix
            return
        except HoldfastError as error:
            yield Check(name="database", level=FAIL, text=str(error))
            return
    for warning in warned:
        yield Check(name="file system", level=WARN, text=str(warning.message))
    yield Check(name="database", level=OK, text=f"{without_password(url)} answers, and its schema is the one of this version")
    yield await _clock(store)
    for check in [*await _queues(store), *await _workers(store)]:
        yield check


def _disk(url: str) -> Iterator[Check]:
    from holdfast.connect import sqlite_path  # noqa: PLC0415  not needed for --help

    folder = Path(sqlite_path(url)).absolute().parent
    if not folder.is_dir():
        return  # opening it will say so
    free = shutil.disk_usage(folder).free
    level = FAIL if free < DISK[1] else WARN if free < DISK[0] else OK
    fix = "" if level == OK else "make room: holdfast prune, or a larger disk"
    yield Check(name="disk", level=level, text=f"{free / 1024**3:.1f} GiB free in {folder}", fix=fix)


async def _clock(store: Store) -> Check:
    begun = datetime.now(UTC)
    there = await store.now()
    ended = datetime.now(UTC)
    # how long the question took is not the clock's fault
    skew = max((begun - there).total_seconds(), (there - ended).total_seconds(), 0.0)
    level = FAIL if skew >= SKEW[1] else WARN if skew >= SKEW[0] else OK
    text = f"this clock and the store's differ by {span(skew)}" if level != OK else "agrees with the store's"
    fix = "" if level == OK else "set this machine's clock by NTP; the store's own clock decides, but times shown here mislead"
    return Check(name="clock", level=level, text=text, fix=fix)


async def _queues(store: Store) -> list[Check]:
    now = await store.now()
    queues = await store.queues()
    checks = [
        Check(
            name="queue",
            level=WARN,
            text=f"{queue.name!r} has been paused for {span((now - queue.paused_at).total_seconds())}"
            + (f" by {queue.paused_by}" if queue.paused_by else "")
            + (f": {queue.reason}" if queue.reason else ""),
            fix=f"holdfast queues resume {queue.name}",
        )
        for queue in queues
        if queue.paused_at is not None
    ]
    longest = longest_wait(await store.stats(), queues, await store.workers())
    if longest is not None and longest[1] >= LONG_WAIT:
        text = f"the oldest job in {longest[0]!r} has waited for {span(longest[1])}"
        fix = f"see why: holdfast jobs ls state:ready queue:{longest[0]}, then holdfast jobs why ID"
        checks.append(Check(name="waiting", level=WARN, text=text, fix=fix))
    return checks or [Check(name="queues", level=OK, text=f"{len(queues)} known, none paused, none waits for long")]


async def _workers(store: Store) -> list[Check]:
    now = await store.now()
    views = await store.workers()
    live = [view for view in views if view.state not in GONE]
    checks = []
    for view in live:
        if (silence := view.silent(now)) is not None:
            text = f"{view.worker.name} ({view.worker.id}) has given no sign of life for {span(silence)}"
            checks.append(Check(name="worker", level=WARN, text=text, fix="look whether it still runs, and start it again"))
    held = [view for view in views if view.state is WorkerState.OFFLINE and view.running]
    checks += [
        Check(
            name="worker",
            level=WARN,
            text=f"{view.worker.name} is offline and holds {view.running} job(s)",
            fix="nothing to do where another worker runs: it reaps them when their leases lapse",
        )
        for view in held
    ]
    workers = [view for view in live if not view.manages]
    unserved = await _unserved(store, [view for view in workers if not view.drains])
    if unserved:
        names = ", ".join(unserved[:SHOWN]) + (" …" if len(unserved) > SHOWN else "")
        text = f"jobs wait that no live worker serves: {names}"
        checks.append(
            Check(
                name="unserved", level=WARN, text=text, fix="start a worker with that app and queue: holdfast worker MODULE:APP"
            )
        )
    return checks or [Check(name="workers", level=OK, text=f"{len(workers)} live")]


async def _unserved(store: Store, live: list[WorkerView]) -> list[str]:
    waiting = [row for row in (await store.stats()).tasks if any(row.counts.get(state) for state in WAITING)]
    return [f"{row.task} in {row.queue}" for row in unserved(waiting, live)]
