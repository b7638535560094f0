"""Two hundred workers, a store that goes away and comes back, and what all of them do in that moment.

The runtime is the real one, the clock is not: whether a herd storms a store that has just come back is a matter of when each of
its members asks, and that can be counted here to the millisecond.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from holdfast.backlog import backlog
from holdfast.core.scaling import Sample, begin, decide
from holdfast.core.states import State
from holdfast.errors import StoreUnavailable
from holdfast.store.memory import MemoryData, MemoryStore
from lab.sim import fleet
from lab.sim.bus import Bus, BusNotifier
from lab.sim.history import History
from lab.sim.run import errors_noted, uncollected
from lab.sim.stores import SimStore
from lab.sim.weather import Weather, pause
from lab.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.core.scaling import Scaling
    from lab.sim.ills import Fault
    from lab.sim.world import Node

SLICE: Final = 0.25
"""Seconds that the world is turned by at a time: so many processes have much to do in each."""
DECIDE_EVERY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that a worker has sent, whatever became of it."""

    at: float
    node: str
    name: str


class Listened(Weather):
    """A weather in which nothing goes wrong but what is asked for, and which hears every request."""

    def __init__(self, world: World) -> None:
        super().__init__(world, (), lambda node, _: node.kill())
        self.asked: list[Asked] = []
        self.calm = True
        self._heard = world

    def depart(self, node: Node, name: str) -> tuple[Fault | None, float]:
        """Write down that a request was sent."""
        self.asked.append(Asked(self._heard.time, node.name, name))
        return super().depart(node, name)


class Herd:
    """Workers on one store, each a process of its own. `with herd(seed) as it: …`."""

    def __init__(self, seed: int, *, slots: int) -> None:
        self.plan = SimpleNamespace(slots=slots, prefetch=0, kept=None, store="memory")
        self.history = History()
        self.world = World(seed, self)
        self.weather = Listened(self.world)
        self.numbers: list[tuple[float, int]] = []
        """How many workers were decided on, and when."""
        self._bus = Bus(self.world, self.weather)
        self._data = MemoryData()
        self._started = 0
        self._leaving: set[str] = set()

    # what nodes ask for, as of a simulation

    def store(self, node: Node) -> Any:
        """Return a handle of a node on the store."""
        return SimStore(MemoryStore(node.environment.of_store(), self._data), node, self.weather, self.history)

    def notifier(self, node: Node) -> BusNotifier:
        """Return a channel for hints."""
        return BusNotifier(self._bus, node)

    # what tests do

    def start(self, count: int) -> None:
        """Start workers."""
        for _ in range(count):
            self._started += 1
            node = self.world.node(f"worker-{self._started}")
            node.start(lambda node=node: self._serve(node))  # type: ignore[misc]  # bound now

    def enqueue(self, count: int, seconds: float) -> None:
        """Have somebody enqueue jobs that take so long."""
        node = self.world.node(f"client-{self.world.time}")

        async def main() -> None:
            await fleet.app.enqueue_many([fleet.work.call(number, seconds, 0) for number in range(count)])

        node.start(main)

    def scale(self, scaling: Scaling) -> None:
        """Have the number of workers decided every second, as a manager does."""
        node = self.world.node("manager")
        node.start(lambda: self._manage(node, scaling))

    def cut(self, seconds: float) -> None:
        """Keep everybody from the store for a while."""
        self.weather.cut("", seconds)

    def run(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Turn the world for so long, or until something holds."""
        until = self.world.time + seconds
        while self.world.time < until and not done():
            self.world.run(min(until, self.world.time + SLICE))

    @property
    def members(self) -> list[Node]:
        """The workers that live and were not asked to stop."""
        named = [node for name, node in self.world.nodes.items() if name.startswith("worker-") and node.alive]
        return [node for node in named if node.name not in self._leaving]

    @property
    def running(self) -> int:
        """How many jobs run."""
        return sum(job.state is State.RUNNING for job in self.jobs)

    @property
    def jobs(self) -> Sequence[Any]:
        """All jobs, as the store has them."""
        return [record for record in self._data.jobs.values() if record.job.task == "work"]

    @property
    def all_ended(self) -> bool:
        """Whether every job has ended."""
        return all(job.state in (State.SUCCEEDED, State.FAILED, State.CANCELED) for job in self.jobs)

    def bury(self) -> None:
        """Do away with everybody."""
        self.world.bury()
        fleet.app._clients.clear()

    async def _serve(self, node: Node) -> None:
        await fleet.serve(self, node)  # type: ignore[arg-type]  # no more of a simulation is used
        node.kill()

    async def _manage(self, node: Node, scaling: Scaling) -> None:
        store, decision = self.store(node), begin(scaling)
        self.start(decision.count)
        while True:
            await pause(DECIDE_EVERY)
            try:
                decision = decide(scaling, await self._sample(store), decision.memory)
            except StoreUnavailable:  # the number stays as it is
                continue
            self.numbers.append((self.world.time, decision.count))
            members = self.members
            self.start(decision.count - len(members))
            for member in members[decision.count :]:
                self._leaving.add(member.name)
                member.stop()

    async def _sample(self, store: Any) -> Sample:
        todo = await backlog(store, lambda row: row.task == "work")
        staying = {member.name for member in self.members}
        up = [view for view in await store.workers() if view.worker.name in staying and view.offline_at is None]
        running = sum(view.running for view in up)
        return Sample(
            now=self.world.time,
            ready=todo.ready,
            running=running,
            workers=len(up),
            slots=self.plan.slots,
            service=1.0,
            oldest=todo.oldest,
        )


@contextmanager
def herd(seed: int, *, slots: int = 2) -> Iterator[Herd]:
    """Make an empty world with a store."""
    with ExitStack() as stack, uncollected():
        made = Herd(seed, slots=slots)
        stack.enter_context(errors_noted(made.world))
        stack.callback(made.bury)
        yield made
