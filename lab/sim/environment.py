"""Clock, chance, identity and threads of a simulated process."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import deque
from contextvars import ContextVar
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from lab.sim.loop import NodeLoop
    from lab.sim.world import Node

T = TypeVar("T")

NOTE: ContextVar[Callable[[Any], None] | None] = ContextVar("note", default=None)
"""What is to be told what a thread has done for this task, in that very moment: its caller may be dead by then."""
BUSY: Final = 10.0
"""Seconds for which a transaction waits for another writer of the file."""


UNDO: Final = "_undo"
"""What a transaction does when it has ended: nothing is done to the store by that."""


class _Call(NamedTuple):
    function: Callable[[], Any]
    future: asyncio.Future[Any]
    note: Callable[[Any], None] | None
    until: float


class NodeEnvironment:
    """`core.environment.WorkerEnvironment`, from the seed."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._world = node.world
        self._rng = node.world.rng
        self._lots = random.Random(f"{node.world.seed} {node.name} {node.life}")
        """Apart from all else that is drawn: whose turn it is says nothing about what goes wrong."""
        self._base = node.world.rng.uniform(10.0, 1e6)
        """When this machine was started: monotonic clocks of two machines have nothing in common."""
        self._last_id = 0
        self.skew = 0.0
        """How far this process's clock is off the store's, in seconds."""

    def of_store(self) -> NodeEnvironment:
        """Return the same with the right clock: the one that a store decides by is its own."""
        right = copy(self)
        right.skew = 0.0
        return right

    def now(self) -> datetime:
        """Return the wall clock."""
        return self._world.now() + timedelta(seconds=self.skew)

    def monotonic(self) -> float:
        """Return the seconds since some moment of this node's own."""
        return self._world.time + self._base

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._rng.random()

    def lot(self) -> float:
        """Return a number in [0, 1) that decides whose turn it is among equals."""
        return self._lots.random()

    def token(self) -> UUID:
        """Return a fresh secret."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def job_id(self) -> UUID:
        """Return a fresh job id: a UUIDv7, later than the one before."""
        milliseconds = int(self.now().timestamp() * 1000)
        made = (milliseconds << 80) | (0x7 << 76) | (0x2 << 62) | self._rng.getrandbits(62)
        self._last_id = made if made > self._last_id else self._last_id + 1 + self._rng.getrandbits(20)
        return UUID(int=self._last_id)

    def runner(self, name: str) -> SimRunner:  # noqa: ARG002  threads have no names here
        """Start a thread."""
        return SimRunner(self._node)

    def alarm(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` called after some time."""
        calls = [call]

        def ring() -> None:
            for one in calls:
                one()

        self._world.at(self._world.time + seconds, self._node, ring)
        return calls.clear

    def loop_thread(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> SimLoopThread:
        """Start a thread with an event loop of its own."""
        return SimLoopThread(self._node, name, main)


class SimRunner:
    """A thread for blocking calls: each takes a moment, in turn, and is done at once at its end."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._calls: deque[_Call] = deque()
        self._busy = False

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in turn and return what it gave."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(function, future, NOTE.get(), self._node.world.time + BUSY))
        if not self._busy:
            self._next()
        return await future

    def close(self) -> None:
        """Nothing is left behind: what was asked for and not done yet is forgotten with its caller."""

    def _next(self) -> None:
        """Begin with the next call. One whose caller is cancelled before its turn is not made, and afterwards it is."""
        world = self._node.world
        while self._calls and self._calls[0].future.cancelled():
            self._calls.popleft()
        self._busy = bool(self._calls)
        if self._busy:
            world.at(world.time + world.rng.uniform(0.0002, 0.003), self._node, self._do)

    def _do(self) -> None:
        function, future, note, until = self._calls[0]
        world = self._node.world
        try:
            answer: Any = function()
        except StoreUnavailable as error:
            if world.time < until and _busy(error):  # as SQLite would wait in the thread
                world.at(world.time + world.rng.uniform(0.001, 0.02), self._node, self._do)
                return
            self._give(future, error)
        except BaseException as error:  # noqa: BLE001  handed to whoever asked
            self._give(future, error)
        else:
            if note is not None and function.__name__ != UNDO:
                note(answer)
            self._give(future, None, answer)
        self._calls.popleft()
        self._next()

    def _give(self, future: asyncio.Future[Any], error: BaseException | None, value: Any = None) -> None:
        future.get_loop().call_soon(_answer, future, error, value)


def _answer(future: asyncio.Future[Any], error: BaseException | None, value: Any) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _busy(error: StoreUnavailable) -> bool:
    cause = error.__cause__
    return isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


class SimLoopThread:
    """`core.environment.LoopThread`: another event loop of the same node."""

    def __init__(self, node: Node, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._over = False
        self._error: BaseException | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: NodeLoop = node.start(self._run, name)

    async def _run(self) -> None:
        try:
            await self._main()
        except BaseException as error:  # noqa: BLE001  handed to whoever joins
            self._error = error
        self._over = True
        for future in self._waiting:
            future.get_loop().call_soon_threadsafe(_answer, future, None, None)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on that event loop."""
        if not self._over:
            self._loop.call_soon_threadsafe(function)

    async def join(self) -> None:
        """Wait until the coroutine has ended; raises what it raised."""
        if not self._over:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        if self._error is not None:
            raise self._error
