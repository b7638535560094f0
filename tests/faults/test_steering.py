"""Cancel, delete and retry against claim and outcome, in any order and two at a time: all stores tell the same story.

What may come out is said by the memory store, where one thing is done after the other: two that were done at the same moment
must be answered as if one of them had come first, and leave what that leaves.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.job import NewJob
from holdfast.core.outcome import Succeeded
from holdfast.store.conformance.world import settlement_of
from holdfast.store.memory import MemoryStore
from holdfast.store.port import ClaimRequest, Worker
from holdfast.system import SystemEnvironment
from tests.faults.racing import opened

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.core.lease import Lease
    from holdfast.store.conformance.world import World
    from holdfast.store.port import Store

    Step = tuple[str, ...]
    """What is done at the same moment: one act, or two."""

USUAL = 60
"""Stories of a store."""
MANY = 1_000
WORLD = SystemEnvironment()
ACTS = ("claim", "complete", "cancel", "delete", "retry")
BEGINNINGS = st.sampled_from([(), (("claim",),), (("claim",), ("complete",)), (("cancel",),)])
"""So that no state is rare among those that acts come upon."""
STEPS = st.lists(st.lists(st.sampled_from(ACTS), min_size=1, max_size=2).map(tuple), min_size=1, max_size=5)
MISSED = "missed"
"""A claim that found the job in somebody's hands and took nothing, as it may whatever that other one does."""


@dataclass
class Told:
    """One job, and what everybody was told who did something to it."""

    stores: Sequence[Store]
    """Those who act at the same moment have a handle each."""
    worker: UUID
    task: str = field(default_factory=lambda: f"steered {uuid4()}")
    id: UUID = field(default_factory=WORLD.job_id)
    lease: Lease | None = None
    """The last one that was given."""

    async def begin(self) -> None:
        await self.stores[0].enqueue([NewJob(id=self.id, task=self.task)])

    async def step(self, acts: Step) -> tuple[object, ...]:
        """Do this at the same moment; returns the answers. Who completes does so under the lease known before."""
        before = self.lease
        doing = [self._act(act, store, before) for act, store in zip(acts, self.stores, strict=False)]
        return tuple(await asyncio.gather(*doing))

    async def _act(self, act: str, store: Store, lease: Lease | None) -> object:
        match act:
            case "claim":
                request = ClaimRequest(worker=self.worker, tasks=frozenset({self.task}), limit=1, look=True)
                claims = await store.claim(request)
                self.lease = claims[0].lease if claims else self.lease
                return claims[0].attempt if claims else None
            case "complete":
                return None if lease is None else (await store.settle([settlement_of(lease, Succeeded())]))[0]
            case "cancel":
                return (await store.cancel([self.id]))[0]
            case "delete":
                return (await store.delete([self.id]))[0]
            case _:
                return (await store.reopen([self.id]))[0]

    async def ending(self) -> tuple[object, ...]:
        """Return what is left: the state, what was counted, attempts and events."""
        store = self.stores[0]
        (view,) = await store.get([self.id])
        attempts = [(one.attempt, one.event) for one in await store.attempts(self.id)]
        events = [line.event for line in await store.events(self.id)]
        return (None if view is None else (view.state, view.attempt, view.failures), attempts, events)


async def remembered(history: Sequence[Sequence[str]]) -> tuple[list[dict[str, object]], tuple[object, ...]]:
    """Do one thing after the other in memory; returns the answers of each step by act, and what is left."""
    store = MemoryStore(WORLD)
    worker = Worker(id=uuid4(), name="w")
    await store.register(worker)
    told = Told([store], worker.id)
    await told.begin()
    answers: list[dict[str, object]] = []
    for acts in history:
        before, given = told.lease, dict[str, object]()
        for number, act in enumerate(acts):
            missed = act == MISSED
            given[f"{number} {act}"] = None if missed else await told._act(act, store, before)
        answers.append(given)
    return answers, await told.ending()


def orders(acts: Step) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return the orders in which a step may have been done, each with the places of the acts in it."""
    if len(acts) == 1:
        return [(acts, (0,))]
    one, other = acts
    found: list[tuple[tuple[str, ...], tuple[int, ...]]] = [((one, other), (0, 1)), ((other, one), (1, 0))]
    if one == "claim":
        found.append(((MISSED, other), (0, 1)))
    if other == "claim":
        found.append(((one, MISSED), (0, 1)))
    return found


async def tell(world: World, stores: Sequence[Store], steps: Sequence[Step]) -> None:
    """Tell a story, and check that it can be told."""
    told = Told(stores, await world.worker())
    await told.begin()
    possible: list[list[tuple[str, ...]]] = [[]]
    story = []
    for step in steps:
        answers = await told.step(step)
        story.append(f"{' and '.join(step)}: {', '.join(map(str, answers))}")
        kept = []
        for history in possible:
            for order, places in orders(step):
                given = list((await remembered([*history, order]))[0][-1].values())
                if tuple(given[place] for place in places) == answers:
                    kept.append([*history, order])
        possible = kept
        assert possible, f"no order gives these answers: {story}"
    endings = [(await remembered(history))[1] for history in possible]
    assert await told.ending() in endings, f"the answers and what is left do not fit: {story}, {endings}"


@pytest.mark.row(34)
def test_two_who_steer_a_job_are_answered_as_if_one_had_come_first(url: str, request: pytest.FixtureRequest) -> None:
    stories = MANY if request.config.getoption("--rows") else USUAL
    with asyncio.Runner() as runner:
        context = opened(url)
        world = runner.run(context.__aenter__())
        try:
            stores = [runner.run(world.handle()) for _ in range(2)]

            @settings(max_examples=stories, suppress_health_check=list(HealthCheck), database=None)
            @given(BEGINNINGS, STEPS)
            def check(beginning: tuple[Step, ...], steps: list[Step]) -> None:
                runner.run(tell(world, stores, [*beginning, *steps]))

            check()
        finally:
            runner.run(context.__aexit__(None, None, None))
