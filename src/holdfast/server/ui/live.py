"""What keeps open pages live: one look at the store for all of them, and a mailbox of one slot for each.

The look is taken when a hint comes, at most four times a second, and every second at least; where nobody watches, nothing is
done. A page is told only that something has changed: it asks for itself anew. Who reads slowly misses what was in between,
never gets an old one, and costs one slot.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast.core.states import State
from holdfast.errors import HoldfastError
from holdfast.explaining import GONE
from holdfast.server.alerts.delivering import delivers
from holdfast.store.port import Stats, WorkerView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.environment import Environment
    from holdfast.notify.port import Hint, Notifier
    from holdfast.store.port import Store

logger = logging.getLogger("holdfast.server")

SHORTEST: Final = 0.25
"""Seconds between two looks, however many hints come."""
MOST_TOLD: Final = 500
"""Pages that are told in a second: where more are open, each is told less often. Telling is what they cost workers."""
LEAST_OFTEN: Final = 3.0
"""Seconds between two looks at most, however many pages are open."""
SUMMED: Final = (State.READY, State.RUNNING, State.FAILED)
LONGEST: Final = 1.0
"""Seconds after which it looks without a hint: progress and logs bring none, but through Redis."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What stood in the store at one look."""

    version: int
    """Grows with every change that was seen."""
    stats: Stats | None
    """`None`: the store did not answer."""
    workers: tuple[WorkerView, ...] = ()
    silent: frozenset[UUID] = frozenset()
    """Those of them that were not heard of for too long: nothing else changes when one is killed."""
    told: str = ""
    """What every page is sent, as JSON: made once for all of them."""

    def told_of(self, queues: frozenset[str] | None) -> str:
        """Return what a page is sent that may show these queues; `None`: all."""
        return self.told if queues is None else json.dumps({"version": self.version, "summary": self.summary(queues)})

    def summary(self, queues: frozenset[str] | None = None) -> str:
        """Return what a person hears who does not see the page, of these queues; `None`: of all."""
        if self.stats is None:
            return "The store does not answer."
        stats, of = self.stats, [None] if queues is None else sorted(queues)
        counts = {state: sum(stats.count(state, queue=queue) for queue in of) for state in SUMMED}
        live = sum(1 for view in self.workers if view.state not in GONE and not view.manages and not delivers(view))
        told = ", ".join(f"{count} {state}" for state, count in counts.items())
        return f"{told}, {live} live workers."


class Mailbox:
    """One slot: what was put in last."""

    __slots__ = ("_latest", "_there")

    def __init__(self) -> None:
        self._latest: Snapshot | None = None
        self._there = asyncio.Event()

    def put(self, snapshot: Snapshot) -> None:
        """Replace whatever has not been taken yet."""
        self._latest = snapshot
        self._there.set()

    async def take(self, timeout: float) -> Snapshot | None:
        """Return what was put in since the last time; `None` when nothing was within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._there.wait()
        self._there.clear()
        latest, self._latest = self._latest, None
        return latest


class Live:
    """Looks at the store for as long as anyone watches. Belongs to one event loop."""

    def __init__(self, store: Store, notifier: Notifier, environment: Environment) -> None:
        self._store = store
        self._notifier = notifier
        self._environment = environment
        self._mailboxes: set[Mailbox] = set()
        self._latest: Snapshot | None = None
        self._woken = asyncio.Event()
        self._listens = False
        self._asked = False
        """Whether somebody came who has to be told in any case."""
        self._looking: asyncio.Task[None] | None = None
        self.closing = False
        """Whether streams are to end: the server stops."""
        self.looks = 0
        """How often the store was looked at."""
        self.epoch = environment.token().hex[:12]
        """Tells the versions of this server from those of another."""

    @property
    def watchers(self) -> int:
        """How many watch."""
        return len(self._mailboxes)

    @property
    def version(self) -> int | None:
        """What was last seen in the store; `None`: nobody watches, so it may be another by now."""
        return None if self._looking is None or self._latest is None else self._latest.version

    def event_id(self, snapshot: Snapshot) -> str:
        """Return what a page sends back when it comes again."""
        return f"{self.epoch}-{snapshot.version}"

    def seen(self, event_id: str | None) -> int | None:
        """Return the version that a page has seen by its last event's id; `None`: none of this server's."""
        epoch, _, number = (event_id or "").partition("-")
        return int(number) if epoch == self.epoch and number.isascii() and number.isdecimal() else None

    @asynccontextmanager
    async def watch(self, seen: int | None = None) -> AsyncIterator[Mailbox]:
        """Return a mailbox that is told of every change, of the state of things first unless that has been seen."""
        mailbox = Mailbox()
        fresh = self._looking is not None
        self._mailboxes.add(mailbox)
        try:
            await self._begin()
            if self._latest is None or self._latest.version != seen:
                if fresh and self._latest is not None:
                    mailbox.put(self._latest)
                else:
                    self._asked = True
            yield mailbox
        finally:
            self._mailboxes.discard(mailbox)
            if not self._mailboxes:
                await self._end()

    async def _begin(self) -> None:
        if not self._listens:
            self._listens = True
            await self._notifier.listen(self._heard)
        if self._looking is None:
            self._woken.clear()
            self._looking = asyncio.create_task(self._keep_looking(), name="holdfast-live")

    async def _end(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    def _heard(self, hint: Hint) -> None:
        if (hint or hint.shown) and self._looking is not None:
            self._woken.set()

    async def _keep_looking(self) -> None:
        hinted = False
        while True:
            began = self._environment.monotonic()
            self._publish(await self._look(), hinted=hinted)
            await asyncio.sleep(max(0.0, self._rest() - (self._environment.monotonic() - began)))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, LONGEST - self._rest())):
                    await self._woken.wait()
            hinted = self._woken.is_set()
            self._woken.clear()

    def _rest(self) -> float:
        """Return the seconds between two looks."""
        return max(SHORTEST, min(LEAST_OFTEN, len(self._mailboxes) / MOST_TOLD))

    async def _look(self) -> Snapshot:
        self.looks += 1
        try:
            stats, workers, now = await self._store.stats(), await self._store.workers(), await self._store.now()
        except HoldfastError as error:
            if self._latest is None or self._latest.stats is not None:
                logger.warning("the dashboard cannot look at the store: %s", error)
            return Snapshot(version=0, stats=None)
        except Exception:  # whoever watches must hear of what comes after
            logger.exception("the dashboard could not look at the store")
            return Snapshot(version=0, stats=None)
        silent = frozenset(view.worker.id for view in workers if view.silent(now) is not None)
        return Snapshot(version=0, stats=stats, workers=tuple(workers), silent=silent)

    def _publish(self, snapshot: Snapshot, *, hinted: bool) -> None:
        """Tell everyone, unless nothing can have changed: progress and logs of what runs are not in the snapshot."""
        last = self._latest
        runs = snapshot.stats is not None and snapshot.stats.count(State.RUNNING) > 0
        if last is not None and not (hinted or runs or self._asked) and _same(last, snapshot):
            return
        self._asked = False
        version = 1 if last is None else last.version + 1
        told = json.dumps({"version": version, "summary": snapshot.summary()})
        self._latest = msgspec.structs.replace(snapshot, version=version, told=told)
        for mailbox in self._mailboxes:
            mailbox.put(self._latest)


def _same(one: Snapshot, other: Snapshot) -> bool:
    """Compare all but the ages, which grow by themselves."""
    if one.stats is None or other.stats is None:
        return one.stats is other.stats
    return list(one.stats.tasks) == list(other.stats.tasks) and (one.workers, one.silent) == (other.workers, other.silent)
