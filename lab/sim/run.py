"""One run: a world is made from a plan, turned until everything has ended, and looked at."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import tempfile
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.states import TERMINAL, State
from holdfast.store.memory import MemoryData, MemoryStore
from holdfast.store.port import JobFilter
from holdfast.store.sqlite import SqliteStore
from lab.sim import fleet
from lab.sim.bus import Bus, BusNotifier
from lab.sim.checker import check
from lab.sim.history import Found, History
from lab.sim.plan import CLIENTS, COUNTED, STORMY, WORKERS, Ill, Plan
from lab.sim.stores import SimStore
from lab.sim.weather import Weather
from lab.sim.world import Spinning, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store.port import Store
    from lab.sim.plan import Fault
    from lab.sim.world import Node

LONGEST: Final = 600.0
"""Seconds of the simulated world after which whatever is live is stuck."""
LOOK_EVERY: Final = 2.0
AFTERMATH: Final = 28.0
"""Seconds in which whoever is dead is started again, and the last slot of the schedule is fired."""
SOON: Final = 60
"""Callbacks: what befalls a node at a time befalls it within so many of its own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave."""

    plan: Plan
    faults: tuple[str, ...]
    """What is wrong; nothing where all is well."""
    trace: tuple[str, ...]
    seconds: float
    """How long it took in the simulated world."""

    @property
    def digest(self) -> str:
        """What two runs of the same seed have in common."""
        return blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()


def simulate(plan: Plan) -> Outcome:
    """Run a plan."""
    with ExitStack() as stack, uncollected():
        return Simulation(plan, stack).run()


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave garbage alone for a while: looking for it takes a sixth of the time of a run."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Simulation:
    """A run: what all nodes share."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self.plan = plan
        self.history = History()
        self.carried_out: set[int] = set()
        """The orders that clients are done with."""
        self._world = World(plan.seed, self)
        self._weather = Weather(self._world, [fault for fault in plan.faults if fault.ill in COUNTED])
        self._bus = Bus(self._world, self._weather)
        self._data = MemoryData()
        self._path = ""
        if plan.store == "sqlite":
            self._path = stack.enter_context(a_file())
            stack.enter_context(connections_noted(self._world))
        stack.enter_context(errors_noted(self._world))
        stack.callback(self._bury)

    def run(self) -> Outcome:
        """Run it, and look at what it has left."""
        world = self._world
        for name in (*WORKERS, *CLIENTS):
            self._start(name)
        for fault in self.plan.faults:
            if fault.ill not in COUNTED:
                world.at(fault.at, None, partial(self._befall, fault))
        world.at(STORMY, None, self._clear_up)
        wrong: list[str] = []
        try:
            world.run(STORMY)
            self._looked_at = world.time
            world.run(LONGEST, self._all_ended)
            self.history.over = world.time
            for node in world.nodes.values():
                node.kill()  # what is read must stand still
            found = self._found()
        except Spinning as error:
            wrong.append(f"it spins: {error}")
        else:
            self.history.lives, self.history.frozen, self.history.troubles = world.lives(), world.frozen, world.troubles
            wrong += check(self.plan, self.history, found)
        wrong += world.complaints
        return Outcome(self.plan, tuple(wrong), tuple(world.trace), world.time)

    # what nodes ask for

    def store(self, node: Node) -> Any:
        """Return a handle of a node on the store."""
        return SimStore(self._inner(node), node, self._weather, self.history)

    def notifier(self, node: Node) -> BusNotifier:
        """Return a channel for hints."""
        return BusNotifier(self._bus, node)

    def _inner(self, node: Node) -> Store:
        if self.plan.store == "sqlite":
            return SqliteStore(self._path, node.environment.of_store(), create=False, busy_timeout=0.0)
        return MemoryStore(node.environment.of_store(), self._data)

    # what befalls them

    def _start(self, name: str) -> None:
        node = self._world.node(name)
        main = fleet.serve if name in WORKERS else fleet.order_all
        node.start(lambda: self._live(node, main))

    async def _live(self, node: Node, main: Any) -> None:
        await main(self, node)
        if node.name in WORKERS:  # it was asked to stop
            node.kill()

    def _befall(self, fault: Fault) -> None:
        node = self._world.nodes.get(fault.node)
        if fault.ill in (Ill.STOP, Ill.FREEZE):
            self._world.trouble(fault.node, fault.seconds)
        match fault.ill:
            case Ill.KILL if node is not None:
                node.dies_at = self._soon(node)
                self._world.at(self._world.time + fault.seconds, None, lambda: self._revive(fault.node))
            case Ill.STOP if node is not None and node.alive:
                node.stop()
                self._world.at(self._world.time + fault.seconds + 12.0, None, lambda: self._revive(fault.node))
            case Ill.FREEZE if node is not None:
                node.freezes_at, node.freezes_for = self._soon(node), fault.seconds
            case Ill.CUT | Ill.OUTAGE:
                self._weather.cut(fault.node, fault.seconds)
            case Ill.DEAF:
                self._weather.deafen(fault.seconds)
            case Ill.SKEW if node is not None:
                node.environment.skew += fault.seconds
                self._world.tell(fault.node, f"its clock is set by {fault.seconds:+.1f} s")
            case Ill.CLOCK:
                self._world.step_of_clock += fault.seconds
                self._world.tell("all", f"the store's clock is set by {fault.seconds:+.1f} s")

    def _soon(self, node: Node) -> int:
        """Return a callback in the midst of whatever a node does next."""
        return node.steps + 1 + self._world.rng.randrange(SOON)

    def _revive(self, name: str) -> None:
        """Start a process anew that has ended."""
        node = self._world.nodes[name]
        node.dies_at = node.freezes_at = -1
        if not node.alive:
            self._world.tell(name, "is started again")
            self._start(name)

    def _clear_up(self) -> None:
        self._weather.clear()
        self._world.tell("all", "nothing goes wrong any more")
        for name in (*WORKERS, *CLIENTS):
            self._world.at(self._world.time + 20.0, None, partial(self._revive, name))

    # the end

    def _all_ended(self) -> bool:
        """Tell whether every job that was acknowledged or found has ended, looking now and then."""
        world = self._world
        if world.time < self._looked_at + LOOK_EVERY:
            return False
        self._looked_at = world.time
        orders = {order.number for order in self.plan.orders}
        return world.time > STORMY + AFTERMATH and orders <= self.carried_out and not self._live_jobs()

    def _live_jobs(self) -> int:
        if self._path:
            return int(self._read("SELECT (SELECT count(*) FROM holdfast_job) - (SELECT count(*) FROM holdfast_archive)")[0])
        return sum(record.state not in TERMINAL for record in self._data.jobs.values())

    def _found(self) -> Found:
        """Read everything that is left, through a node of its own."""
        node = self._world.node("look")
        store = self._inner(node)
        gathered: list[Found] = []

        async def read() -> None:
            await store.open()
            page = await store.find(JobFilter(), limit=10_000)
            jobs = {view.id: view for view in page.jobs}
            events = {job_id: await store.events(job_id) for job_id in jobs}
            attempts = {job_id: await store.attempts(job_id) for job_id in jobs}
            stats = await store.stats()
            counts = {state: stats.count(state) for state in State}
            parts = {job_id: frozenset(part.name for part in await store.parts(job_id)) for job_id in jobs}
            ledger = self._read("SELECT job FROM ledger") if self._path else None
            gathered.append(Found(jobs, events, attempts, counts, parts, ledger))
            await store.close()

        node.start(read)
        self._world.run(self._world.time + 60.0, lambda: bool(gathered))
        return gathered[0]

    def _read(self, sql: str) -> list[Any]:
        """Look into the file past every node; returns the first column."""
        self._world.acting = None
        with closing(sqlite3.connect(self._path)) as connection:
            return [row[0] for row in connection.execute(sql)]

    def _bury(self) -> None:
        self._world.bury()
        fleet.app._clients.clear()  # each simulated event loop has one


@contextmanager
def a_file() -> Iterator[str]:
    """Make a SQLite file with the schema of a store and a table of the user's own, where writing costs least."""
    shared = Path("/dev/shm")  # memory, where there is one
    with tempfile.TemporaryDirectory(prefix="holdfast-sim-", dir=shared if shared.is_dir() else None) as folder:
        path = Path(folder, "jobs.db")
        path.write_bytes(template())
        yield str(path)


@cache
def template() -> bytes:
    """Return the bytes of an empty store."""
    from holdfast.store.sqlite import migrate  # noqa: PLC0415  once
    from holdfast.system import SystemEnvironment  # noqa: PLC0415  as above

    with tempfile.TemporaryDirectory(prefix="holdfast-sim-") as folder:
        path = Path(folder, "jobs.db")
        asyncio.run(migrate(str(path), SystemEnvironment()))
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE ledger (job TEXT NOT NULL)")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return path.read_bytes()


@contextmanager
def connections_noted(world: World) -> Iterator[None]:
    """Note which node opens a connection: a kill closes it."""
    real = sqlite3.connect

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = real(*args, **kwargs)
        if world.acting is not None:
            world.acting.connections.append(connection)
        return connection

    sqlite3.connect = connect  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = real


@contextmanager
def errors_noted(world: World) -> Iterator[None]:
    """Note what the runtime calls an error of its own: there should be none, whatever the weather."""

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if " own;" in record.msg:
                error = record.exc_info[1] if record.exc_info else None
                world.complaints.append(f"{record.getMessage()}: {error!r}")

    logger = logging.getLogger("holdfast")
    handler, level, spread = Noting(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = spread
