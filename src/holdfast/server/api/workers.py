"""Workers: who they are, that they live, and what they claim."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.lease import Taken
from holdfast.core.outcome import Released
from holdfast.core.settle import settle
from holdfast.core.text import checked_name
from holdfast.errors import StoreUnavailable
from holdfast.notify.port import Hint
from holdfast.runtime import counters as count
from holdfast.server.api.hearing import Full
from holdfast.server.api.leases import allowed
from holdfast.server.api.table import Asked, Refused, forbidden, refuse_own, unauthorized
from holdfast.server.principal import Right
from holdfast.store.port import Beat, ClaimRequest, Settlement
from holdfast.wire.leases import ClaimAnswer, ClaimBody, LeasesAnswer, LeaseState, ref_of
from holdfast.wire.problems import Problem
from holdfast.wire.values import ms, seconds, text_or_empty
from holdfast.wire.workers import Done, HeartbeatAnswer, HeartbeatRequest, RegisterAnswer, RegisterRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.lease import Claimed
    from holdfast.server.api.hearing import Ear

HEARTBEAT: Final = 20.0
"""Seconds between two signs of life."""
UNHINTED: Final = 1.0
"""Seconds between two looks for jobs while no hints arrive."""
BESIDE_IDLE: Final = 2.0
"""Seconds between two looks while others could take what prefers them: for how long it is left to them nobody hints at."""
REST: Final = 0.05
"""Seconds between two looks at least: hints may come thick and fast, and be about jobs of others."""


async def register(asked: Asked[RegisterRequest]) -> RegisterAnswer:
    """Make a worker known, or change what it says of itself."""
    worker_id = asked.environment.job_id() if asked.body.id is None else asked.body.id
    if asked.body.id is not None:
        await asked.owners.check(asked.principal, worker_id)
    worker = asked.body.worker(worker_id, asked.principal.name)
    await asked.store.register(worker)
    asked.owners.registered(worker)
    asked.signs.beaten(worker_id)
    return RegisterAnswer(id=worker_id, heartbeat_ms=ms(HEARTBEAT), longest_wait_ms=ms(asked.settings.longest_poll))


async def heartbeat(asked: Asked[HeartbeatRequest]) -> HeartbeatAnswer:
    """Note a sign of life, and extend leases with it."""
    await asked.owners.check(asked.principal, asked.id)
    leases = await allowed(asked, asked.body.leases)
    counters = text_or_empty(asked.body.counters, "counters")
    counts = counters != "{}"  # it counts by itself what happens to it
    try:
        signal = await asked.store.beat(Beat(worker=asked.id, counters=counters))
        asked.signs.beaten(asked.id)
        extended = await asked.store.extend(leases) if leases else []
    except StoreUnavailable:
        if not counts:
            asked.context.counters.add(count.HEARTBEAT_FAILURES)
        raise
    if not counts:
        asked.context.counters.add(count.HEARTBEATS)
    states = [LeaseState.of(lease, one) for lease, one in zip(leases, extended, strict=True)]
    return HeartbeatAnswer(disabled=signal.disabled, drain=signal.drain, leases=states, idle=list(signal.idle))


async def retire(asked: Asked[None]) -> Done:
    """Note that a worker has stopped."""
    await asked.owners.check(asked.principal, asked.id)
    await asked.store.retire(asked.id)
    return Done()


async def leases(asked: Asked[None]) -> LeasesAnswer:
    """Return the leases that a worker holds, as far as the key may work on their queues."""
    await asked.owners.check(asked.principal, asked.id)
    held = await asked.store.holding(asked.id)
    if asked.principal.queues is not None:
        views = await asked.store.get([lease.job_id for lease in held])
        pairs = zip(held, views, strict=True)
        held = [lease for lease, view in pairs if view is not None and asked.principal.may(Right.WORK, view.queue)]
    return LeasesAnswer([ref_of(lease) for lease in held])


# --- claiming -------------------------------------------------------------------------------------------------------------


async def claim(asked: Asked[ClaimBody]) -> ClaimAnswer:
    """Take ready jobs; wait for some where there are none. What the client is no longer there to receive is given back."""
    await asked.owners.check(asked.principal, asked.id)
    request = await _request(asked)
    await asked.signs.heard(asked.id)
    wait = min(seconds(asked.body.wait_ms), asked.settings.longest_poll)
    try:
        with asked.hearing.ear() as ear:
            async with _watched(asked, ear) as gone:
                claimed = await _wait_for_jobs(asked, request, wait, ear, gone)
                if claimed and gone.is_set():
                    await _give_back(asked, claimed)
                    claimed = Taken()
    except Full:
        problem = Problem(error="unavailable", message="too many requests wait here already", fix="wait, and try again")
        raise Refused(503, problem, retry_after=1) from None
    asked.ledger.claimed(claimed)
    asked.signs.claimed(asked.id, [job.lease for job in claimed])
    return ClaimAnswer.of(claimed)


async def _request(asked: Asked[ClaimBody]) -> ClaimRequest:
    body, own = asked.body, asked.principal.queues
    queues = None if body.queues is None else frozenset(body.queues)
    if own is not None:
        queues = own if queues is None else queues
        for queue in sorted(queues - own):
            raise forbidden(asked.principal, Right.WORK, queue)
    for name in (*body.tasks, *(queues or ())):
        refuse_own(name)
    if body.first is not None:
        checked_name(body.first, "first")
    capabilities = await _capabilities(asked)
    idle = await asked.owners.idle_besides(asked.id, capabilities) if body.idle is None else frozenset(body.idle)
    return ClaimRequest(
        worker=asked.id,
        tasks=frozenset(body.tasks),
        limit=body.limit,
        queues=queues,
        capabilities=capabilities,
        idle=idle,
        look=body.look,
        hurry=body.hurry,
        first=body.first,
        retries_first=body.retries_first,
    )


async def _capabilities(asked: Asked[ClaimBody]) -> frozenset[str]:
    """Return what the worker has for this claim: what it was registered with, or as much of that as the claim names."""
    named = asked.body.capabilities
    if named is not None and not named:
        return frozenset()
    has = await asked.owners.capabilities(asked.id)
    return has if named is None else has.intersection(named)


async def _wait_for_jobs(asked: Asked[ClaimBody], request: ClaimRequest, wait: float, ear: Ear, gone: asyncio.Event) -> Taken:
    """Look, and look again whenever there is a hint of jobs for it, until there are some or the time is up."""
    clock = asked.environment.monotonic
    deadline = clock() + wait
    named = False
    while True:
        looked_at = clock()
        if claimed := await asked.store.claim(request):
            return claimed
        if named:
            asked.context.counters.add(count.CONFLICTS)  # workers that count for themselves do not wait here
            named = False
        patience = math.inf if claimed.again is None else claimed.again  # what a limit holds back may go without a hint
        if request.idle:
            patience = min(patience, BESIDE_IDLE)
        hinted = False
        while not hinted:
            remaining = deadline - clock()
            if remaining <= 0 or gone.is_set() or asked.hearing.closing:
                return claimed
            rest_until = looked_at + (patience if asked.hearing.healthy else min(patience, UNHINTED))
            hint = await ear.hear(min(remaining, max(0.0, rest_until - clock())))
            named = bool(hint.queues if request.queues is None else hint.queues & request.queues)
            hinted = hint.anything or named
            if clock() >= rest_until:
                break
        if (rest := min(looked_at + REST, deadline) - clock()) > 0:
            await asyncio.sleep(rest)
        if not await asked.context.door.still(asked.principal):
            raise unauthorized()
        idle = await asked.owners.idle_besides(asked.id, request.capabilities) if asked.body.idle is None else request.idle
        request = msgspec.structs.replace(request, look=True, hurry=False, idle=idle)


@asynccontextmanager
async def _watched(asked: Asked[ClaimBody], ear: Ear) -> AsyncIterator[asyncio.Event]:
    """Watch whether the client hangs up."""
    gone = asyncio.Event()

    async def watch() -> None:
        while (await asked.request.receive())["type"] != "http.disconnect":
            pass
        gone.set()
        ear.event.set()

    watching = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _give_back(asked: Asked[ClaimBody], claimed: list[Claimed]) -> None:
    outcome = Released("its worker hung up before it was told of the job")
    now = asked.environment.now()
    writes = [(one.lease, settle(outcome, one.policy.retry, one.failures, now, asked.environment.random)) for one in claimed]
    await asked.store.settle([Settlement(lease, write) for lease, write in writes])
    asked.notifier.hint(Hint(frozenset(one.queue for one in claimed)))
