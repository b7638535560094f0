"""What the parts of a worker have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.environment import WorkerEnvironment
    from holdfast.notify.port import Notifier
    from holdfast.runtime.counters import Counters
    from holdfast.runtime.outage import Outage
    from holdfast.store.port import Store


@dataclass(frozen=True, slots=True)
class Base:
    """The store and its notifier on the worker's event loop, its world, its view of outages and its counters."""

    store: Store
    notifier: Notifier
    environment: WorkerEnvironment
    outage: Outage
    counters: Counters
