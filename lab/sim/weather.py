"""Between the nodes and what they share: how long requests and hints take, and which are lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, cast

from holdfast.errors import StoreUnavailable
from lab.sim.ills import Ill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lab.sim.ills import Fault
    from lab.sim.loop import NodeLoop
    from lab.sim.world import Node, World

TARGET: Final = "the simulated store"


class Weather:
    """Decides what becomes of each request, by its number among those of its node."""

    def __init__(self, world: World, faults: Iterable[Fault], kill: Callable[[Node, float], None]) -> None:
        self._world = world
        self._kill = kill
        """Ends a process, and has it started again after so many seconds."""
        self._requests: Counter[tuple[str, str]] = Counter()
        """How many of each name every node has sent; an empty name counts all."""
        self._counted = {(fault.node, fault.request, int(fault.at)): fault for fault in faults}
        self._cut: dict[str, float] = {}
        """Until when nodes cannot reach the store; an empty name stands for all."""
        self._deaf_until = 0.0
        self.calm = False
        """Whether nothing goes wrong any more."""

    def cut(self, node: str, seconds: float) -> None:
        """Keep a node from the store for a while."""
        self._cut[node] = max(self._cut.get(node, 0.0), self._world.time + seconds)
        self._world.trouble(node, seconds)
        self._world.tell(node or "all", f"cut off from the store for {seconds:.1f} s")

    def deafen(self, seconds: float) -> None:
        """Have no hint arrive for a while."""
        self._deaf_until = self._world.time + seconds
        self._world.tell("all", f"no hints for {seconds:.1f} s")

    def clear(self) -> None:
        """End everything that is wrong."""
        self.calm = True
        self._cut.clear()
        self._deaf_until = 0.0

    @property
    def hints_arrive(self) -> bool:
        """Whether hints arrive."""
        return self._world.time >= self._deaf_until

    def hint_delays(self) -> list[float]:
        """Return how long a hint takes each time that it arrives: some are lost, and some come twice."""
        rng = self._world.rng
        times = 1 if self.calm else rng.choices((0, 1, 2), weights=(5, 90, 5))[0]
        return [rng.uniform(0.0, 0.03) for _ in range(times if self.hints_arrive else 0)]

    def depart(self, node: Node, name: str) -> tuple[Fault | None, float]:
        """Send a request on its way; returns what befalls it, and after how many seconds it arrives."""
        fault = None if self.calm else self._befallen(node.name, name)
        if fault is None:
            return None, self._latency()
        self._world.tell(node.name, f"its {name} {fault.told}")
        takes = fault.ill not in (Ill.REFUSE, Ill.LOSE)
        self._world.trouble(node.name, fault.seconds if takes else 0.0, lasts=takes)
        return fault, self._latency() + (fault.seconds if fault.ill is Ill.SLOW else 0.0)

    async def arrive(self, node: Node, fault: Fault | None) -> None:
        """Let a request arrive; raises where it does not."""
        if self._is_cut(node.name):
            raise StoreUnavailable(TARGET, 0.0, "it cannot be reached")
        if fault is None:
            return
        match fault.ill:
            case Ill.REFUSE:
                raise StoreUnavailable(TARGET, 0.0, "the request was refused")
            case Ill.DIE_ASKING:
                await self._die(node, fault)
            case Ill.STALL:
                node.freeze(fault.seconds)
                await asyncio.sleep(0)

    def _befallen(self, node: str, name: str) -> Fault | None:
        """Count a request; returns what befalls it."""
        found = None
        for counted in ("", name):
            self._requests[node, counted] += 1
            found = self._counted.get((node, counted, self._requests[node, counted]), found)
        return found

    async def reply(self, node: Node, fault: Fault | None) -> None:
        """Let an answer travel back; raises where it is lost."""
        ill = None if fault is None else fault.ill
        if fault is not None and ill is Ill.DIE_ANSWERED:
            await self._die(node, fault)
        await pause(self._latency() + (fault.seconds if fault is not None and ill is Ill.LATE else 0.0))
        if ill is Ill.LOSE or self._is_cut(node.name):
            raise StoreUnavailable(TARGET, 0.0, "the answer was lost")

    async def _die(self, node: Node, fault: Fault) -> None:
        """Kill a node in this very moment: it never comes back from here."""
        self._kill(node, fault.seconds)
        await asyncio.sleep(0)

    def _latency(self) -> float:
        rng = self._world.rng
        return rng.uniform(0.0002, 0.004) if rng.random() < 0.9 else rng.uniform(0.004, 0.2)

    def _is_cut(self, name: str) -> bool:
        return bool(self._cut) and self._world.time < max(self._cut.get(name, 0.0), self._cut.get("", 0.0))


def pause(seconds: float) -> asyncio.Future[None]:
    """Return what is done after some seconds of the running loop."""
    return cast("NodeLoop", asyncio.get_running_loop()).pause(seconds)
