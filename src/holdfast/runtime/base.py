"""What the parts of a worker have in common."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  a dataclass field, kept readable for introspection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadSetting
from holdfast.runtime.figures import Figures

if TYPE_CHECKING:
    from holdfast.core.environment import WorkerEnvironment
    from holdfast.notify.port import Notifier
    from holdfast.runtime.counters import Counters
    from holdfast.runtime.outage import Outage
    from holdfast.store.port import Caller, Store


def no_callers(conn: Any) -> Caller:
    """Refuse a connection: where nobody said how to use one."""
    raise BadSetting(f"conn= takes no {type(conn).__name__} here")


@dataclass(frozen=True, slots=True)
class Base:
    """The store and its notifier on the worker's event loop, its world, its view of outages, its counters and figures."""

    store: Store
    notifier: Notifier
    environment: WorkerEnvironment
    outage: Outage
    counters: Counters
    make_caller: Callable[[Any], Caller] = no_callers
    """Turns what a handler brings to `job.transaction(conn=…)` into a transaction of the store's."""
    figures: Figures = field(default_factory=Figures)
    """What its attempts came to, until that is written."""
