"""An event loop of a simulated process: it runs what it was given when the simulation says so, at the simulation's time."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from lab.sim.world import Node

_NUMBERS = count()


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory: some are cancelled in the order of a set."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


MOST_TRIES: Final = 20
"""A coroutine may want to await something more, now and then, before it lets go."""


def _closed(task: asyncio.Task[Any]) -> bool:
    """Close the coroutine of a task; tells whether that was all."""
    coroutine = task.get_coro()
    try:
        if coroutine is not None:
            coroutine.close()
    except BaseException:  # noqa: BLE001  of a process that is dead
        return False
    return True


def _over(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class NodeLoop(asyncio.AbstractEventLoop):
    """One thread of a node with an event loop. Callbacks of one loop run in their order; between loops the seed decides."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.ready: deque[asyncio.Handle] = deque()
        self.queued = False
        """Whether the world knows that it has something to run."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """Kept alive, also when their node is dead: collected, they would run their `finally`."""
        self._world = node.world

    def step(self) -> None:
        """Run one callback. The loop stays the running one until the world says otherwise: it mostly is again, at once."""
        handle = self.ready.popleft()
        if not handle._cancelled:
            events._set_running_loop(self)
            handle._run()

    def pause(self, seconds: float) -> asyncio.Future[None]:
        """Return what is done after some seconds: as `asyncio.sleep`, at a third of its cost. Every request does it twice."""
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        self._world.at(self._world.time + seconds, self.node, partial(_over, future))
        return future

    def dispose(self) -> None:
        """Close every coroutine. What they want done on their way out, they ask of this loop, which does nothing any more."""
        events._set_running_loop(self)
        try:
            for _ in range(MOST_TRIES):
                tasks, self.tasks = self.tasks, set()
                for task in tasks:
                    if not _closed(task):
                        self.tasks.add(task)
                if not self.tasks:
                    break
        finally:
            events._set_running_loop(None)

    # what asyncio asks of a loop

    def time(self) -> float:
        """Return the world's time."""
        return self._world.time

    def get_debug(self) -> bool:
        """Tell that nothing is checked."""
        return False

    def is_running(self) -> bool:
        """Tell that it runs: the world sees to that."""
        return True

    def is_closed(self) -> bool:
        """Tell that it is open, also when its node is dead: nobody of that process is left to see to it."""
        return False

    def call_soon(  # type: ignore[override]  # no need to know how args fit
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Have a callback run."""
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # as above
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Have a callback run, from another thread of the node."""
        if not self.node.alive:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have a callback run after some seconds."""
        return self.call_at(self._world.time + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have a callback run at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.at(when, self.node, partial(self._ring, handle))
        return handle

    def _ring(self, handle: asyncio.TimerHandle) -> None:
        if not handle._cancelled:
            self._add(handle)

    def _add(self, handle: asyncio.Handle) -> None:
        self.ready.append(handle)
        if not self.queued:
            self._world.wake(self)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: it is passed over when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # as above
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Start a task."""
        task = NumberedTask(coro, loop=self, name=name or "task", context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a kill leaves many
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell the world of what nobody has caught."""
        self._world.complain(self.node, context)
