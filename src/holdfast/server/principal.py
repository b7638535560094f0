"""Who makes a request, and what that one may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from holdfast.core.limits import LimitKind, LimitName
from holdfast.store.port import Role

if TYPE_CHECKING:
    from collections.abc import Iterable


class Right(StrEnum):
    """What a request needs. The names are those of `Key.actions`."""

    LOOK = "look"
    """See jobs, queues, workers, figures."""
    STEER = "steer"
    """Retry, cancel, complete, fail, delete jobs; pause and resume queues; set limits; steer workers; run schedules."""
    KEYS = "keys"
    """Make, expire and revoke keys."""
    AUDIT = "audit"
    """Read the audit log, and redeliver alerts."""
    WORK = "work"
    """Register, claim, and everything else that a worker does."""
    ENQUEUE = "enqueue"
    """Create jobs."""
    GET = "get"
    """Get one job by its id."""
    CANCEL = "cancel"
    """Cancel one job by its id."""


RIGHTS: Final = {
    Role.VIEWER: frozenset({Right.LOOK, Right.GET}),
    Role.OPERATOR: frozenset({Right.LOOK, Right.GET, Right.STEER, Right.CANCEL, Right.ENQUEUE, Right.AUDIT}),
    Role.ADMIN: frozenset(Right),
    Role.WORKER: frozenset({Right.WORK, Right.ENQUEUE, Right.GET}),
    Role.CLIENT: frozenset({Right.ENQUEUE, Right.GET, Right.CANCEL}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever makes a request."""

    name: str
    """The actor in audit and event logs."""
    role: Role
    queues: frozenset[str] | None = None
    """`None`: all."""
    actions: frozenset[str] | None = None
    """`None`: all that the role may."""
    key: str | None = None
    """The id of the key, where there is one."""
    expires: bool = False
    """Whether that key ends by itself."""

    @property
    def is_veiled(self) -> bool:
        """Whether secrets in args and results are kept from it: from people who look, not from machines that work with them."""
        return self.role in (Role.VIEWER, Role.OPERATOR)

    @property
    def bounds(self) -> tuple[str, ...]:
        """How its key is narrowed, in words. Who is makes no keys: they could reach further or live longer."""
        queues = () if self.queues is None else (f"to the queues {', '.join(sorted(self.queues))}",)
        actions = () if self.actions is None else (f"to the actions {', '.join(sorted(self.actions))}",)
        return (*queues, *actions, *(("by the time it ends",) if self.expires else ()))

    def may(self, right: Right, queue: str | None = None) -> bool:
        """Tell whether a request that needs this right, about this queue, is allowed."""
        return (
            right in RIGHTS[self.role]
            and (self.actions is None or right in self.actions)
            and (queue is None or self.queues is None or queue in self.queues)
        )

    def reaches(self, name: LimitName) -> bool:
        """Tell whether a limit is this one's to see and set: who is bound to queues has those of these alone."""
        return self.queues is None or (name.kind is LimitKind.QUEUE and name.name in self.queues)


def actions_flaw(role: Role, actions: Iterable[str]) -> str | None:
    """Say which of these a role may not do, and so no key of it; `None`: it may do them all."""
    for action in actions:
        if action not in RIGHTS[role]:
            article = "an" if role.value[0] in "aeiou" else "a"
            return f"{article} {role.value} may {', '.join(sorted(RIGHTS[role]))}, and not {action!r}"
    return None
