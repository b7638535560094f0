"""One run: a world is made from a plan, turned until everything has ended, and looked at."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import tempfile
import traceback
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from holdfast.core.states import TERMINAL, State
from holdfast.store.memory import MemoryData, MemoryStore
from holdfast.store.port import JobFilter
from holdfast.store.sqlite import SqliteStore, transaction
from lab.sim import clients, fleet
from lab.sim.bus import Bus, BusNotifier
from lab.sim.checker import check
from lab.sim.history import Found, History
from lab.sim.ills import COUNTED, STORMY, WORKERS, Ill
from lab.sim.orders import CLIENTS
from lab.sim.stores import SimStore
from lab.sim.weather import Weather
from lab.sim.world import Spinning, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store.port import Store
    from lab.sim.ills import Fault
    from lab.sim.plan import Plan
    from lab.sim.world import Node

LONGEST: Final = 600.0
"""Seconds of the simulated world after which whatever is live is stuck."""
LOOK_EVERY: Final = 2.0
REVIVED: Final = 8.0
"""Seconds after the storm until whoever is dead is started again: those who are not see to what is left."""
SOON: Final = 60
"""Callbacks: what befalls a node at a time befalls it within so many of its own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave."""

    plan: Plan
    faults: tuple[str, ...]
    """What is wrong; nothing where all is well."""
    trace: tuple[str, ...]
    """All that happened; nothing where all is well and nobody has asked for it."""
    gist: tuple[str, ...]
    """The same without what happens all the time, whatever else does."""
    seconds: float
    """How long it took in the simulated world."""

    @property
    def digest(self) -> str:
        """What two runs of the same seed have in common."""
        return blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()


def simulate(plan: Plan, *, traced: bool = False) -> Outcome:
    """Run a plan; `traced`: tell all that happens also when all is well."""
    with ExitStack() as stack, uncollected():
        return Simulation(plan, stack).run(traced=traced)


def callbacks_of(plan: Plan, name: str) -> int:
    """Return how many callbacks the first process of a name runs until nothing goes wrong any more."""
    with ExitStack() as stack, uncollected():
        simulation = Simulation(plan, stack)
        simulation.run(traced=False)
        return simulation.callbacks[name]


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
        self.callbacks: dict[str, int] = {}
        """How many each process had run when the storm was over."""
        self._world = World(plan.seed, self)
        self._weather = Weather(self._world, [fault for fault in plan.faults if fault.ill in COUNTED], self._kill)
        self._bus = Bus(self._world, self._weather)
        self._data = MemoryData()
        self._path = ""
        if plan.store == "sqlite":
            self._path = stack.enter_context(a_file())
            stack.enter_context(connections_noted(self._world))
            # a handler's transaction would wait for another one in real time: here its thread does, in simulated time
            stack.enter_context(patch.object(transaction, "BUSY_SLICE", 0.0))
        stack.enter_context(errors_noted(self._world))
        stack.callback(self._bury)

    def run(self, *, traced: bool) -> Outcome:
        """Run it, and look at what it has left."""
        world = self._world
        for name in (*WORKERS, *CLIENTS):
            self._start(name)
        for fault in self.plan.faults:
            if fault.ill is Ill.CRASH:
                node = world.nodes[fault.node]
                node.dies_at, node.die = int(fault.at), partial(self._kill, node, fault.seconds)
            elif fault.ill not in COUNTED:
                world.at(fault.at, None, partial(self._befall, fault))
        world.at(STORMY, None, self._clear_up)
        wrong: list[str] = []
        try:
            self._turn()
            wrong += check(self.plan, self.history, self._found())
        except Spinning as error:
            wrong.append(f"it spins: {error}")
        except Exception as error:  # noqa: BLE001  an answer that cannot be is a finding of this seed, not the end of a sweep
            where = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(f"the answers make no sense: {error!r} in {Path(where.filename).name}:{where.lineno}")
        wrong += world.complaints
        lines = world.lines if wrong or traced else []
        gist = tuple(str(line) for line in lines if not line.dull)
        return Outcome(self.plan, tuple(wrong), tuple(map(str, lines)), gist, world.time)

    def _turn(self) -> None:
        """Let everything happen."""
        world = self._world
        world.run(STORMY)
        self.callbacks = {name: node.steps for name, node in world.nodes.items()}
        self._looked_at = world.time
        world.run(LONGEST, self._all_ended)
        history = self.history
        history.over = world.time
        for node in world.nodes.values():
            node.kill()  # what is read must stand still
        history.lives, history.frozen, history.troubles = world.lives(), world.frozen, world.troubles

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
        main = fleet.serve if name in WORKERS else clients.order_all
        node.start(lambda: self._live(node, main))

    async def _live(self, node: Node, main: Any) -> None:
        await main(self, node)
        if node.name in WORKERS:  # it was asked to stop
            self.history.signed_off.add((node.name, node.life))
            node.kill()

    def _befall(self, fault: Fault) -> None:
        node = self._world.nodes.get(fault.node)
        if fault.ill in (Ill.STOP, Ill.FREEZE):
            self._world.trouble(fault.node, fault.seconds, lasts=fault.ill is Ill.FREEZE)
        match fault.ill:
            case Ill.KILL if node is not None:
                node.dies_at = self._soon(node)
                self._world.at(self._world.time + fault.seconds, None, partial(self._revive, fault.node))
            case Ill.STOP if node is not None and node.alive:
                node.stop()
                self._world.at(self._world.time + fault.seconds + 12.0, None, partial(self._revive, fault.node))
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

    def _kill(self, node: Node, seconds: float) -> None:
        """End a process in this very moment, and start it again later."""
        node.kill()
        self._world.at(self._world.time + seconds, None, partial(self._revive, node.name))

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
            self._world.at(self._world.time + REVIVED, None, partial(self._revive, name))

    # the end

    def _all_ended(self) -> bool:
        """Tell whether every job that was acknowledged or found has ended, looking now and then."""
        world = self._world
        if world.time < self._looked_at + LOOK_EVERY:
            return False
        self._looked_at = world.time
        orders = {order.number for order in self.plan.orders}
        return world.time > STORMY + self.plan.calm and orders <= self.carried_out and not self._live_jobs()

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
            lines = {one.id: await store.logs(one.id, limit=1000) for one in page.jobs if one.task == "report"}
            said = {job_id: frozenset(line.message for line in logged) for job_id, logged in lines.items()}
            ledger = self._read("SELECT job FROM ledger") if self._path else None
            gathered.append(Found(jobs, events, attempts, counts, parts, said, ledger))
            await store.close()

        node.start(read)
        self._world.run(self._world.time + 60.0, lambda: bool(gathered))
        if not gathered:
            raise ValueError("what is left cannot be read")
        return gathered[0]

    def _read(self, sql: str) -> list[Any]:
        """Look into the file past every node; returns the first column."""
        self._world.acting = None
        with closing(sqlite3.connect(self._path)) as connection:
            return [row[0] for row in connection.execute(sql)]

    def _bury(self) -> None:
        self._world.bury()
        fleet.app._clients.clear()  # each simulated event loop has one
        # what a coroutine that would not close still leads to must not be the whole run
        self.history.done.clear()
        self.history.runs.clear()
        self._data.adopt(MemoryData())


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
