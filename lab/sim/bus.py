"""Hints between simulated nodes: they come late, or never."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from holdfast.notify.port import NOTHING_HANDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.notify.port import Handed, Hint, Listener, Serving
    from lab.sim.weather import Weather
    from lab.sim.world import Node, World


class Bus:
    """What carries hints."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.world = world
        self.weather = weather
        self.ears: list[Ear] = []

    def send(self, hint: Hint) -> None:
        """Deliver a hint to everybody who listens, to each in its time."""
        for ear in self.ears:
            for delay in self.weather.hint_delays() if ear.node.alive else ():
                self.world.at(self.world.time + delay, ear.node, partial(ear.hear, hint))


class Ear:
    """Somebody who listens."""

    def __init__(self, node: Node, listener: Listener) -> None:
        self.node = node
        self._listener = listener
        self._loop = asyncio.get_running_loop()

    def hear(self, hint: Hint) -> None:
        """Tell it on its event loop."""
        self._loop.call_soon(self._listener, hint)


class BusNotifier:
    """`notify.port.Notifier` over the bus."""

    def __init__(self, bus: Bus, node: Node) -> None:
        self._bus = bus
        self._node = node
        self._ear: Ear | None = None

    async def listen(self, listener: Listener, serving: Serving | None = None) -> None:  # noqa: ARG002  all hear all
        """Begin to hear hints."""
        self._ear = Ear(self._node, listener)
        self._bus.ears.append(self._ear)

    @property
    def healthy(self) -> bool:
        """Whether hints arrive."""
        return self._bus.weather.hints_arrive

    def hint(self, hint: Hint, *, told: bool = False) -> None:  # noqa: ARG002  nothing is sent with a commit
        """Send a hint."""
        if hint:
            self._bus.send(hint)

    def with_commit(self, hint: Hint) -> None:
        """Return nothing: hints follow the commit."""

    def heed(self) -> Handed:
        """Return nothing: everyone hears everything."""
        return NOTHING_HANDED

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Do nothing: others have heard."""

    def figures(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    async def close(self) -> None:
        """Hear no more."""
        if self._ear is not None and self._ear in self._bus.ears:
            self._bus.ears.remove(self._ear)
