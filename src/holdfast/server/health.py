"""Whether the server lives, and whether it is any use."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from holdfast.core.health import Check, Health, redis_check
from holdfast.core.states import State
from holdfast.errors import HoldfastError, SchemaError
from holdfast.server.alerts.delivering import delivers
from holdfast.server.principal import Right
from holdfast.store.port import Storage, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from holdfast.runtime.worker import RunningWorker
    from holdfast.server.context import Context
    from holdfast.server.loops import Loops
    from holdfast.store.port import WorkerView

IN_TIME: Final = 2.0
"""Seconds within which the store must answer."""
KEPT: Final = 1.0
"""Seconds that an answer of the store is told again: probes do not load it."""


class Figures(msgspec.Struct, frozen=True):
    """What there is, for those who may look."""

    active_workers: int
    """Those that are not offline and do not drain."""
    pending_jobs: int
    """Ready or scheduled."""
    running_jobs: int
    storage: Storage


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """How it stands, and with what."""

    ok: bool
    checks: list[Check]
    figures: Figures | None = None


def health_routes(context: Context, loops: Sequence[Loops], hosted: Sequence[RunningWorker]) -> list[BaseRoute]:
    """Return `/health/live`, which asks nobody, and `/health/ready`, which asks the store.

    Neither asks for a key. Figures are told only to those who may look. `hosted` are the workers in this process.
    """
    probes = Probes(context, loops, hosted)
    return [Route("/health/live", probes.live, methods=["GET"]), Route("/health/ready", probes.ready, methods=["GET"])]


class Probes:
    """Looks at the loops, and at the store once a second at most."""

    def __init__(self, context: Context, loops: Sequence[Loops], hosted: Sequence[RunningWorker]) -> None:
        self._context = context
        self._loops = loops
        self._hosted = hosted
        self._reading = asyncio.Lock()
        self._read_at = -math.inf
        self._read: tuple[list[Check], Figures | None] = ([], None)

    async def live(self, _: Request) -> Response:
        """Tell whether the event loop turns, which it does by answering, and the loops move."""
        health = Health.of(self._moving())
        return _answer(health, ok=health.ok)

    async def ready(self, request: Request) -> Response:
        """Tell whether the store answers and the loops move; and figures to those who may look."""
        checks, figures = await self._latest()
        redis = redis_check(self._context.notifier.figures())
        health = Health.of([*checks, *([] if redis is None else [redis]), *self._moving()])
        if figures is not None and not await self._may_look(request):
            figures = None
        return _answer(Ready(health.ok, health.checks, figures), ok=health.ok)

    def _moving(self) -> list[Check]:
        now = self._context.environment.monotonic()
        return [*(check for loops in self._loops for check in loops.checks(now)), *map(_worker, self._hosted)]

    async def _latest(self) -> tuple[list[Check], Figures | None]:
        async with self._reading:  # those who come meanwhile are told the same
            if self._context.environment.monotonic() - self._read_at >= KEPT:
                self._read = await self._ask()
                self._read_at = self._context.environment.monotonic()
            return self._read

    async def _ask(self) -> tuple[list[Check], Figures | None]:
        # no more than the kind of an error to those who have no key
        try:
            async with asyncio.timeout(IN_TIME):
                figures = await self._figures()
        except TimeoutError:
            return [Check("database", ok=False, detail=f"no answer within {IN_TIME:g} s")], None
        except SchemaError as error:
            return [Check("database", ok=True), Check("schema", ok=False, detail=type(error).__name__)], None
        except HoldfastError as error:
            return [Check("database", ok=False, detail=type(error).__name__)], None
        return [Check("database", ok=True), Check("schema", ok=True)], figures

    async def _figures(self) -> Figures:
        store = self._context.store
        storage = await store.storage()
        stats = await store.stats()
        return Figures(
            active_workers=sum(_works(view) for view in await store.workers()),
            pending_jobs=stats.count(State.READY, State.SCHEDULED),
            running_jobs=stats.count(State.RUNNING),
            storage=storage,
        )

    async def _may_look(self, request: Request) -> bool:
        try:
            async with asyncio.timeout(IN_TIME):
                principal = await self._context.door.principal(request)
        except (HoldfastError, TimeoutError):  # nobody we know, then: a probe is answered all the same
            return False
        return principal is not None and principal.may(Right.LOOK) and principal.queues is None


def _works(view: WorkerView) -> bool:
    return view.state is not WorkerState.OFFLINE and not view.drains and not view.manages and not delivers(view)


def _worker(worker: RunningWorker) -> Check:
    """Return how it stands with a worker in this process, which has this event loop."""
    failed = [check.name for check in worker.health().live.checks if not check.ok]
    return Check("worker", ok=not failed, detail=", ".join(failed))


def _answer(told: Health | Ready, *, ok: bool) -> Response:
    return Response(msgspec.json.encode(told), 200 if ok else 503, media_type="application/json")
