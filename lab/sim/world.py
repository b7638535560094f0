"""The simulated world: one clock, one seed, and nodes whose event loops it turns by a callback at a time."""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import sqlite3
import sys
import warnings
from asyncio import events
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lab.sim.environment import NodeEnvironment
from lab.sim.history import Trouble
from lab.sim.loop import NodeLoop
from lab.sim.telling import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lab.sim.history import Done

EPOCH: Final = datetime(2030, 1, 1, 0, 0, 45, tzinfo=UTC)
"""When it begins: a quarter of a minute before a slot of the schedule, which thus is fired in the midst of the storm."""
RESTS: Final = 6.0
"""Seconds that a process rests at most after a failure, and some for what it does then."""
MOST_STEPS: Final = 60_000
"""Callbacks after which a run that does not end is given up: something spins."""


class Moment(NamedTuple):
    """When something was done to the store."""

    sequence: int
    """Grows with everything that is done to it."""
    time: float
    now: datetime
    """By the store's clock."""


class Spinning(Exception):
    """The simulated processes keep each other busy without any time passing, or for ever."""


class Node:
    """A process: event loops, threads, and what the operating system takes back when it is killed."""

    def __init__(self, world: World, name: str, life: int) -> None:
        self.world = world
        self.name = name
        self.life = life
        """How many processes had this name before."""
        self.alive = True
        self.born_at = world.time
        self.ended_at = math.inf
        self.frozen = False
        self.steps = 0
        """How many callbacks it has run."""
        self.dies_at = -1
        """The callback before which it is killed, like this:"""
        self.die: Callable[[], None] = self.kill
        self.freezes_at = -1
        """The callback before which it is frozen, for so long:"""
        self.freezes_for = 0.0
        self.environment = NodeEnvironment(self)
        self._stop: asyncio.Event | None = None
        self._stop_asked = False
        self.connections: list[sqlite3.Connection] = []
        """Closed by a kill, as the operating system would: that gives up their locks."""
        self._loops: list[NodeLoop] = []
        self._missed: list[Callable[[], None]] = []
        """What came due while it was frozen."""

    def start(self, main: Callable[[], Coroutine[Any, Any, Any]], name: str = "main") -> NodeLoop:
        """Start a thread of this process whose event loop runs a coroutine."""
        loop = NodeLoop(self)  # type: ignore[abstract]  # there are no sockets here, and no processes
        self._loops.append(loop)
        loop.call_soon(lambda: loop.create_task(main(), name=name))
        return loop

    def kill(self) -> None:
        """End it as SIGKILL does: nothing of it runs any more, not even a `finally`."""
        if self.alive:
            self.alive = False
            self.ended_at = self.world.time
            self.world.tell(self.name, "is killed")
            for connection in self.connections:
                sqlite3.Connection.close(connection)  # a handler's own refuses to be closed by anybody else

    def dispose(self) -> None:
        """Close what its tasks were in the midst of, where nobody can see it."""
        for loop in self._loops:
            loop.dispose()

    async def asked_to_stop(self) -> None:
        """Wait until it is asked to stop."""
        self._stop = asyncio.Event()
        if not self._stop_asked:
            await self._stop.wait()

    def stop(self) -> None:
        """Ask it to stop, as SIGTERM does."""
        self._stop_asked = True
        self.world.tell(self.name, "is asked to stop")
        if self._stop is not None:
            self._loops[0].call_soon(self._stop.set)

    def freeze(self, seconds: float) -> None:
        """Stop it for a while, as SIGSTOP and SIGCONT do."""
        if self.alive and not self.frozen:
            self.frozen = True
            self.world.frozen.append((self.name, self.world.time, self.world.time + seconds))
            self.world.tell(self.name, f"is frozen for {seconds:.1f} s")
            self.world.at(self.world.time + seconds, None, self._thaw)

    def _thaw(self) -> None:
        self.frozen = False
        if not self.alive:
            return
        self.world.tell(self.name, "goes on")
        missed, self._missed = self._missed, []
        for call in missed:
            call()
        for loop in self._loops:
            if loop.ready and not loop.queued:
                self.world.wake(loop)

    def due(self, call: Callable[[], None]) -> None:
        """Do what has come due, now or when it is no longer frozen."""
        if self.frozen:
            self._missed.append(call)
        elif self.alive:
            self.world.acting = self
            call()


class World:
    """Everything there is: `run` turns it until it is done or the time is over. The same seed gives the same trace."""

    def __init__(self, seed: int, owner: object) -> None:
        self.owner = owner
        """Whose world it is: what runs in it finds the rest from there."""
        self.seed = seed
        self.rng = random.Random(seed)
        self.time = 0.0
        self.step_of_clock = 0.0
        """How far the store's clock was set, in seconds."""
        self._sequence = 0
        self.lines: list[Line] = []
        """All that happens."""
        self.complaints: list[str] = []
        """What no process should let happen: errors that nobody caught."""
        self.frozen: list[tuple[str, float, float]] = []
        """Who stood still, from when until when."""
        self.troubles: list[Trouble] = []
        self.nodes: dict[str, Node] = {}
        self.acting: Node | None = None
        """The node that does something now: what it opens is its own."""
        self._graves: list[Node] = []
        self._timers: list[tuple[float, int, Node | None, Callable[[], None]]] = []
        self._timer_number = 0
        self._runnable: list[NodeLoop] = []

    def node(self, name: str) -> Node:
        """Make a process; one of the same name must be dead."""
        last = self.nodes.get(name)
        if last is not None:
            self._graves.append(last)
        node = self.nodes[name] = Node(self, name, 0 if last is None else last.life + 1)
        return node

    def bury(self) -> None:
        """Do away with everybody. Left to the garbage collector, their `finally` would run in the midst of another world."""
        told, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings(action="ignore"):
                for node in (*self._graves, *self.nodes.values()):
                    node.kill()
                    node.dispose()
        finally:
            sys.unraisablehook = told
        for kept in (self.lines, self._timers, self._runnable, self._graves, self.nodes):
            kept.clear()

    def lives(self) -> dict[tuple[str, int], tuple[float, float]]:
        """Return from when until when each process lived."""
        return {(one.name, one.life): (one.born_at, one.ended_at) for one in (*self._graves, *self.nodes.values())}

    def now(self) -> datetime:
        """Return the store's clock."""
        return EPOCH + timedelta(seconds=self.time + self.step_of_clock)

    def moment(self) -> Moment:
        """Return this moment, in which something is done to the store."""
        self._sequence += 1
        return Moment(self._sequence, self.time, self.now())

    def at(self, when: float, node: Node | None, call: Callable[[], None]) -> None:
        """Have something done at a time: by a node, which may be frozen or dead then, or by the world."""
        self._timer_number += 1
        heapq.heappush(self._timers, (when, self._timer_number, node, call))

    def wake(self, loop: NodeLoop) -> None:
        """Note that a loop has something to run."""
        loop.queued = True
        self._runnable.append(loop)

    def trouble(self, node: str, seconds: float, *, lasts: bool = True) -> None:
        """Note that a node, or everybody, will not do what it should for a while: it also rests before it tries again."""
        self.troubles.append(Trouble(node, self.time, self.time + seconds + RESTS, lasts))

    def tell(self, who: str, what: str | Done) -> None:
        """Write a line of the trace."""
        self.lines.append(Line(self.time, who, what))

    def complain(self, node: Node, context: dict[str, Any]) -> None:
        """Note an error that nobody has caught."""
        error = context.get("exception")
        text = f"{node.name}: {context.get('message')}: {type(error).__name__}: {error}"
        self.complaints.append(text)
        self.tell(node.name, f"UNCAUGHT {text}")

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Turn everything until a time, or until `done` says so after something has happened."""
        try:
            self._turn(until, done)
        finally:
            events._set_running_loop(None)

    def _turn(self, until: float, done: Callable[[], bool]) -> None:
        runnable, timers, choose = self._runnable, self._timers, self.rng.random
        steps = 0
        while True:
            while runnable:
                steps += 1
                if steps > MOST_STEPS:
                    raise Spinning(f"{steps} callbacks by {self.time:.3f} s")
                # any thread of any process may be next
                index = int(choose() * len(runnable)) if len(runnable) > 1 else 0
                loop = runnable[index]
                node = loop.node
                if not node.alive or node.frozen or not loop.ready:
                    loop.queued = False
                    runnable[index] = runnable[-1]
                    runnable.pop()
                    continue
                node.steps += 1
                if node.steps == node.dies_at:
                    node.die()
                elif node.steps == node.freezes_at:
                    node.freeze(node.freezes_for)
                else:
                    self.acting = node
                    loop.step()
            events._set_running_loop(None)
            if done():
                return
            if not timers or timers[0][0] > until:
                self.time = until
                return
            when, _, node_, call = heapq.heappop(timers)
            self.time = max(self.time, when)
            if node_ is None:
                call()
            else:
                node_.due(call)
