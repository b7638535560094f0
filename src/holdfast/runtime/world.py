"""What a worker is made of, and how it works."""

from __future__ import annotations

from collections.abc import (  # noqa: TC003  dataclass fields, kept readable for introspection
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.health import host_and_port
from holdfast.errors import BadSetting
from holdfast.runtime.base import no_callers

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from holdfast.core.environment import WorkerEnvironment
    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.notify.port import Notifier
    from holdfast.runtime.entry import Middleware
    from holdfast.store.port import Caller, Retention, Store
    from holdfast.tasks.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker works."""

    name: str
    version: str
    concurrency: int = 20
    """Slots: how many jobs it runs at once."""
    queues: frozenset[str] | None = None
    prefetch: int = 0
    """How many short jobs more it may hold, so that no slot waits for a claim."""
    delay: float = 0.0
    poll: float = 60.0
    poll_unhinted: float = 1.0
    retry_share: float = 0.2
    shutdown_timeout: float = 30.0
    exit_when_blocked: bool = False
    capabilities: tuple[str, ...] = ()
    health: str | None = None
    """`[HOST:]PORT` where it answers probes; `None`: nowhere."""

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if type(self.concurrency) is not int or self.concurrency < 1:
            raise BadSetting(f"concurrency must be a whole number from 1, not {self.concurrency}: a worker needs a slot")
        if type(self.prefetch) is not int or self.prefetch < 0:
            raise BadSetting(f"prefetch must be a whole number from 0, not {self.prefetch}")
        for name in ("delay", "shutdown_timeout"):
            if not getattr(self, name) >= 0:
                raise BadSetting(f"{name} must be a number of seconds from 0, not {getattr(self, name)}")
        for name in ("poll", "poll_unhinted"):
            if not getattr(self, name) > 0:
                raise BadSetting(f"{name} must be a number of seconds above 0, not {getattr(self, name)}")
        if not 0 <= self.retry_share <= 1:
            raise BadSetting(f"retry_share must be from 0 to 1, not {self.retry_share}")
        if self.queues is not None and not self.queues:
            raise BadSetting("queues is empty: leave it out to serve every queue")
        if self.health is not None:
            try:
                host_and_port(self.health)
            except ValueError as error:
                raise BadSetting(f"health {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a worker is made of: the app's tasks and hooks, and the adapters."""

    url: str
    make_store: Callable[[], Store]
    make_notifier: Callable[[], Notifier]
    environment: WorkerEnvironment
    tasks: Mapping[str, Task[..., Any]]
    middlewares: Sequence[Middleware]
    lifespans: Sequence[Callable[[], AbstractAsyncContextManager[Any]]]
    listeners: Sequence[Callable[[str, UUID], None]]
    weights: Mapping[str, float]
    retention: Retention
    capabilities: Sequence[Callable[[], Awaitable[Collection[str]]]] = ()
    """Who finds out what a worker has, beside what it was told."""
    limits: Mapping[LimitName, LimitRule] = field(default_factory=dict)
    """What the app says about limits, also that it says nothing about one that it might."""
    outside: frozenset[str] = frozenset()
    """The tasks of the app that nobody runs: they are completed from outside."""
    remote: bool = False
    """Whether the store is behind a server, which does the housekeeping."""
    make_caller: Callable[[Any], Caller] = no_callers
    """Turns a connection or session of the user's own into a transaction of the store's."""
