"""A fleet of real worker processes to be killed, frozen and cut off, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pytest

from holdfast import Holdfast, connect
from holdfast.core.states import TERMINAL, State
from holdfast.store.replay import replay
from tests.faults.tracing import FOLDER, URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast import Handle
    from holdfast.store.port import JobView, Store
    from holdfast.tasks.task import Call

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
WAIT = 60.0
"""Seconds that a test waits for what must happen; a busy machine is not a bug."""
BUSY = 5.0
"""Seconds by which a busy machine may be late where the store's own timestamps are compared."""
SCAN = 5.5
"""Seconds between looks of a reaper, at most."""


@overload
async def until(look: Callable[[], Coroutine[Any, Any, T]], what: str, within: float = WAIT) -> T: ...
@overload
async def until(look: Callable[[], T], what: str, within: float = WAIT) -> T: ...
async def until(look: Callable[[], Any], what: str, within: float = WAIT) -> Any:
    """Return what `look` gives as soon as that is true of it; fail the test with the story when it never is."""
    deadline = time.monotonic() + within
    while True:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"waited {within:g} s in vain: {what}")
        await asyncio.sleep(0.02)


def chance() -> random.Random:
    """Return the chance of this run. Its seed is printed; in FAULTS_SEED it makes the same choices again."""
    seed = int(os.environ.get("FAULTS_SEED") or random.randrange(2**32))
    print(f"FAULTS_SEED={seed}")  # noqa: T201
    return random.Random(seed)


@dataclass(frozen=True, slots=True)
class Note:
    """A line that a handler or a worker left."""

    what: str
    pid: int
    at: float
    fields: dict[str, Any]

    @property
    def job(self) -> str:
        """The job it is about."""
        return str(self.fields.get("job"))


class WorkerProcess:
    """One worker process, by its id."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(errors="replace")

    def said(self, text: str) -> list[str]:
        """Return the lines of its log that hold this text."""
        return [line for line in self.log.splitlines() if text in line]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it has ended."""
        self.process.send_signal(number)

    async def exited(self, within: float = WAIT) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        await until(lambda: self.process.poll() is not None, f"worker {self.name} (pid {self.pid}) should end", within)
        return self.process.returncode

    async def kill(self) -> None:
        """Kill it as a power cut would."""
        self.send(signal.SIGKILL)
        await self.exited()


class Fleet:
    """A store, the worker processes on it, and everything that was asked of them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.app = Holdfast(url)
        self.store: Store = connect(url)
        self.workers: list[WorkerProcess] = []
        self.jobs: list[UUID] = []
        """Every job whose enqueue was acknowledged."""
        self._folder = folder

    async def open(self) -> None:
        """Connect, and make the schema, so that workers need not race for it."""
        await self.store.open()

    async def close(self) -> None:
        """Kill what still runs, and show what everybody said: pytest prints it when the test has failed."""
        for worker in self.workers:
            worker.send(signal.SIGKILL)
            worker.process.wait()
        for worker in self.workers:
            print(f"-- {worker.name}, pid {worker.pid}, exit code {worker.process.returncode}\n{worker.log}")  # noqa: T201
        print(f"-- trace\n{self._trace_text()[-20_000:]}")  # noqa: T201
        await self.app.close()
        await self.store.close()

    # workers

    def start(
        self,
        name: str,
        *,
        program: str = "tests.faults.work",
        module: str = "tests.faults.tasks",
        url: str | None = None,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> WorkerProcess:
        """Start a worker process; it may not have begun to work when this returns. `url` is another way to the store.

        `prefix` is a command that runs it, as `ip netns exec NAME` does; `environment` is added to its own.
        """
        log = self._folder / f"{len(self.workers)}-{name}.log"
        paths = [str(ROOT / "src"), str(ROOT)]
        own = {URL: url or self.url, FOLDER: str(self._folder), "PYTHONPATH": os.pathsep.join(paths)}
        environment = {**os.environ, **own, **(environment or {})}
        command = [*prefix, sys.executable, "-m", program, module, json.dumps({"name": name} | options), str(os.getpid())]
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        worker = WorkerProcess(name, process, log)
        self.workers.append(worker)
        return worker

    async def working(self, *workers: WorkerProcess) -> None:
        """Wait until these workers serve."""
        for worker in workers:

            def begun(worker: WorkerProcess = worker) -> bool:
                return worker.process.poll() is not None or worker.pid in {note.pid for note in self.notes("worker_started")}

            await until(begun, f"worker {worker.name} should begin to serve")
            if (code := worker.process.poll()) is not None:
                pytest.fail(f"worker {worker.name} ended with code {code} before it served:\n{worker.log}")

    async def started(self, name: str, **options: Any) -> WorkerProcess:
        """Start a worker process and wait until it serves."""
        worker = self.start(name, **options)
        await self.working(worker)
        return worker

    async def freeze(self, worker: WorkerProcess) -> None:
        """Stop a worker where it stands; not inside a write to a SQLite file, which would stop everybody else too."""
        while True:
            worker.send(signal.SIGSTOP)
            await until(lambda: _state_of(worker.pid) == "T", f"worker {worker.name} should be frozen")
            if not self.url.startswith("sqlite") or _writable(self.url):
                return
            worker.send(signal.SIGCONT)
            await asyncio.sleep(0.05)

    async def counters(self, worker: WorkerProcess) -> dict[str, int]:
        """Return what a worker counted, as it last told the registry."""
        views = [view for view in await self.store.workers() if view.worker.name == worker.name]
        assert len(views) == 1, f"worker {worker.name} should be in the registry once, and is there {len(views)} times"
        counters: dict[str, int] = json.loads(views[0].counters)
        return counters

    # jobs

    async def enqueue(self, *calls: Call[Any]) -> list[Handle[Any]]:
        """Enqueue calls of the tasks of another app object: only what is stored matters."""
        handles = await self.app.enqueue_many(calls)
        self.jobs += [handle.id for handle in handles]
        return handles

    async def views(self, handles: Iterable[Handle[Any]] | None = None) -> list[JobView]:
        """Return jobs, all when none are named; each must be there."""
        ids = self.jobs if handles is None else [handle.id for handle in handles]
        views = await self.store.get(ids)
        lost = [job_id for job_id, view in zip(ids, views, strict=True) if view is None]
        assert not lost, f"{len(lost)} acknowledged jobs have vanished: {lost[:5]}"
        return [view for view in views if view is not None]

    async def ended(self, handles: Sequence[Handle[Any]], within: float = WAIT) -> list[JobView]:
        """Wait until these jobs are terminal; returns them."""
        deadline = time.monotonic() + within
        while True:
            views = await self.views(handles)
            live = [view for view in views if view.state not in TERMINAL]
            if not live:
                return views
            if time.monotonic() > deadline:
                shown = ", ".join(f"{view.task} {view.id} {view.shown} attempt {view.attempt}" for view in live[:5])
                pytest.fail(f"after {within:g} s {len(live)} of {len(views)} jobs have not ended: {shown}")
            await asyncio.sleep(0.05)

    async def succeeded(self, handles: Sequence[Handle[Any]], within: float = WAIT) -> list[JobView]:
        """Wait until these jobs have succeeded; returns them."""
        views = await self.ended(handles, within)
        bad = [f"{view.task} {view.id} {view.state}: {view.error}" for view in views if view.state is not State.SUCCEEDED]
        assert not bad, f"{len(bad)} of {len(views)} jobs did not succeed: {bad[:5]}"
        return views

    async def lapsed(self, handles: Sequence[Handle[Any]]) -> None:
        """Wait until the leases of these jobs have lapsed by the store's clock."""

        async def look() -> bool:
            return all(view.lapsed for view in await self.views(handles))

        await until(look, "the leases should lapse, for nobody extends them")

    async def now(self) -> datetime:
        """Return the store's clock."""
        return await self.store.now()

    # what was noted

    def notes(self, what: str, handles: Iterable[Handle[Any]] | None = None) -> list[Note]:
        """Return the lines of one kind, optionally about these jobs only."""
        wanted = None if handles is None else {str(handle.id) for handle in handles}
        notes = []
        for line in self._trace_text().splitlines():
            fields = json.loads(line)
            found = Note(fields.pop("what"), fields.pop("pid"), fields.pop("at"), fields)
            if found.what == what and (wanted is None or found.job in wanted):
                notes.append(found)
        return notes

    async def noted(self, what: str, handles: Sequence[Handle[Any]], times: int | None = None) -> list[Note]:
        """Wait until these jobs have left so many lines of one kind, one for each unless told otherwise."""
        wanted = len(handles) if times is None else times

        def look() -> list[Note]:
            found = self.notes(what, handles)
            return found if len(found) >= wanted else []

        return await until(look, f"{wanted} line(s) {what!r} of {len(handles)} job(s)")

    def runs(self, handles: Iterable[Handle[Any]]) -> dict[str, int]:
        """Return how often each job was begun."""
        began = [note.job for note in self.notes("began")]
        return {str(handle.id): began.count(str(handle.id)) for handle in handles}

    def open_gate(self, gate: str) -> None:
        """Let handlers that wait for a gate go on."""
        (self._folder / f"gate-{gate}").touch()

    def _trace_text(self) -> str:
        trace = self._folder / "trace"
        text = trace.read_text() if trace.exists() else ""
        return text[: text.rfind("\n") + 1]  # whoever reads while a line is written may see a part of it

    # invariants

    async def check(self) -> None:
        """Check what must hold after every fault: nothing lost, budgets kept, and the event log tells the same story."""
        for view in await self.views():
            budget = view.policy.retry.max_attempts
            assert budget is None or view.failures <= budget, (
                f"job {view.id} ({view.task}) has failed {view.failures} times, and its budget is {budget}"
            )
            events = await self.store.events(view.id)
            assert replay(events) is view.state, (
                f"job {view.id} ({view.task}) is {view.state}, but its events say otherwise: "
                f"{[str(event.event) for event in events]}"
            )


@asynccontextmanager
async def fleet_on(url: str, folder: Path) -> AsyncIterator[Fleet]:
    """A store and the worker processes on it: checked when the test is done, gone in any case."""
    fleet = Fleet(url, folder)
    await fleet.open()
    try:
        yield fleet
        await fleet.check()
    finally:
        await fleet.close()


def _state_of(pid: int) -> str:
    """Return the state of a process as the kernel shows it; T is stopped."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


def _writable(url: str) -> bool:
    """Tell whether nobody is inside a write to a SQLite file."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True
