"""Between the nodes and what they share: how long requests and hints take, and which are lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from holdfast.errors import StoreUnavailable
from lab.sim.plan import Ill

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.sim.plan import Fault
    from lab.sim.world import Node, World

TARGET: Final = "the simulated store"


class Weather:
    """Decides what becomes of each request, by its number among those of its node."""

    def __init__(self, world: World, faults: Iterable[Fault]) -> None:
        self._world = world
        self._requests: dict[str, int] = {}
        self._counted = {(fault.node, int(fault.at)): fault for fault in faults}
        self._cut: dict[str, float] = {}
        """Until when nodes cannot reach the store; an empty name stands for all."""
        self._deaf_until = 0.0
        self.calm = False
        """Whether nothing goes wrong any more."""

    def cut(self, node: str, seconds: float) -> None:
        """Keep a node from the store for a while."""
        self._cut[node] = max(self._cut.get(node, 0.0), self._world.time + seconds)
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

    def hint_delay(self) -> float | None:
        """Return how long a hint takes; `None`: it is lost."""
        if not self.hints_arrive or (not self.calm and self._world.rng.random() < 0.05):
            return None
        return self._world.rng.uniform(0.0, 0.03)

    async def request(self, node: Node, name: str) -> Ill | None:
        """Let a request travel to the store; raises where it is lost. Returns what is to become of the answer."""
        number = self._requests[node.name] = self._requests.get(node.name, 0) + 1
        await asyncio.sleep(self._latency())
        fault = None if self.calm else self._counted.get((node.name, number))
        if self._is_cut(node.name):
            raise StoreUnavailable(TARGET, 0.0, "it cannot be reached")
        if fault is None:
            return None
        self._world.tell(node.name, f"request {number} ({name}): {fault.ill}")
        if fault.ill is Ill.REFUSE:
            raise StoreUnavailable(TARGET, 0.0, "the request was refused")
        if fault.ill is Ill.SLOW:
            await asyncio.sleep(fault.seconds)
        return fault.ill

    async def reply(self, node: Node, ill: Ill | None) -> None:
        """Let an answer travel back; raises where it is lost."""
        await asyncio.sleep(self._latency())
        if ill is Ill.LOSE or self._is_cut(node.name):
            raise StoreUnavailable(TARGET, 0.0, "the answer was lost")

    def _latency(self) -> float:
        rng = self._world.rng
        return rng.uniform(0.0002, 0.004) if rng.random() < 0.9 else rng.uniform(0.004, 0.2)

    def _is_cut(self, name: str) -> bool:
        return bool(self._cut) and self._world.time < max(self._cut.get(name, 0.0), self._cut.get("", 0.0))
