"""The claimer: takes jobs for free slots when there is a hint of work, and looks for itself now and then."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.health import Pulse
from holdfast.core.outcome import Released
from holdfast.core.settle import settle
from holdfast.errors import HoldfastError, SchemaError, StoreUnavailable, UnknownWorker
from holdfast.notify.port import NOTHING_HANDED
from holdfast.runtime import counters as count
from holdfast.runtime.service import wait_for_event
from holdfast.runtime.weights import Turns
from holdfast.store.port import ClaimRequest, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from holdfast.core.lease import Claimed, Lease
    from holdfast.runtime.base import Base
    from holdfast.store.port import Worker

logger = logging.getLogger("holdfast.worker")

MOST_AT_ONCE: Final = 1000
REST_AFTER_ERROR: Final = 5.0
POLL_BESIDE_IDLE: Final = 2.0
AGAIN: Final = 2.0
"""Seconds after which a claimer looks again that was hinted at jobs and found none."""
HEED: Final = 0.1
"""Seconds between two looks because of hints while claims bring work: a new lane of a higher priority must not wait long."""
HEED_SHARE: Final = 20
HEED_AT_LEAST_EVERY: Final = 1.0
"""A claim that looks and takes long, as where many lanes are under limits, is repeated no sooner than 20 times its duration,
but not put off for longer than this."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a claimer asks for: which jobs, and how often it looks by itself."""

    worker: Worker
    tasks: frozenset[str]
    queues: frozenset[str] | None
    weights: Mapping[str, float]
    retry_share: float
    poll: float
    """Seconds between looks while hints arrive."""
    poll_unhinted: float
    """Seconds between looks while they do not."""
    delay: float
    """Seconds to rest after each claim that brought work."""


class Claimer:
    """Asks for as many jobs as there is room for; `room` says how many, `take` receives them with the time of asking."""

    def __init__(
        self,
        base: Base,
        claims: Claims,
        *,
        room: Callable[[], int],
        take: Callable[[Sequence[Claimed], float], None],
        held: Callable[[], set[Lease]],
    ) -> None:
        self.pulse = Pulse("claimer")
        self._claims = claims
        self._store = base.store
        self._environment = base.environment
        self._backoff = base.outage.backoff()
        self._counters = base.counters
        self.notifier = base.notifier
        self._room = room
        self._take = take
        self._held = held
        self._turns = Turns(claims.weights, claims.retry_share, base.environment.lot, claims.queues)
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._look = True
        self._hinted = False
        self._unsure = False
        """The answer to a claim was lost: the store may have leases for this worker that it does not know of."""
        self._let_in = False
        """A limit has room again: it is worth asking, and nothing new has to be looked for."""
        self._again: float | None = None
        """In how many seconds it is worth asking again, where a limit held jobs back."""
        self.enabled = True
        self.rests = False
        """Whether it is to claim nothing, and the worker to end once nothing runs."""
        self.asks = False
        """Whether a claim is under way, which may yet bring something."""
        self.idle: frozenset[str] = frozenset()
        """What other workers have that could do more: jobs that prefer it are left to them for a while."""

    @property
    def worker_id(self) -> UUID:
        """For whom it claims."""
        return self._claims.worker.id

    def hinted(self, *, surely: bool = False) -> None:
        """Have it look: there may be work, or `surely` was a moment ago."""
        if self._stop.is_set():
            self._leave_to_others()
        self._look = True
        self._hinted = self._hinted or surely
        self._wake.set()

    def freed(self) -> None:
        """Have it go on: there is room again."""
        self._wake.set()

    def let_in(self) -> None:
        """Have it ask again at once: a job has ended here that counted for a limit, and the store knows which has room now.

        To look as well would be in vain, and costs more than the claim where jobs are short.
        """
        self._let_in = True
        self._wake.set()

    def stop(self) -> None:
        """Have it claim nothing more."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Claim until stopped."""
        more = True
        next_look = next_heed = 0.0
        while not self._stop.is_set():
            self.asks = False
            self._wake.clear()
            now = self._environment.monotonic()
            self.pulse.came(now)
            if now >= next_look:
                self._look = True
            room = self._room() if self.enabled and not self.rests else 0
            if room <= 0:
                self._leave_to_others()
                self.pulse.waits()
                await self._wake.wait()
                continue
            more, self._let_in = more or self._let_in, False
            if not (more or self._look):
                self.pulse.rest = next_look - now
                await wait_for_event(self._wake, next_look - now)
                continue
            # while claims bring work the store knows nearly enough, and looking costs: hints are heeded now and then
            look = self._look and (not more or now >= next_heed)
            hinted = self._hinted
            if look:
                self._look = self._hinted = False
                next_look, next_heed = now + self._pause_between_looks(), now + HEED
            hurry = hinted and not more
            handed = self.notifier.heed() if look else NOTHING_HANDED
            self.asks = True
            try:
                taken = await self._claim(min(room, MOST_AT_ONCE), look=look, hurry=hurry)
            except (StoreUnavailable, SchemaError) as error:
                self._look = more = True
                await wait_for_event(self._stop, self._backoff.failed(error))
                continue
            except Exception:
                logger.exception("claiming: an error of its own; it goes on")
                self._look = more = True
                await wait_for_event(self._stop, REST_AFTER_ERROR)
                continue
            if look:
                took = self._environment.monotonic() - now
                next_heed = now + min(HEED_AT_LEAST_EVERY, max(HEED, HEED_SHARE * took))
            if handed:
                self.notifier.answered(handed, more=not 0 < taken < room)
            more = taken > 0
            if self._again is not None and not more:  # a limit holds back what waits
                next_look = min(next_look, now + self._again * (1.0 + 0.1 * self._environment.random()))
            self._hinted = self._hinted and not more  # what it hinted at may be what was just taken
            if look and hinted and not taken:
                self._counters.add(count.CONFLICTS)
                if named := handed.hint.ready:
                    logger.debug("a claim found nothing where it had been told of %s", ", ".join(map(str, named)))
                # who has them in hand may die and let go of them unsaid: look once more before long
                next_look = min(next_look, now + AGAIN * (0.5 + self._environment.random()))
            if hurry and 0 < taken < room:
                await asyncio.sleep(0)  # what was waited for starts before it is seen to what else there is
            elif taken and self._claims.delay:
                self.pulse.rest = self._claims.delay
                await wait_for_event(self._stop, self._claims.delay)
        self.pulse.waits()
        self._leave_to_others()
        if self._unsure:
            await self._last_give_back()

    def _leave_to_others(self) -> None:
        """Have others hear of work that this worker alone was told of, and cannot take."""
        if handed := self.notifier.heed():
            self.notifier.answered(handed, more=True)

    async def _last_give_back(self) -> None:
        try:
            await self._give_back_unknown()
        except HoldfastError as error:
            logger.warning("leases whose claim was never answered could not be given back, and will lapse: %s", error)

    def _pause_between_looks(self) -> float:
        seconds = self._claims.poll if self.notifier.healthy else self._claims.poll_unhinted
        if self.idle:  # what is left to others for a while is to be seen when that is over
            seconds = min(seconds, POLL_BESIDE_IDLE)
        return seconds * (0.9 + 0.2 * self._environment.random())

    async def _claim(self, limit: int, *, look: bool, hurry: bool) -> int:
        if self._unsure:
            await self._give_back_unknown()
        first, retries_first = self._turns.next()
        request = ClaimRequest(
            worker=self.worker_id,
            tasks=self._claims.tasks,
            limit=limit,
            queues=self._claims.queues,
            capabilities=frozenset(self._claims.worker.capabilities),
            idle=self.idle,
            look=look,
            hurry=hurry,
            first=first,
            retries_first=retries_first,
        )
        asked_at = self._environment.monotonic()
        self._unsure = True
        try:
            claimed = await self._store.claim(request)
            self._unsure = False
        except UnknownWorker:  # the store was emptied, or is another one than before
            self._unsure = False
            await self._store.register(self._claims.worker)
            self._look = True  # at once again, as somebody whom the store knows: what waits there may be hinted at no more
            return 0
        self._backoff.answered()
        self._again = getattr(claimed, "again", None)  # a store of somebody else's may answer with a plain list
        if claimed:
            self._counters.add(count.CLAIMED, len(claimed))
            self._take(claimed, asked_at)
        queues = {one.queue for one in claimed}
        if (weights := getattr(claimed, "weights", None)) is not None:
            self._turns.weigh(weights)
        self._turns.saw(queues)
        if first is not None and first not in queues:
            self._turns.brought_nothing(first)
        return len(claimed)

    async def _give_back_unknown(self) -> None:
        """Release leases whose claim's answer never arrived: nobody would run them until they lapse."""
        mine = self._held()
        lost = [lease for lease in await self._store.holding(self.worker_id) if lease not in mine]
        if lost:
            view = await self._store.get([lease.job_id for lease in lost])
            outcome = Released("its claim was never answered")
            await self._store.settle(
                [
                    Settlement(lease, settle(outcome, job.policy.retry, job.failures, job.created_at, self._environment.random))
                    for lease, job in zip(lost, view, strict=True)
                    if job is not None
                ]
            )
        self._unsure = False
