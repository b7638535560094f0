"""Two parties want the same job at the same moment: what both are told, the row, its attempts and its log name one winner.

Each contest lists the pairs of answers that may come together, and what stands afterwards. Any other pair is two winners, or
none. A job is a race; a round holds some, and the barrier of `tests/faults/racing.py` orders what the parties do in it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.lease import Hold
from holdfast.core.outcome import Failed, Succeeded
from holdfast.core.states import Event, State
from holdfast.store.conformance.world import BOOM, World, settlement_of
from holdfast.store.port import Answer, ClaimRequest, Settled
from holdfast.store.replay import replay
from tests.faults.racing import Party, opened, race
from tests.faults.support import chance

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from holdfast.core.lease import Lease
    from holdfast.core.outcome import Outcome
    from holdfast.store.port import JobView, Store

    Answers = Mapping[UUID, object]

ROUND = 16
"""Races in a round."""
USUAL = 96
"""Races of a contest on one store."""
MANY = 400
"""The same when rows of the catalogue are asked for: more than 10,000 in all,"""
MOST = 10_000
"""and as many between reaper and heartbeat alone, on each store."""
HEAD_ON = 0.7
"""The share of rounds in which both come to each job at the same moment, where they go from job to job."""
MOST_ROUNDS = 100
"""Rounds more for a party that has not won yet. Chance gives either the first turn in a third of all rounds."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a party is given: the jobs in its own order, the leases on them, and who claims."""

    party: Party
    jobs: Sequence[UUID]
    leases: Mapping[UUID, Lease]
    worker: UUID
    chance: random.Random
    head_on: bool
    """Whether both come to each job at the same moment."""

    @property
    def store(self) -> Store:
        return self.party.store

    async def each(self) -> AsyncIterator[UUID]:
        """Yield the jobs, one by one."""
        for job_id in self.jobs:
            if self.head_on and self.party.meeting is not None:
                await self.party.meeting.level(self.party)
            yield job_id


@dataclass(frozen=True, slots=True)
class End:
    """What must stand after one pair of answers. `again`: what a settlement under the lease that was current is told then."""

    winner: str
    state: State | None
    attempts: Sequence[tuple[int, Event | None]] = ()
    events: Sequence[Event] = ()
    failures: int = 0
    again: Settled = Settled.STALE


@dataclass(frozen=True, slots=True)
class Contest:
    """Two acts, the state in which they find the jobs, and the pairs of answers that may come together."""

    start: str
    """ready, running, lapsed or ended."""
    one: Callable[[Start], Awaitable[Answers]]
    other: Callable[[Start], Awaitable[Answers]]
    ends: Mapping[tuple[object, object], End]

    @property
    def by_job(self) -> bool:
        """Whether both go from job to job; a reaper and a claimer take what they find."""
        return self.one is not reap and self.other is not claim


# -- acts --------------------------------------------------------------------------------------------------------------------


async def reap(start: Start) -> Answers:
    """Reap in small batches until nothing has lapsed any more."""
    reaped: dict[UUID, object] = {}
    while batch := await start.store.reap(start.chance.randint(1, 4)):
        reaped |= dict.fromkeys([one.job_id for one in batch], "reaped")
    return reaped


async def extend(start: Start) -> Answers:
    return {job_id: await _extended(start.store, start.leases[job_id]) async for job_id in start.each()}


async def _extended(store: Store, lease: Lease) -> Hold:
    while True:
        (extended,) = await store.extend([lease])
        if extended.hold is not Hold.SETTLING:  # somebody has it in hand this moment: ask again
            return extended.hold


def settle(outcome: Outcome) -> Callable[[Start], Awaitable[Answers]]:
    async def act(start: Start) -> Answers:
        answers: dict[UUID, object] = {}
        async for job_id in start.each():
            (answers[job_id],) = await start.store.settle([settlement_of(start.leases[job_id], outcome)])
        return answers

    return act


async def claim(start: Start) -> Answers:
    """Claim in small batches until nothing is ready; the answers are the leases."""
    leases: dict[UUID, object] = {}
    request = ClaimRequest(worker=start.worker, tasks=frozenset({TASK}), limit=start.chance.randint(1, 3), look=True)
    while claims := await start.store.claim(request):
        leases |= {one.job_id: one.lease for one in claims}
    return leases


def steer(name: str) -> Callable[[Start], Awaitable[Answers]]:
    """Cancel, delete, complete or reopen jobs one by one."""

    async def act(start: Start) -> Answers:
        answers: dict[UUID, object] = {}
        async for job_id in start.each():
            what: Any = {job_id: '"outside"'} if name == "complete" else [job_id]
            (answers[job_id],) = await getattr(start.store, name)(what)
        return answers

    return act


# -- contests ----------------------------------------------------------------------------------------------------------------

TASK = "raced"
CREATED = [Event.ENQUEUE]
HELD = [Event.ENQUEUE, Event.CLAIM]
DID = [*HELD, Event.SUCCEED]
GOOD = settle(Succeeded('"inside"'))
LAPSED = End("one", State.READY, [(1, Event.EXPIRE)], [*HELD, Event.EXPIRE], failures=1)
SUCCEEDED = End("other", State.SUCCEEDED, [(1, Event.SUCCEED)], DID, again=Settled.REPEATED)
CLAIMED = "claimed"

CONTESTS = {
    "a reaper and a heartbeat": Contest(
        "lapsed",
        reap,
        extend,
        {
            ("reaped", Hold.RETURNED): LAPSED,
            (None, Hold.HELD): End("other", State.RUNNING, [(1, None)], HELD, again=Settled.APPLIED),
        },
    ),
    "a reaper and an outcome": Contest(
        "lapsed",
        reap,
        GOOD,
        {("reaped", Settled.STALE): LAPSED, (None, Settled.LATE): SUCCEEDED},
    ),
    "complete and an outcome": Contest(
        "running",
        steer("complete"),
        GOOD,
        {
            (Answer.DONE, Settled.STALE): End(
                "one", State.SUCCEEDED, [(1, Event.COMPLETE_OUTSIDE)], [*HELD, Event.COMPLETE_OUTSIDE]
            ),
            (Answer.REFUSED, Settled.APPLIED): SUCCEEDED,
        },
    ),
    "delete and an outcome": Contest(
        "running",
        steer("delete"),
        GOOD,
        {(Answer.DONE, Settled.STALE): End("one", None), (Answer.DONE, Settled.APPLIED): End("other", None)},
    ),
    "cancel and an outcome": Contest(
        "running",
        steer("cancel"),
        GOOD,
        {
            (Answer.REQUESTED, Settled.APPLIED): End(
                "one", State.SUCCEEDED, [(1, Event.SUCCEED)], [*HELD, Event.CANCEL, Event.SUCCEED], again=Settled.REPEATED
            ),
            (Answer.REFUSED, Settled.APPLIED): SUCCEEDED,
        },
    ),
    "cancel and a failure that would be retried": Contest(
        "running",
        steer("cancel"),
        settle(Failed(BOOM)),
        {
            (Answer.REQUESTED, Settled.CANCELED): End(
                "one",
                State.CANCELED,
                [(1, Event.STOP)],
                [*HELD, Event.CANCEL, Event.STOP],
                failures=1,
                again=Settled.REPEATED,
            ),
            (Answer.DONE, Settled.APPLIED): End(
                "other",
                State.CANCELED,
                [(1, Event.RETRY)],
                [*HELD, Event.RETRY, Event.CANCEL],
                failures=1,
                again=Settled.REPEATED,
            ),
        },
    ),
    "retry and an outcome": Contest(
        "running",
        steer("reopen"),
        GOOD,
        {
            (Answer.REFUSED, Settled.APPLIED): SUCCEEDED,
            (Answer.DONE, Settled.APPLIED): End(
                "one", State.READY, [(1, Event.SUCCEED)], [*DID, Event.REOPEN], again=Settled.REPEATED
            ),
        },
    ),
    "cancel and a claim": Contest(
        "ready",
        steer("cancel"),
        claim,
        {
            (Answer.DONE, None): End("one", State.CANCELED, [], [*CREATED, Event.CANCEL]),
            (Answer.REQUESTED, CLAIMED): End("other", State.RUNNING, [(1, None)], [*HELD, Event.CANCEL], again=Settled.APPLIED),
        },
    ),
    "delete and a claim": Contest(
        "ready",
        steer("delete"),
        claim,
        {(Answer.DONE, None): End("one", None), (Answer.DONE, CLAIMED): End("other", None)},
    ),
    "complete and a claim": Contest(
        "ready",
        steer("complete"),
        claim,
        {
            (Answer.DONE, None): End("one", State.SUCCEEDED, [], [*CREATED, Event.COMPLETE_OUTSIDE]),
            (Answer.DONE, CLAIMED): End(
                "other", State.SUCCEEDED, [(1, Event.COMPLETE_OUTSIDE)], [*HELD, Event.COMPLETE_OUTSIDE]
            ),
        },
    ),
    "retry and a claim": Contest(
        "ended",
        steer("reopen"),
        claim,
        {
            (Answer.DONE, None): End("one", State.READY, [(1, Event.SUCCEED)], [*DID, Event.REOPEN], again=Settled.REPEATED),
            (Answer.DONE, CLAIMED): End(
                "other",
                State.RUNNING,
                [(1, Event.SUCCEED), (2, None)],
                [*DID, Event.REOPEN, Event.CLAIM],
                again=Settled.APPLIED,
            ),
        },
    ),
    "two retries": Contest(
        "ended",
        steer("reopen"),
        steer("reopen"),
        {
            pair: End(winner, State.READY, [(1, Event.SUCCEED)], [*DID, Event.REOPEN], again=Settled.REPEATED)
            for pair, winner in {(Answer.DONE, Answer.REFUSED): "one", (Answer.REFUSED, Answer.DONE): "other"}.items()
        },
    ),
}


def marked(name: str) -> Any:
    rows = {"a reaper and a heartbeat": pytest.mark.row(8), "a reaper and an outcome": pytest.mark.row(9)}
    return pytest.param(name, marks=rows.get(name, pytest.mark.row(34)), id=name.replace(" ", "-"))


@pytest.mark.parametrize("name", [marked(name) for name in CONTESTS])
async def test_of_two_who_want_a_job_one_wins_and_everything_says_who(
    name: str, url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    contest, luck = CONTESTS[name], chance()
    wanted = USUAL
    if request.config.getoption("--rows"):
        wanted = MOST if contest.other is extend else MANY
    wins = Counter[str]()
    async with opened(url) as world:
        parties = (
            Party("one", await world.handle(), monkeypatch),
            Party("other", await world.handle(), monkeypatch),
        )
        for _ in range(wanted // ROUND + MOST_ROUNDS):
            wins += await played(contest, world, parties, luck)
            if wins.total() >= wanted and len(wins) == len(parties):
                break
        await world.check_counts()
    assert wins.total() >= wanted
    assert len(wins) == len(parties), f"this was no race: {wins}"


async def played(contest: Contest, world: World, parties: tuple[Party, Party], luck: random.Random) -> Counter[str]:
    """Play one round, check each of its races, and count the winners."""
    jobs, leases = await prepared(contest.start, world)
    head_on = contest.by_job and luck.random() < HEAD_ON
    orders = [jobs, jobs if head_on else luck.choice([jobs, jobs[::-1], luck.sample(jobs, len(jobs))])]
    luck.shuffle(orders)
    starts = [
        Start(party, order, leases, await world.worker(), luck, head_on) for party, order in zip(parties, orders, strict=True)
    ]
    one, other = await race(luck, parties, (_act(contest.one, starts[0]), _act(contest.other, starts[1])))
    wins = Counter[str]()
    ends: dict[UUID, End] = {}
    current: dict[UUID, Lease] = {}
    for job_id in jobs:
        answers = (one.get(job_id), CLAIMED if contest.other is claim and job_id in other else other.get(job_id))
        assert answers in contest.ends, f"job {job_id} was answered {answers}: two winners, or none"
        ends[job_id] = contest.ends[answers]
        wins[ends[job_id].winner] += 1
        if answers[1] == CLAIMED or job_id in leases:
            current[job_id] = other[job_id] if answers[1] == CLAIMED else leases[job_id]
    views = await world.store.get(jobs)
    await asyncio.gather(*[check(world, view, job_id, ends[job_id]) for job_id, view in zip(jobs, views, strict=True)])
    again = await world.store.settle([settlement_of(lease, Succeeded()) for lease in current.values()])
    assert again == [ends[job_id].again for job_id in current], "the loser was told otherwise when it asked again"
    await world.store.delete(jobs)
    return wins


async def _act(act: Callable[[Start], Awaitable[Answers]], start: Start) -> Answers:
    return await act(start)


async def prepared(start: str, world: World) -> tuple[list[UUID], dict[UUID, Lease]]:
    """Return jobs in the state from which the contest starts, and the leases on them."""
    jobs = world.jobs(ROUND, task=TASK)
    await world.enqueue(*jobs)
    if start == "ready":
        return [job.id for job in jobs], {}
    claims = await world.claim(ROUND, tasks=[TASK])
    assert len(claims) == ROUND
    if start == "ended":
        await world.store.settle([settlement_of(one.lease, Succeeded('"inside"')) for one in claims])
    if start == "lapsed":
        await world.lapse()
    return [job.id for job in jobs], {one.job_id: one.lease for one in claims}


async def check(world: World, view: JobView | None, job_id: UUID, end: End) -> None:
    """Check that the job, its attempts and its log tell of the winner."""
    assert (None if view is None else view.state) is end.state
    assert (0 if view is None else view.failures) == end.failures
    if view is not None and end.state is State.SUCCEEDED:
        assert view.result == ('"outside"' if Event.COMPLETE_OUTSIDE in end.events else '"inside"')
    assert await world.attempts(job_id) == list(end.attempts)
    events = await world.store.events(job_id)
    assert [line.event for line in events] == list(end.events)
    assert replay(events) is end.state
