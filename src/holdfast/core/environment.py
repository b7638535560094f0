"""The world as a store and the runtime see it: clock, chance, identity, threads. Injected, so that it can be simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime
    from uuid import UUID

T = TypeVar("T")


class Runner(Protocol):
    """One thread that runs blocking functions in turn."""

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` there and return what it gave. Cancelling the wait does not stop the function."""
        ...

    def close(self) -> None:
        """End the thread after what it is doing."""
        ...


class Environment(Protocol):
    """Where time, chance, names and threads come from."""

    def now(self) -> datetime:
        """Return the wall clock, UTC. Only an embedded store decides by it; elsewhere the database's clock does."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def lot(self) -> float:
        """Return a number in [0, 1) that decides whose turn it is among equals: not all processes should begin with the same.

        A world made for tests may always return 0: then whoever was first is first.
        """
        ...

    def token(self) -> UUID:
        """Return a fresh secret."""
        ...

    def job_id(self) -> UUID:
        """Return a fresh job id (UUIDv7)."""
        ...

    def runner(self, name: str) -> Runner:
        """Start a thread."""
        ...

    def alarm(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` called after some time, by a thread that nobody can block; returns what calls it off."""
        ...


class LoopThread(Protocol):
    """A thread with an event loop of its own, which runs one coroutine to its end."""

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on that event loop. Safe from any thread; nothing happens once it has ended."""
        ...

    async def join(self) -> None:
        """Wait until the coroutine has ended; raises what it raised."""
        ...


class WorkerEnvironment(Environment, Protocol):
    """What a worker needs besides: event loops that its handlers cannot block."""

    def loop_thread(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> LoopThread:
        """Start a thread that runs `main` on an event loop of its own."""
        ...
