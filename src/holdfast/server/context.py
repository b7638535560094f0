"""What every part of the server shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.runtime.counters import MemoryCounters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from starlette.requests import HTTPConnection

    from holdfast.core.environment import Environment
    from holdfast.notify.port import Notifier
    from holdfast.server.alerts.target import Target
    from holdfast.server.keyring import Keyring
    from holdfast.server.principal import Principal
    from holdfast.server.settings import ServerSettings
    from holdfast.store.port import Store
    from holdfast.tasks.task import Task


class Door(Protocol):
    """Who comes in."""

    async def principal(self, request: HTTPConnection, *, keeps: bool = False) -> Principal | None:
        """Return who makes a request, by its key or its cookie; `None` for nobody we know.

        `keeps`: it keeps or ends a lease, and is counted apart from whatever else the key asks for.
        """
        ...

    async def still(self, principal: Principal) -> bool:
        """Tell whether somebody who came in may still be here: for requests that take long."""
        ...


@dataclass(kw_only=True)
class Context:
    """The store and what stands around it. Belongs to one event loop."""

    id: UUID
    """Of this server, since it was started: several may stand before one store."""
    store: Store
    notifier: Notifier
    environment: Environment
    settings: ServerSettings
    keyring: Keyring
    door: Door
    version: str
    tasks: Mapping[str, Task[..., Any]] = field(default_factory=dict)
    """Those of the app, where it was given one."""
    alerts: Sequence[Target] = ()
    """Where alerts are sent from here."""
    counters: MemoryCounters = field(default_factory=MemoryCounters)
    """What this server has counted since it started."""
