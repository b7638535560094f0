"""Every cell of the table: each event in each state lands as tabled, or changes nothing.

A job is put into the state by real operations, and the event is brought about by its real operation. Where a cell is
illegal the operation is run all the same, as sharply as possible: everything is overdue when housekeeping runs, and the
holder's operations come from somebody who once held the job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy, NewJob
from holdfast.core.lease import Hold, Lease
from holdfast.core.outcome import Continued, Error, Failed, Outcome, Released, Rescheduled, Stopped, Succeeded, Suspended
from holdfast.core.states import STAGE_EVENTS, TERMINAL, TRANSITIONS, Event, State
from holdfast.errors import StaleLease
from holdfast.store.conformance.world import (
    AT_ONCE,
    BLOCKER_TASK,
    BOOM,
    HOUR,
    LATER,
    LEASE,
    NEXT_TASK,
    ONCE,
    Snapshot,
    Subject,
    World,
    settlement_of,
    write_of,
)
from holdfast.store.port import (
    Answer,
    Checkpoint,
    LogLine,
    Part,
    PartState,
    Progress,
    Retention,
    Settled,
    Settlement,
    StageMark,
)
from holdfast.store.replay import replay

if TYPE_CHECKING:
    from holdfast.core.retry import Retry

CELLS: Final = [(state, event) for state in (None, *State) for event in Event]
NAMES: Final = [f"{state or 'new'}-{event.name.lower()}" for state, event in CELLS]

UNLOGGED: Final = frozenset({Event.EXTEND, Event.PROGRESS, Event.CHECKPOINT, Event.LOG, Event.ENQUEUE_CHILD})
"""Events that leave the job where it is and are not in its log."""

SIGNAL: Final = "conformance.signal"

SETTLES: Final[dict[Event, Outcome]] = {
    Event.SUCCEED: Succeeded('{"done":true}'),
    Event.CONTINUE: Continued(NewJob(id=uuid7(), task=NEXT_TASK)),
    Event.SUSPEND: Suspended(signal=SIGNAL),
    Event.FAIL: Failed(BOOM, fatal=True),
    Event.STOP: Stopped("had enough"),
    Event.RETRY: Failed(BOOM),
    Event.RETRY_LATER: Failed(BOOM),
    Event.RESCHEDULE: Rescheduled(),
    Event.RESCHEDULE_LATER: Rescheduled(after=HOUR),
    Event.RELEASE: Released("not now"),
    Event.ABORT: Released("shutting down", aborted=True),
}

RETRIES: Final[dict[Event, Retry]] = {
    Event.RETRY_LATER: LATER,
    Event.EXPIRE_LATER: LATER,
    Event.EXPIRE_FAIL: ONCE,
}
"""The policy under which an event comes about; `AT_ONCE` for the others."""

DAY: Final = 24 * HOUR
"""So long may a job wait whose expiry is to come about: longer than it takes to bring it into its state."""

BLOCKER_EVENTS: Final = frozenset({Event.UNBLOCK, Event.UNBLOCK_LATER, Event.BLOCKER_FAIL, Event.BLOCKER_CANCEL})


@dataclass
class Cell:
    """One job in one state, and what an event needs to be brought about."""

    world: World
    state: State | None
    event: Event
    job: NewJob
    lease: Lease
    """The current one while running; else one that was reaped, or never was."""
    blocker: UUID | None = None

    @property
    def job_id(self) -> UUID:
        """The job in question."""
        return self.job.id

    @property
    def legal(self) -> bool:
        """Whether the table has this cell."""
        return (self.state, self.event) in TRANSITIONS


class Cells(Subject):
    """Every (state, event) cell."""

    @pytest.mark.parametrize(("state", "event"), CELLS, ids=NAMES)
    async def test_cell_lands_as_tabled_or_changes_nothing(self, world: World, state: State | None, event: Event) -> None:
        cell = await put(world, state, event)
        await PREPARE.get(event, _nothing)(cell)
        before = await world.snapshot(cell.job_id)
        assert before.state() == state, f"the job should stand in {state} before {event}"

        await APPLY[event](cell)

        after = await world.snapshot(cell.job_id)
        if cell.legal:
            check_landed(cell, after)
        else:
            assert not (changes := _own(before.changes(after))), f"{event} in {state} is illegal, but changed {changes}"
        assert replay(after.log()) == after.state(), f"the job is {after.state()}, its log replays to {replay(after.log())}"
        await world.check_counts()


def check_landed(cell: Cell, after: Snapshot) -> None:
    """Check that a legal event led where the table says, and that log and counts say so too."""
    target, log = TRANSITIONS[cell.state, cell.event], [line.event for line in after.log()]
    assert after.state() == target, f"{cell.event} in {cell.state} should lead to {target}, not to {after.state()}"
    counted = {state: after.facts.get(f"count of {state} {cell.job.task} in {cell.job.queue}", 0) for state in State}
    expected = {state: int(state is target) for state in State}
    assert counted == expected, f"one job in {target}, but the counts say {counted}"
    if target is None:
        assert log == [], f"a job that is gone has no log, this one has {log}"
    elif cell.event not in UNLOGGED:
        assert log[-1] is cell.event, f"the last line of the log should be {cell.event}: {log}"


def _own(changes: list[str]) -> list[str]:
    """Leave out what the event did to the blocker, which is another job with counts of its own."""
    return [change for change in changes if BLOCKER_TASK not in change]


# --- putting a job into a state -----------------------------------------------------------------------------------------


async def put(world: World, state: State | None, event: Event) -> Cell:
    """Put a job into `state` by real operations, so that `event` may come about if the table allows it."""
    policy = BlockerPolicy.CANCEL if event is Event.BLOCKER_CANCEL else BlockerPolicy.FAIL
    later = state is State.SCHEDULED or event in {Event.UNBLOCK_LATER, Event.ENQUEUE_LATER}
    blocked = state is State.BLOCKED or event in BLOCKER_EVENTS or event is Event.ENQUEUE_BLOCKED
    blocker = await world.create(task=BLOCKER_TASK) if blocked else None
    job = world.job(
        retry=RETRIES.get(event, AT_ONCE),
        on_blocker_failure=policy,
        delay=HOUR if later and (blocked or state is None) else 0.0,
        after=() if blocker is None else (blocker,),
        expires_in=DAY if event is Event.OVERDUE else None,
    )
    cell = Cell(world, state, event, job, Lease(job.id, uuid4()), blocker)
    if state is None:
        return cell
    await world.enqueue(job)
    if state is not State.BLOCKED:
        await _leave_blocked(cell)
        if event is Event.WAKE:
            await _wait_in_vain(cell)
        await _go_on(cell)
    return cell


async def _leave_blocked(cell: Cell) -> None:
    """End the blocker well: what waited goes on. It may end a second time later, which must not matter any more."""
    if cell.blocker is None:
        return
    await cell.world.store.complete({cell.blocker: "1"})
    if cell.job.delay:
        await cell.world.store.rewind(2 * HOUR)
        await cell.world.store.promote(10)


async def _wait_in_vain(cell: Cell) -> None:
    """Have it wait for the signal until its time comes: when the signal comes after all, it must not matter any more."""
    claimed = await cell.world.claim_only(cell.job_id)
    await cell.world.settle(claimed, Suspended(claimed.claimed_at + timedelta(seconds=HOUR), SIGNAL))
    await cell.world.store.rewind(2 * HOUR)
    await cell.world.store.promote(10)


async def _go_on(cell: Cell) -> None:
    """Bring a ready job into the state of the cell, through a lease: so that there is somebody who lost it."""
    world = cell.world
    claimed = await world.claim_only(cell.job_id)
    cell.lease = claimed.lease
    match cell.state:
        case State.RUNNING:
            return
        case State.SUCCEEDED:
            await world.store.complete({cell.job_id: "1"})
        case State.FAILED:
            await world.store.fail({cell.job_id: BOOM})
        case State.READY | State.SCHEDULED | State.CANCELED:
            await _lose(cell)


async def _lose(cell: Cell) -> None:
    """Let the lease be reaped; the job then waits, is scheduled by a second holder, or is canceled."""
    world = cell.world
    if cell.event is Event.EXPIRE_FAIL:  # one failure is all it has: it cannot live on after a reaped lease
        await world.store.settle([Settlement(cell.lease, write_of(Released()))])
    else:
        await world.lapse()
        await world.store.reap(10)
        if cell.job.policy.retry == LATER:
            await world.store.rewind(2 * HOUR)
            await world.store.promote(10)
    if cell.state is State.CANCELED:
        await world.store.cancel([cell.job_id])
    elif cell.state is State.SCHEDULED:
        second = await world.claim_only(cell.job_id, worker="two")
        await world.settle(second, Suspended(signal=SIGNAL) if cell.event is Event.WAKE else Rescheduled(after=HOUR))


# --- bringing an event about --------------------------------------------------------------------------------------------


async def _nothing(cell: Cell) -> None:
    """Most events need no preparation."""


async def _make_overdue(cell: Cell) -> None:
    """Let so much time pass that whatever has a time is past it."""
    await cell.world.store.rewind(2 * HOUR)


async def _ask_to_stop_and_lapse(cell: Cell) -> None:
    """Ask a running job to stop, and let its lease lapse."""
    if cell.state is State.RUNNING:
        await cell.world.store.cancel([cell.job_id])
    await cell.world.store.rewind(2 * LEASE)


async def _lapse(cell: Cell) -> None:
    await cell.world.store.rewind(2 * LEASE)


async def _lapse_again(cell: Cell) -> None:
    """Let it lapse when it has lapsed before: the first time it goes back at once."""
    if cell.state is State.RUNNING:
        await _lapse(cell)
        await cell.world.store.reap(10)
        cell.lease = (await cell.world.claim_only(cell.job_id)).lease
    await _lapse(cell)


async def _wait_too_long(cell: Cell) -> None:
    await cell.world.store.rewind(2 * DAY)


async def _revive_blocker(cell: Cell) -> None:
    """Bring a blocker that has ended back, so that it can end again after its waiter has gone on."""
    if cell.blocker is not None and await cell.world.state(cell.blocker) in TERMINAL:
        await cell.world.store.reopen([cell.blocker])


async def _enqueue(cell: Cell) -> None:
    await cell.world.enqueue(cell.job)


async def _cancel(cell: Cell) -> None:
    legal = Answer.REQUESTED if cell.state is State.RUNNING else Answer.DONE
    _expect(cell, (await cell.world.store.cancel([cell.job_id], by="client", reason="not needed"))[0], legal)


async def _complete_outside(cell: Cell) -> None:
    _expect(cell, (await cell.world.store.complete({cell.job_id: "2"}, by="client"))[0], Answer.DONE)


async def _fail_outside(cell: Cell) -> None:
    _expect(cell, (await cell.world.store.fail({cell.job_id: Error("BAD", "by hand")}, by="client"))[0], Answer.DONE)


async def _delete(cell: Cell) -> None:
    _expect(cell, (await cell.world.store.delete([cell.job_id], by="client"))[0], Answer.DONE)


async def _reopen(cell: Cell) -> None:
    _expect(cell, (await cell.world.store.reopen([cell.job_id], by="client"))[0], Answer.DONE)


async def _promote(cell: Cell) -> None:
    promoted = await cell.world.store.promote(10)
    assert promoted.count == (1 if cell.legal else 0), f"promote with a job in {cell.state} says {promoted}"


async def _emit(cell: Cell) -> None:
    emitted = await cell.world.store.emit(SIGNAL, "1", by="client")
    assert emitted.first
    woken = (cell.job_id,) if cell.legal else ()
    assert emitted.jobs == woken, f"a signal with a job in {cell.state} woke {emitted.jobs}"
    assert emitted.queues == {cell.job.queue for _ in woken}


async def _end_blocker_well(cell: Cell) -> None:
    if cell.blocker is not None:
        claimed = await cell.world.claim_only(cell.blocker, worker="blocker", tasks=(BLOCKER_TASK,))
        await cell.world.succeed(claimed)
    assert await cell.world.store.unblock(10) == 0, "nothing was left for unblock() to settle"


async def _end_blocker_badly(cell: Cell) -> None:
    if cell.blocker is not None:
        claimed = await cell.world.claim_only(cell.blocker, worker="blocker", tasks=(BLOCKER_TASK,))
        await cell.world.fail(claimed, fatal=True)
    assert await cell.world.store.unblock(10) == 0, "nothing was left for unblock() to settle"


async def _reap(cell: Cell) -> None:
    reaped = [one.job_id for one in await cell.world.store.reap(10)]
    assert reaped == ([cell.job_id] if cell.legal else []), f"reap with a job in {cell.state} settled {reaped}"


async def _drop_overdue(cell: Cell) -> None:
    dropped = await cell.world.store.drop_overdue(10)
    assert dropped == (1 if cell.legal else 0), f"drop_overdue with a job in {cell.state} looked at {dropped}"


async def _prune(cell: Cell) -> None:
    pruned = await cell.world.store.prune(Retention(succeeded=60, failed=60, canceled=60), limit=100)
    assert pruned.count >= (1 if cell.legal else 0), f"prune with a job in {cell.state} says {pruned}"


async def _claim(cell: Cell) -> None:
    claims = [claim.job_id for claim in await cell.world.claim(10)]
    assert claims == ([cell.job_id] if cell.legal else []), f"a claim with a job in {cell.state} gave {claims}"


async def _extend(cell: Cell) -> None:
    answer = (await cell.world.store.extend([cell.lease]))[0].hold
    expected = Hold.RETURNED
    if cell.state is None:
        expected = Hold.GONE
    elif cell.state is State.RUNNING:
        expected = Hold.HELD
    elif cell.state in TERMINAL:
        expected = Hold.ENDED
    assert answer is expected, f"extending a lease of a job in {cell.state} should answer {expected}, not {answer}"


async def _progress(cell: Cell) -> None:
    _expect_write(cell, (await cell.world.store.progress([Progress(cell.lease, 50, "half", "way")]))[0])


async def _checkpoint(cell: Cell) -> None:
    part = Part("part", PartState.COMPLETED, done=1, total=1)
    _expect_write(cell, (await cell.world.store.checkpoint([Checkpoint(cell.lease, part)]))[0])


async def _log(cell: Cell) -> None:
    line = LogLine(lease=cell.lease, message="so far so good")
    _expect_write(cell, (await cell.world.store.log([line]))[0])
    assert await cell.world.logged(cell.job_id) == (["so far so good"] if cell.legal else [])


async def _mark(cell: Cell) -> None:
    mark = StageMark(lease=cell.lease, name="encode", event=cell.event)
    _expect_write(cell, (await cell.world.store.mark([mark]))[0])


async def _enqueue_child(cell: Cell) -> None:
    child = cell.world.job(task="conformance.child")
    if cell.legal:
        await cell.world.enqueue(child, under=cell.lease)
        assert await cell.world.state(child.id) is State.READY, "a child enqueued under a current lease is there"
        return
    with pytest.raises(StaleLease):
        await cell.world.enqueue(child, under=cell.lease)
    assert await cell.world.state(child.id) is None, "a child enqueued under a dead lease must not be stored"


async def _settle(cell: Cell) -> None:
    settlement = settlement_of(cell.lease, SETTLES[cell.event], cell.job.policy.retry)
    written = settlement.write.event
    assert written is cell.event, f"the test wanted to settle by {cell.event}, but would write {written}"
    _expect_write(cell, (await cell.world.store.settle([settlement]))[0])


def _expect(cell: Cell, answer: Answer, legal: Answer) -> None:
    """Check a client's answer: `legal` where the table allows the event."""
    expected = legal if cell.legal else Answer.REFUSED if cell.state else Answer.NOT_FOUND
    assert answer is expected, f"{cell.event} in {cell.state} should be answered {expected}, not {answer}"


def _expect_write(cell: Cell, answer: Settled) -> None:
    """Check a holder's answer: applied under the current token, else stale."""
    expected = Settled.APPLIED if cell.legal else Settled.STALE
    assert answer is expected, f"{cell.event} in {cell.state} should be answered {expected}, not {answer}"


Act = Callable[[Cell], Awaitable[None]]

PREPARE: Final[dict[Event, Act]] = {
    Event.PROMOTE: _make_overdue,
    Event.PRUNE: _make_overdue,
    Event.OVERDUE: _wait_too_long,
    Event.EXPIRE: _lapse,
    Event.EXPIRE_LATER: _lapse_again,
    Event.EXPIRE_FAIL: _lapse,
    Event.EXPIRE_CANCEL: _ask_to_stop_and_lapse,
    **dict.fromkeys(BLOCKER_EVENTS, _revive_blocker),
}
"""What must have happened before the event can; done before the picture that shows whether anything changed."""

APPLY: Final[dict[Event, Act]] = {
    Event.ENQUEUE: _enqueue,
    Event.ENQUEUE_LATER: _enqueue,
    Event.ENQUEUE_BLOCKED: _enqueue,
    Event.CANCEL: _cancel,
    Event.COMPLETE_OUTSIDE: _complete_outside,
    Event.FAIL_OUTSIDE: _fail_outside,
    Event.DELETE: _delete,
    Event.REOPEN: _reopen,
    Event.PROMOTE: _promote,
    Event.WAKE: _emit,
    Event.UNBLOCK: _end_blocker_well,
    Event.UNBLOCK_LATER: _end_blocker_well,
    Event.BLOCKER_FAIL: _end_blocker_badly,
    Event.BLOCKER_CANCEL: _end_blocker_badly,
    Event.EXPIRE: _reap,
    Event.EXPIRE_LATER: _reap,
    Event.EXPIRE_FAIL: _reap,
    Event.EXPIRE_CANCEL: _reap,
    Event.OVERDUE: _drop_overdue,
    Event.PRUNE: _prune,
    Event.CLAIM: _claim,
    Event.EXTEND: _extend,
    Event.PROGRESS: _progress,
    Event.CHECKPOINT: _checkpoint,
    Event.LOG: _log,
    **dict.fromkeys(STAGE_EVENTS, _mark),
    Event.ENQUEUE_CHILD: _enqueue_child,
    **dict.fromkeys(SETTLES, _settle),
}
"""The real operation behind each event; KeyError when the table grows and the suite does not."""
