"""The course of the demonstration: start, enqueue, kill, freeze, thaw, wait, stop, account."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast.app import Holdfast
from holdfast.connect import connect
from holdfast.core.states import TERMINAL, State
from holdfast.demo.account import Blow, made_before, take_account
from holdfast.demo.fleet import SLOTS, Fate, Fleet, WorkerDied, new_lines
from holdfast.demo.place import make_place
from holdfast.demo.plan import PARTS, make_plan
from holdfast.demo.tasks import LEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from holdfast.demo.account import Account
    from holdfast.demo.fleet import Member
    from holdfast.demo.place import Place
    from holdfast.demo.plan import Planned
    from holdfast.store.port import JobView, Store

WORKERS: Final = 3
LOOK: Final = 0.2
"""Seconds between looks at the store."""
UP_WITHIN: Final = 30.0
DONE_WITHIN: Final = 45.0
"""Seconds from the enqueue after which jobs that have not ended count as lost."""
SETTLED_WITHIN: Final = 0.2
"""Seconds in which a database has carried out what a worker had sent before it was struck."""
FROZEN_FOR: Final = 2.5 * LEASE
FROZEN_AT_MOST: Final = 15.0
ENOUGH: Final = 3
"""How many jobs a worker should hold to be worth a blow."""
HALFWAY: Final = (25.0, 80.0)
"""Percent between which a blow shows something."""
PICKY_FOR: Final = 5.0
"""Seconds after which any worker that holds a job will do."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How things stand, for those who watch."""

    seconds: float
    counts: Mapping[State, int]
    workers: Sequence[tuple[str, Fate, int]]
    """Name, what happened to it, how many jobs it holds."""


class Audience(Protocol):
    """Who watches the demonstration."""

    def tell(self, seconds: float, text: str) -> None:
        """Hear of something notable that just happened."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """See how things stand."""
        ...


async def run_demo(audience: Audience, *, url: str | None, jobs: int, seed: int, keep: bool) -> Account:
    """Run the demonstration from beginning to end. Whatever happens, no process of it is left running."""
    async with make_place(url, keep=keep) as place:
        store = connect(place.url)
        try:
            await store.open()
            async with Fleet(place) as fleet:
                return await _Course(place, store, fleet, audience, make_plan(jobs, seed)).run(keep=keep)
        finally:
            await store.close()


@dataclass(slots=True)
class _Course:
    place: Place
    store: Store
    fleet: Fleet
    audience: Audience
    plan: Sequence[Planned]
    began: float = field(default_factory=time.monotonic)
    views: Sequence[JobView | None] = ()
    broken: dict[UUID, int] = field(default_factory=dict)
    """Jobs whose lease was broken, and the attempt it belonged to, until another worker has them."""
    thawed: Member | None = None

    async def run(self, *, keep: bool) -> Account:
        await self._start()
        await self._enqueue()
        deadline = time.monotonic() + DONE_WITHIN
        killed = await self._kill()
        frozen = await self._freeze()
        await self._until(lambda: not self._live(), deadline - time.monotonic())
        self._tell("every job has ended: stopping the workers" if not self._live() else "time is up: stopping the workers")
        await self.fleet.stop()
        await self._look()
        account = await take_account(self.store, self.plan, killed=killed, frozen=frozen)
        if keep:
            self._tell(f"kept: {self.place.shown}, and the workers' logs in {self.place.folder}")
        return msgspec.structs.replace(account, store=self.place.kind, seconds=round(self._seconds(), 1))

    # the course

    async def _start(self) -> None:
        for _ in range(WORKERS):
            self.fleet.start()
        self._tell(f"{self.place.kind}: {self.place.shown}")
        self._tell(f"starting {WORKERS} worker processes with {SLOTS} slots each; leases of {LEASE:g} s")
        if not await self._until(lambda: all(member.id for member in self.fleet.members), UP_WITHIN):
            raise WorkerDied(f"the workers were not up within {UP_WITHIN:g} s: the machine is too busy for a demonstration")

    async def _enqueue(self) -> None:
        async with Holdfast(self.place.url) as app:
            await app.enqueue_many([planned.call for planned in self.plan])
        self._tell(f"enqueued {len(self.plan)} jobs: {_kinds([planned.task for planned in self.plan])}")

    async def _kill(self) -> Blow | None:
        """Kill a worker in the middle of jobs, a picture among them, and start another in its place."""
        victim = await self._worth_a_blow(frozenset({"render"}))
        if victim is None:
            return None
        await self.fleet.kill(victim)
        blow = await self._blow(victim)
        self._tell(f"SIGKILL: {victim.name} is dead, holding {self._held_kinds(victim)}")
        self._tell(f"{self.fleet.start().name} is started in its place")
        return blow

    async def _freeze(self) -> Blow | None:
        """Freeze a worker in the middle of jobs until its leases are reaped and others run them; then let it go on."""
        victim = await self._worth_a_blow(frozenset({"render", "slow"}))
        if victim is None or not await self.fleet.freeze(victim, self.store):
            return None
        blow = await self._blow(victim)
        self._tell(f"SIGSTOP: {victim.name} is frozen, holding {self._held_kinds(victim)}")
        thaw_at = time.monotonic() + FROZEN_FOR

        def replaced() -> bool:
            others_have_some = any(job_id not in self.broken for job_id in blow.broken) or not blow.broken
            return time.monotonic() >= thaw_at and not self._held(victim) and others_have_some

        await self._until(replaced, FROZEN_AT_MOST)
        new_lines(victim)
        self.fleet.thaw(victim)
        self.thawed = victim
        self._tell(f"SIGCONT: {victim.name} goes on, believing that it still holds {len(blow.broken)} jobs")
        return blow

    async def _worth_a_blow(self, tasks: frozenset[str]) -> Member | None:
        """Wait for a worker that holds several jobs, among them one of these tasks about half of which is done."""
        picky_until = time.monotonic() + PICKY_FOR
        found: list[Member] = []

        def look() -> bool:
            working = [member for member in self.fleet.members if member.fate is Fate.WORKING and self._held(member)]
            good = [
                member
                for member in working
                if len(held := self._held(member)) >= ENOUGH and any(view.task in tasks and _halfway(view) for view in held)
            ]
            found[:] = good or (working if time.monotonic() >= picky_until else [])
            return bool(found) or not self._live()

        await self._until(look, DONE_WITHIN)
        return max(found, key=lambda member: len(self._held(member)), default=None)

    async def _blow(self, victim: Member) -> Blow:
        """Return what a worker that was just struck held; what it had sent before is carried out by then."""
        await asyncio.sleep(SETTLED_WITHIN)
        await self._look()
        blow = Blow(victim.name, {view.id: view.attempt for view in self._held(victim)})
        self.broken.update(blow.broken)
        return blow

    # looking

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Look until the condition holds or the time is up; returns whether it holds."""
        deadline = time.monotonic() + seconds
        while True:
            await self._look()
            if condition():
                return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        self.fleet.check()
        await self._register()
        self.views = await self.store.get([planned.id for planned in self.plan])
        await self._tell_of_recoveries()
        self._tell_of_refusals()
        self.audience.show(
            Snapshot(
                self._seconds(),
                Counter(view.state for view in self.views if view is not None),
                [(member.name, member.fate, len(self._held(member))) for member in self.fleet.members],
            )
        )

    async def _register(self) -> None:
        starting = [member for member in self.fleet.members if member.id is None]
        if starting:
            ids = {view.worker.name: view.worker.id for view in await self.store.workers()}
            for member in starting:
                if member.name in ids:
                    member.id, member.fate = ids[member.name], Fate.WORKING

    async def _tell_of_recoveries(self) -> None:
        for view in self.views:
            if view is None or view.attempt <= self.broken.get(view.id, view.attempt):
                continue
            del self.broken[view.id]
            self._tell(f"{view.worker_name or 'another worker'} took over {_name(view)}{await self._resumed(view)}")

    async def _resumed(self, view: JobView) -> str:
        if view.task != "render":
            return ""
        kept = sum(made_before(part, view.attempt) for part in await self.store.parts(view.id))
        return f" and resumed at part {kept + 1} of {PARTS}" if 0 < kept < PARTS else " and began it anew: no part was done"

    def _tell_of_refusals(self) -> None:
        if self.thawed is None:
            return
        for line in new_lines(self.thawed):
            if "refused" in line:
                self._tell(f"refused: {self.thawed.name}'s {_UUID.sub(lambda match: _short(match[1]), line)}")

    def _live(self) -> bool:
        return any(view is None or view.state not in TERMINAL for view in self.views)

    def _held(self, member: Member) -> list[JobView]:
        return [
            view
            for view in self.views
            if view is not None and view.state is State.RUNNING and view.worker_id == member.id is not None
        ]

    def _held_kinds(self, member: Member) -> str:
        held = self._held(member)
        return f"{len(held)} jobs: {_kinds([view.task for view in held])}"

    # telling

    def _seconds(self) -> float:
        return time.monotonic() - self.began

    def _tell(self, text: str) -> None:
        self.audience.tell(self._seconds(), text)


def _halfway(view: JobView) -> bool:
    return view.progress is not None and HALFWAY[0] <= view.progress <= HALFWAY[1]


def _kinds(tasks: Sequence[str]) -> str:
    return ", ".join(f"{count} {task}" for task, count in Counter(tasks).most_common())


def _name(view: JobView) -> str:
    return f"{view.task} {_short(view.id.hex)}"


def _short(text: str) -> str:
    """Return the end of an id: ids of one moment begin alike."""
    return f"…{text[-6:]}"
