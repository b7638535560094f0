"""`holdfast workers` and `schedules`: who works, and what is enqueued again and again."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, actor, run, tell
from holdfast.cli.output import Column
from holdfast.core.spans import span
from holdfast.finding import Mistake, NotThere
from holdfast.notify.port import Hint
from holdfast.store.port import Store, WorkerState, WorkerView

MOST = 10_000
MOST_TOLD = 100
"""Jobs that a hint names."""
SHORTEST_PREFIX = 4
COLUMNS = (
    Column("id", is_id=True),
    Column("name"),
    Column("state"),
    Column("running", right=True),
    Column("slots", right=True),
    Column("last sign of life"),
    Column("version", goes=True),
    Column("can", shrinks=True),
)
SCHEDULE_COLUMNS = (
    Column("schedule", shrinks=True),
    Column("task"),
    Column("cron"),
    Column("time zone"),
    Column("next"),
    Column("last"),
    Column("last job", is_id=True),
)


def ls(*, everyone: Annotated[bool, Parameter(name="--all", negative="")] = False, common: Common = COMMON) -> None:
    """List the workers: what they do, how many slots are taken, when they were last heard of.

    Example: holdfast workers ls

    Parameters
    ----------
    everyone
        Also those that are offline.
    """

    async def work(store: Store) -> None:
        now = await store.now()
        views = [view for view in await store.workers(limit=MOST) if everyone or view.state is not WorkerState.OFFLINE]
        if common.as_json:
            output.print_json({"workers": [worker_json(view, now) for view in views]})
            return
        rows = [
            (
                view.worker.id,
                view.worker.name,
                view.doing(now),
                view.running,
                view.worker.slots,
                output.when(view.heartbeat_at or view.registered_at, now),
                view.worker.version,
                ", ".join(view.worker.capabilities) or "-",
            )
            for view in views
        ]
        output.print_table(COLUMNS, rows, empty="no live workers. Start one: holdfast worker MODULE:APP")
        for view in views:
            if view.reason and view.state is not WorkerState.OFFLINE:
                output.note(output.harmless(f"{view.worker.name}: {_as_of(view, now)}{view.reason}"))

    run(common, work)


def disable(worker: str, /, *, common: Common = COMMON) -> None:
    """Have a worker claim nothing more; it ends what it runs, and waits to be enabled again.

    Example: holdfast workers disable 7c9e6679-7425-40de-944b-e07fc1f90ae7

    Parameters
    ----------
    worker
        Its id (whole, or short as `workers ls` shows it), or its name.
    """
    _steer(worker, lambda store, worker_id: store.disable(worker_id, by=actor()), "disabled", common)


def enable(worker: str, /, *, common: Common = COMMON) -> None:
    """Let a disabled worker claim again, and one that was asked to drain go on if it has not begun to.

    Example: holdfast workers enable 7c9e6679-7425-40de-944b-e07fc1f90ae7

    Parameters
    ----------
    worker
        Its id (whole, or short as `workers ls` shows it), or its name.
    """
    _steer(worker, lambda store, worker_id: store.enable(worker_id, by=actor()), "enabled", common)


def drain(worker: str, /, *, common: Common = COMMON) -> None:
    """Have a worker finish what it runs and end, as SIGTERM does; it hears of it within 20 seconds.

    Example: holdfast workers drain 7c9e6679-7425-40de-944b-e07fc1f90ae7

    Whatever supervises the process may start another one, which is a worker of its own.

    Parameters
    ----------
    worker
        Its id (whole, or short as `workers ls` shows it), or its name.
    """
    _steer(worker, lambda store, worker_id: store.drain(worker_id, by=actor()), "draining", common)


def _steer(worker: str, do: Callable[[Store, UUID], Awaitable[object]], word: str, common: Common) -> None:
    """Find a worker, do something to it, and tell."""

    async def work(store: Store) -> None:
        view = await _find(store, worker)
        await do(store, view.worker.id)
        _told(view, word, common)

    run(common, work)


def revoke(worker: str, /, *, yes: Yes = False, common: Common = COMMON) -> None:
    """Disable a worker and take back at once every job it holds, free of charge: for one that is broken or not to be trusted.

    Example: holdfast workers revoke 7c9e6679-7425-40de-944b-e07fc1f90ae7 --yes

    The jobs wait again, in front. Their handlers may still run there for a while: they can write nothing more to the store, but
    what they do elsewhere is done twice. To let a worker finish first, use: holdfast workers drain

    Parameters
    ----------
    worker
        Its id (whole, or short as `workers ls` shows it), or its name.
    yes
        Needed: running jobs are taken away.
    """

    async def work(store: Store) -> None:
        view = await _find(store, worker)
        name = output.harmless(view.worker.name)
        if not yes:
            raise Mistake(f"this takes {view.running} running job(s) away from {view.worker.id} {name}: say --yes to do it")
        released = await store.revoke(view.worker.id, by=actor()) or []
        await tell(common, Hint(jobs=frozenset(released[:MOST_TOLD]), anything=True))
        if common.as_json:
            output.print_json({"id": view.worker.id, "name": view.worker.name, "revoked": True, "released": released})
            return
        print(f"revoked: {view.worker.id} {name}, {len(released)} job(s) wait again")
        output.note("it is disabled until: holdfast workers enable")

    run(common, work)


def schedules(*, common: Common = COMMON) -> None:
    """List the schedules: what is enqueued again and again, when next, and what came last.

    Example: holdfast schedules ls
    """

    async def work(store: Store) -> None:
        views = await store.schedules()
        if common.as_json:
            output.print_json({"schedules": [output.fields(view) for view in views]})
            return
        rows = [
            (
                view.schedule.name,
                view.schedule.task,
                view.schedule.cron,
                view.schedule.timezone,
                f"in {span(view.due_in)}" if output.interactive() and view.due_in > 0 else view.schedule.next_at,
                view.last_at,
                view.last_job,
            )
            for view in views
        ]
        output.print_table(SCHEDULE_COLUMNS, rows, empty="no schedules: a task has one when it is declared with cron=")

    run(common, work)


def _as_of(view: WorkerView, now: datetime) -> str:
    """Return when a manager that is silent said what it said last."""
    silence = view.silent(now)
    return "" if silence is None else f"silent for {span(silence)}, it said before: "


def worker_json(view: WorkerView, now: datetime) -> dict[str, Any]:
    """Return a worker as its JSON shows it."""
    record = output.fields(view)
    record["worker"]["info"] = output.raw(view.worker.info)
    does = {"state": view.state, "draining": view.drains, "silent_seconds": view.silent(now)}
    return record | does | {"counters": output.raw(view.counters)}


async def _find(store: Store, word: str) -> WorkerView:
    """Return the worker that is meant: by id (whole, short or its beginning), or by a name that one alone has."""
    wanted = _uuid(word)
    begin, _, end = word.lower().replace("-", "").partition("..")
    found = [] if wanted is None else await store.workers(ids=[wanted])
    found = found or [
        view
        for view in await store.workers(limit=MOST)
        if view.worker.name == word or (len(begin) >= SHORTEST_PREFIX and _alike(view.worker.id.hex, begin, end))
    ]
    live = [view for view in found if view.state is not WorkerState.OFFLINE]
    found = live or found
    if not found:
        raise NotThere(f"there is no worker {word!r}. See: holdfast workers ls --all")
    if len(found) > 1:
        names = "\n  ".join(f"{view.worker.id} {view.worker.name}" for view in found[:5])
        raise Mistake(f"several workers go by {word!r}:\n  {names}")
    return found[0]


def _alike(digits: str, begin: str, end: str) -> bool:
    return digits.startswith(begin) and digits.endswith(end)


def _uuid(word: str) -> UUID | None:
    try:
        return UUID(word)
    except ValueError:
        return None


def _told(view: WorkerView, what: str, common: Common) -> None:
    if common.as_json:
        output.print_json({"id": view.worker.id, "name": view.worker.name, what: True})
        return
    print(f"{what}: {view.worker.id} {output.harmless(view.worker.name)}")
    if what == "draining" and view.state is WorkerState.OFFLINE:
        output.note("it is offline already: there is nothing to drain")
    if what == "disabled" and view.state is WorkerState.OFFLINE:
        output.note("it is offline; should it come back, it stays disabled")
