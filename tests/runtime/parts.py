"""The parts of a worker on stand-ins: a world without chance, and what a `Base` is made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from holdfast.core.job import Policy
from holdfast.core.lease import Claimed
from holdfast.notify.port import NOTHING_HANDED
from holdfast.runtime.attempt import Attempt
from holdfast.runtime.base import Base
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.outage import Outage
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from holdfast.notify.port import Handed, Hint

_WORLD = SystemEnvironment()


class Even(SystemEnvironment):
    """The real world with an even chance: jitter becomes a fixed figure."""

    def random(self) -> float:
        return 0.5


class Hints:
    """Remembers hints instead of sending them."""

    healthy = True

    def __init__(self) -> None:
        self.sent: list[Hint] = []

    def hint(self, hint: Hint, *, told: bool = False) -> None:
        if hint:
            self.sent.append(hint)

    def with_commit(self, hint: Hint) -> None: ...

    def heed(self) -> Handed:
        return NOTHING_HANDED

    def figures(self) -> dict[str, int]:
        return {}


def a_base(store: Any = None, notifier: Any = None) -> Base:
    """Return what parts of a worker share, around a store that a test plays."""
    world = Even()
    return Base(cast("Any", store), notifier or cast("Any", Hints()), world, Outage(world), MemoryCounters())


def an_attempt(**fields: Any) -> Attempt:
    """Return an attempt at a job that no store knows."""
    now = _WORLD.now()
    given: dict[str, Any] = {
        "job_id": _WORLD.job_id(),
        "token": uuid4(),
        "attempt": 1,
        "failures": 0,
        "task": "note",
        "queue": "mail",
        "priority": 5,
        "args": "{}",
        "policy": Policy(),
        "lease_seconds": 60.0,
        "created_at": now,
        "claimed_at": now,
        "expires_at": now,
    }
    entry = SimpleNamespace(task=SimpleNamespace(sealer=None))
    return Attempt.of(Claimed(**given | fields), cast("Any", entry), _WORLD.monotonic())
