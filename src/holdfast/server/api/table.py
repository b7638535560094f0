"""What an endpoint is: a row of a table, from which requests are served and the OpenAPI document is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from holdfast.errors import HoldfastError
from holdfast.server.alerts.delivering import QUEUE, TASK
from holdfast.wire.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    import msgspec
    from starlette.requests import Request

    from holdfast.core.environment import Environment
    from holdfast.notify.port import Notifier
    from holdfast.server.api.hearing import Hearing
    from holdfast.server.api.ledger import Ledger
    from holdfast.server.api.owners import Owners
    from holdfast.server.api.signs import Signs
    from holdfast.server.context import Context
    from holdfast.server.principal import Principal, Right
    from holdfast.server.settings import ServerSettings
    from holdfast.store.port import Store

OWN: Final = frozenset({QUEUE, TASK})
"""The queue and the task of alerts."""
B = TypeVar("B")

ALWAYS: Final = (401, 429, 503)
"""What every endpoint may answer."""
WITH_RIGHT: Final = (403,)
WITH_BODY: Final = (400, 413, 415)
WITH_ID: Final = (400,)
WITH_QUERY: Final = (400,)


class Refused(HoldfastError):
    """A request is refused with this status and problem."""

    def __init__(self, status: int, problem: Problem, *, retry_after: int | None = None) -> None:
        self.status = status
        self.problem = problem
        self.retry_after = retry_after
        super().__init__(problem.message)


@dataclass(frozen=True, slots=True)
class Asked(Generic[B]):
    """A request that has come through the door: who makes it, and what it says."""

    context: Context
    hearing: Hearing
    ledger: Ledger
    owners: Owners
    signs: Signs
    request: Request
    principal: Principal
    body: B
    """What it says: its body, or its query."""
    ids: tuple[UUID, ...] = ()

    @property
    def id(self) -> UUID:
        """The id in the path."""
        return self.ids[0]

    @property
    def store(self) -> Store:
        """The store."""
        return self.context.store

    @property
    def notifier(self) -> Notifier:
        """Where hints are sent."""
        return self.context.notifier

    @property
    def environment(self) -> Environment:
        """Clock, chance and names."""
        return self.context.environment

    @property
    def settings(self) -> ServerSettings:
        """How much the server takes."""
        return self.context.settings

    def sees(self, queue: str) -> bool:
        """Tell whether the key reaches a queue at all."""
        return self.principal.queues is None or queue in self.principal.queues

    def allow(self, right: Right, queue: str) -> None:
        """Refuse what the key may not do in a queue."""
        if not self.principal.may(right, queue):
            raise forbidden(self.principal, right, queue)

    async def allow_jobs(self, right: Right, job_ids: Iterable[UUID]) -> None:
        """Refuse what the key may not do with jobs of other queues, whatever tokens it shows. Jobs that are not there pass.

        A job stays in its queue, so this may be looked up before the write. A key for all queues is not looked anything up for.
        """
        if self.principal.queues is None:
            return
        for view in await self.store.get(list(dict.fromkeys(job_ids))):
            if view is not None:
                self.allow(right, view.queue)


def refuse_own(name: str) -> None:
    """Refuse a queue or a task of Holdfast's own: whoever could enqueue or run its jobs could forge or swallow alerts."""
    if name in OWN:
        problem = Problem(error="forbidden", message=f"{name!r} is Holdfast's own", fix="choose another name")
        raise Refused(403, problem)


Handler = Callable[[Asked[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One endpoint."""

    method: str
    path: str
    """Below `/api/v1`; an id in it is `{id}`."""
    name: str
    summary: str
    rights: tuple[Right, ...]
    """Of which the key must have one; none: any key will do."""
    handle: Handler
    answer: type[msgspec.Struct] | None
    """`None`: a stream of events."""
    body: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    """What may follow the `?`, where there is no body: a field that is a list may be named several times."""
    refuses: tuple[int, ...] = ()
    """Statuses of its own, besides those that go with what it takes."""
    keeps: bool = False
    """Whether it keeps or ends a lease: a key that asks too often for other things may still do it."""

    @property
    def statuses(self) -> tuple[int, ...]:
        """Every status it may answer with."""
        own = (200, *ALWAYS, *self.refuses)
        own += WITH_RIGHT if self.rights else ()
        own += WITH_BODY if self.body is not None else ()
        own += WITH_QUERY if self.query is not None else ()
        own += WITH_ID if "{id}" in self.path else ()
        return tuple(sorted(set(own)))


def forbidden(principal: Principal, right: Right, queue: str | None = None) -> Refused:
    """Return the refusal of what a key does not allow, naming what is missing."""
    what = f"the right {right.value!r}" if queue is None else f"the right {right.value!r} in the queue {queue!r}"
    facts: dict[str, Any] = {"right": right.value} | ({} if queue is None else {"queue": queue})
    problem = Problem(
        error="forbidden",
        message=f"the key {principal.name!r} ({principal.role.value}) does not have {what}",
        fix="use a key that has it: holdfast keys add",
        facts=facts,
    )
    return Refused(403, problem)


def unauthorized() -> Refused:
    """Return the refusal of somebody we do not know. It does not say what was wrong."""
    problem = Problem(
        error="unauthorized",
        message="no key was given, or one that is not known here, has expired or was revoked",
        fix="send the header Authorization: Bearer hf_…, with a key made by: holdfast keys add",
    )
    return Refused(401, problem)
