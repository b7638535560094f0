"""A store as a node sees it: answers take time or are lost, and what was really done is written down."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError
from lab.sim.environment import NOTE
from lab.sim.history import Done
from lab.sim.ills import Ill
from lab.sim.weather import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.store.port import Store, Transaction
    from lab.sim.history import History
    from lab.sim.ills import Fault
    from lab.sim.weather import Weather
    from lab.sim.world import Node

REPEATABLE: Final = frozenset({"enqueue", "claim", "extend", "progress", "checkpoint", "log", "mark", "settle", "reap", "fire"})
"""What may be carried out twice, and is answered as the second time was."""


class SimStore:
    """A handle of one node on the store that all share. Whatever the port has goes through `ask`."""

    def __init__(self, inner: Store, node: Node, weather: Weather, history: History) -> None:
        self._inner = inner
        self._node = node
        self._weather = weather
        self._history = history

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self.ask(name, method, *args, **kwargs)

        self.__dict__[name] = call
        return call

    async def close(self) -> None:
        """Let go, whatever the weather."""
        await self._inner.close()

    async def begin(self) -> SimTransaction:
        """Begin a transaction for a handler. One whose answer was lost would be undone by whoever has begun it."""
        fault, seconds = self._weather.depart(self._node, "begin")
        await pause(seconds)
        await self._weather.arrive(self._node, fault)
        return SimTransaction(self, await self._inner.begin())

    async def ask(self, name: str, method: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Have an operation carried out, as far as the weather lets it."""
        fault, seconds = self._weather.depart(self._node, name)
        arrives_at = self._node.world.time + seconds
        arrive = partial(self._arrive, fault, name, method, args, kwargs)
        try:
            await pause(seconds)
        except asyncio.CancelledError:
            # who gives up on the answer does not take back the request: it arrives all the same
            asyncio.ensure_future(_alone(arrives_at - self._node.world.time, arrive))  # noqa: RUF006  its loop keeps it
            raise
        return await arrive()

    async def _arrive(
        self,
        fault: Fault | None,
        name: str,
        method: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Carry out what has arrived, and let the answer travel back."""
        await self._weather.arrive(self._node, fault)
        note = Note(self._node, self._history, name, (args, kwargs))
        NOTE.set(note)
        try:
            answer = await method(*args, **kwargs)
        except HoldfastError as error:
            self._node.world.tell(self._node.name, f"{name}: {type(error).__name__}")
            await self._weather.reply(self._node, fault)
            raise
        finally:
            NOTE.set(None)
        note(answer)
        if fault is not None and fault.ill is Ill.DOUBLE and name in REPEATABLE:
            return await self.ask(name, method, *args, **kwargs)
        await self._weather.reply(self._node, fault)
        return answer


async def _alone(seconds: float, arrive: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Let a request arrive whose sender waits for no answer."""
    await pause(seconds)
    with suppress(HoldfastError):
        await arrive()


class Note:
    """Writes down what was done, once: in the moment in which a thread did it, or as soon as it is known."""

    def __init__(self, node: Node, history: History, name: str, given: tuple[Any, Any]) -> None:
        self._node = node
        self._history = history
        self._name = name
        self._given = given
        self._written = False

    def __call__(self, answer: Any) -> None:
        """Write it down, unless that was done."""
        if self._written:
            return
        self._written = True
        world = self._node.world
        done = Done(world.moment(), self._node.name, self._node.life, self._name, self._given, answer)
        self._history.done.append(done)
        world.tell(self._node.name, done)


class SimTransaction:
    """A handler's transaction: what it does is done when it commits."""

    def __init__(self, store: SimStore, inner: Transaction) -> None:
        self._store = store
        self._inner = inner
        self._within: list[tuple[str, tuple[Any, ...], Any]] = []
        self.blocking = inner.blocking
        self.exclusive = inner.exclusive
        self.after_commit = inner.after_commit

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = await method(*args, **kwargs)
            self._within.append((name, args, answer))
            return answer

        return call

    async def commit(self) -> None:
        """Commit: the one moment at which the weather matters."""

        async def commit(*_: Any) -> bool:
            await self._inner.commit()
            return True

        await self._store.ask("commit", commit, *self._within)

    async def rollback(self) -> None:
        """Undo everything."""
        await self._inner.rollback()
