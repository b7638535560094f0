"""Dead tokens: whoever lost a lease can change nothing, by any operation, however the lease was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.lease import Hold, Lease
from holdfast.core.outcome import Rescheduled, Succeeded
from holdfast.core.states import Event, State
from holdfast.errors import StaleLease
from holdfast.store.conformance.cells import SETTLES
from holdfast.store.conformance.world import BOOM, HOUR, LATER, LEASE, Subject, World, settlement_of, write_of
from holdfast.store.port import Checkpoint, LogLine, Part, PartState, Progress, Settled, Settlement, StageMark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.core.lease import Claimed

# --- ways to lose a lease: each takes one that is current, and returns what a holder is then told by `extend` -----------


async def reaped(world: World, claimed: Claimed) -> Hold:
    await world.reaped(claimed)
    return Hold.RETURNED


async def reaped_into_a_rest(world: World, claimed: Claimed) -> Hold:
    await world.reaped(claimed)
    second = await world.claim_only(claimed.job_id, worker="two")
    await world.store.settle([Settlement(second.lease, write_of(Rescheduled(after=HOUR)))])
    return Hold.RETURNED


async def taken_by_another(world: World, claimed: Claimed) -> Hold:
    await world.reaped(claimed)
    await world.claim_only(claimed.job_id, worker="two")
    return Hold.TAKEN


async def taken_again_by_itself(world: World, claimed: Claimed) -> Hold:
    await world.reaped(claimed)
    await world.claim_only(claimed.job_id)
    return Hold.TAKEN


async def finished_by_another(world: World, claimed: Claimed) -> Hold:
    await world.reaped(claimed)
    await world.succeed(await world.claim_only(claimed.job_id, worker="two"))
    return Hold.ENDED


async def completed_from_outside(world: World, claimed: Claimed) -> Hold:
    await world.store.complete({claimed.job_id: "1"})
    return Hold.ENDED


async def failed_from_outside(world: World, claimed: Claimed) -> Hold:
    await world.store.fail({claimed.job_id: BOOM})
    return Hold.ENDED


async def completed_and_reopened(world: World, claimed: Claimed) -> Hold:
    await world.store.complete({claimed.job_id: "1"})
    await world.store.reopen([claimed.job_id])
    return Hold.RETURNED


async def completed_reopened_and_taken(world: World, claimed: Claimed) -> Hold:
    await completed_and_reopened(world, claimed)
    await world.claim_only(claimed.job_id, worker="two")
    return Hold.TAKEN


async def deleted(world: World, claimed: Claimed) -> Hold:
    await world.store.delete([claimed.job_id])
    return Hold.GONE


async def revoked(world: World, claimed: Claimed) -> Hold:
    worker = (await world.view(claimed.job_id)).worker_id
    assert worker is not None
    await world.store.revoke(worker, by="ops")
    return Hold.RETURNED


async def revoked_and_taken(world: World, claimed: Claimed) -> Hold:
    await revoked(world, claimed)
    await world.claim_only(claimed.job_id, worker="two")
    return Hold.TAKEN


async def canceled_and_revoked(world: World, claimed: Claimed) -> Hold:
    await world.store.cancel([claimed.job_id])
    await revoked(world, claimed)
    return Hold.ENDED


WAYS: Final = [
    reaped,
    reaped_into_a_rest,
    taken_by_another,
    taken_again_by_itself,
    finished_by_another,
    completed_from_outside,
    failed_from_outside,
    completed_and_reopened,
    completed_reopened_and_taken,
    deleted,
    revoked,
    revoked_and_taken,
    canceled_and_revoked,
]


async def use_everywhere(world: World, lease: Lease, hold: Hold) -> None:
    """Try every operation of a holder under a dead lease: each is refused in its own words and changes nothing."""
    before = await world.snapshot(lease.job_id)
    for event, outcome in SETTLES.items():
        settlement = settlement_of(lease, outcome, LATER if event.name.endswith("LATER") else world.job().policy.retry)
        answer = (await world.store.settle([settlement]))[0]
        assert answer is Settled.STALE, f"settling by {event} under a dead token was answered {answer}"
        before.check_unchanged(await world.snapshot(lease.job_id), f"settling by {event} under a dead token")
    extended = (await world.store.extend([lease]))[0]
    assert (extended.hold, extended.expires_at) == (hold, None), f"extending a dead lease should say {hold}: {extended}"
    answer = (await world.store.progress([Progress(lease, 99, "late", "words")]))[0]
    assert answer is Settled.STALE, f"progress under a dead token was answered {answer}"
    answer = (await world.store.checkpoint([Checkpoint(lease, Part("late", PartState.COMPLETED))]))[0]
    assert answer is Settled.STALE, f"a checkpoint under a dead token was answered {answer}"
    answer = (await world.store.log([LogLine(lease=lease, message="late words")]))[0]
    assert answer is Settled.STALE, f"a log line under a dead token was answered {answer}"
    answer = (await world.store.mark([StageMark(lease=lease, name="late", event=Event.STAGE_ENTER)]))[0]
    assert answer is Settled.STALE, f"a stage under a dead token was answered {answer}"
    answer = (await world.store.flag_free([lease]))[0]
    assert answer is Settled.STALE, f"flag_free under a dead token was answered {answer}"
    await use_in_a_transaction(world, lease)
    child = world.job(task="conformance.child", key="child")
    with pytest.raises(StaleLease):
        await world.enqueue(child, under=lease)
    assert await world.state(child.id) is None, "a child enqueued under a dead lease was stored"
    before.check_unchanged(
        await world.snapshot(lease.job_id), "extend, progress, checkpoint, log, mark, flag_free, enqueue(under=)"
    )


async def use_in_a_transaction(world: World, lease: Lease) -> None:
    """Try what a handler's transaction offers under a dead lease."""
    for event, outcome in SETTLES.items():
        transaction = await world.store.begin()
        answer = await transaction.settle(settlement_of(lease, outcome))
        await transaction.rollback()
        assert answer is Settled.STALE, f"settling by {event} in a transaction under a dead token was answered {answer}"
    transaction = await world.store.begin()
    answer = await transaction.prove(lease)
    await transaction.rollback()
    assert answer is Settled.STALE, f"proving a dead lease was answered {answer}"


class Fencing(Subject):
    """Dead tokens on every operation of a holder."""

    @pytest.mark.parametrize("lose", WAYS, ids=lambda way: way.__name__)
    async def test_lost_lease_can_change_nothing(self, world: World, lose: Callable[[World, Claimed], Awaitable[Hold]]) -> None:
        claimed = await world.claimed()

        hold = await lose(world, claimed)

        await use_everywhere(world, claimed.lease, hold)

    async def test_random_token_can_change_nothing(self, world: World) -> None:
        claimed = await world.claimed()

        await use_everywhere(world, Lease(claimed.job_id, uuid4()), Hold.TAKEN)

        assert await world.succeed(claimed) is Settled.APPLIED, "the true holder was disturbed by a random token"

    async def test_token_of_another_job_can_change_nothing(self, world: World) -> None:
        await world.enqueue(*world.jobs(2))
        first, second = await world.claim(2)

        await use_everywhere(world, Lease(first.job_id, second.token), Hold.TAKEN)

        answers = await world.store.settle([world.settlement(claim, Succeeded()) for claim in (first, second)])
        assert answers == [Settled.APPLIED] * 2, "the true holders were disturbed by crossed tokens"

    async def test_crossed_tokens_in_one_batch_are_all_stale(self, world: World) -> None:
        await world.enqueue(*world.jobs(2))
        first, second = await world.claim(2)
        crossed = [Lease(first.job_id, second.token), Lease(second.job_id, first.token)]
        before = await world.snapshot(first.job_id, second.job_id)

        settled = await world.store.settle([Settlement(lease, write_of(Succeeded())) for lease in crossed])
        progressed = await world.store.progress([Progress(lease, 1) for lease in crossed])
        extended = await world.store.extend(crossed)

        assert settled == progressed == [Settled.STALE] * 2, "both tokens are current, but not for these jobs"
        assert [one.hold for one in extended] == [Hold.TAKEN] * 2
        before.check_unchanged(await world.snapshot(first.job_id, second.job_id), "a batch of crossed tokens")

    async def test_token_of_a_job_that_never_was_is_gone(self, world: World) -> None:
        await use_everywhere(world, Lease(uuid7(), uuid4()), Hold.GONE)

    async def test_token_of_a_waiting_job_is_refused(self, world: World) -> None:
        await use_everywhere(world, Lease(await world.create(), uuid4()), Hold.RETURNED)

    @pytest.mark.parametrize("old_first", [True, False])
    async def test_only_the_newer_attempt_of_a_batch_is_applied(self, world: World, *, old_first: bool) -> None:
        old = await world.claimed()
        await world.reaped(old)
        new = await world.claim_only(old.job_id)
        batch = [old, new] if old_first else [new, old]

        extended = [one.hold for one in await world.store.extend([claim.lease for claim in batch])]
        progressed = await world.store.progress([Progress(claim.lease, 10.0 * claim.attempt) for claim in batch])
        parts = [Checkpoint(claim.lease, Part(f"part {claim.attempt}", PartState.COMPLETED)) for claim in batch]
        checkpointed = await world.store.checkpoint(parts)
        lines = [LogLine(lease=claim.lease, message=f"line {claim.attempt}") for claim in batch]
        logged = await world.store.log(lines)
        stages = [StageMark(lease=claim.lease, name=f"stage {claim.attempt}", event=Event.STAGE_ENTER) for claim in batch]
        marked = await world.store.mark(stages)
        flagged = await world.store.flag_free([claim.lease for claim in batch])
        view = await world.view(old.job_id)
        settled = await world.store.settle([world.settlement(claim, Succeeded(f"{claim.attempt}")) for claim in batch])

        fates = [Settled.STALE if claim is old else Settled.APPLIED for claim in batch]
        assert extended == [Hold.TAKEN if claim is old else Hold.HELD for claim in batch]
        assert progressed == fates
        assert checkpointed == fates
        assert logged == fates
        assert marked == fates
        assert flagged == fates
        assert settled == fates
        assert view.progress == 20.0, "the progress of the dead attempt was written"
        assert [part.name for part in await world.store.parts(old.job_id)] == ["part 2"]
        assert await world.logged(old.job_id) == ["line 2"]
        assert "stage 1" not in [line.detail for line in await world.store.events(old.job_id)]
        assert (await world.view(old.job_id)).result == "2"
        await world.check_log(old.job_id)

    async def test_batch_settles_the_current_and_refuses_the_dead(self, world: World) -> None:
        await world.enqueue(*world.jobs(3))
        claims = await world.claim(3)
        await world.store.complete({claims[1].job_id: '"outside"'})

        answers = await world.store.settle([world.settlement(claim, Succeeded('"holder"')) for claim in claims])

        assert answers == [Settled.APPLIED, Settled.STALE, Settled.APPLIED]
        results = [(await world.view(claim.job_id)).result for claim in claims]
        assert results == ['"holder"', '"outside"', '"holder"']
        await world.check_log(*(claim.job_id for claim in claims))

    async def test_child_with_a_dead_parent_leaves_its_key_free(self, world: World) -> None:
        claimed = await world.claimed()
        await world.reaped(claimed)
        with pytest.raises(StaleLease):
            await world.enqueue(world.job(task="conformance.child", key="k"), under=claimed.lease)

        answer = (await world.enqueue(world.job(task="conformance.child", key="k")))[0]

        assert answer.status == "created", "the refused child still holds its key"

    async def test_children_under_a_current_lease_are_created(self, world: World) -> None:
        claimed = await world.claimed()
        children = world.jobs(3, task="conformance.child")

        answers = await world.enqueue(*children, under=claimed.lease)

        assert [answer.job_id for answer in answers] == [child.id for child in children]
        assert await world.states(child.id for child in children) == [State.READY] * 3
        assert await world.state(claimed.job_id) is State.RUNNING

    async def test_late_settle_of_an_unreaped_lease_is_accepted_and_marked(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()
        assert (await world.view(claimed.job_id)).lapsed, "the lease has lapsed and nobody reaped it"

        answer = await world.succeed(claimed, '"late but fine"')

        view = await world.view(claimed.job_id)
        assert answer is Settled.LATE
        assert (view.state, view.late, view.result) == (State.SUCCEEDED, True, '"late but fine"')
        assert [(one.attempt, one.late) for one in await world.store.attempts(claimed.job_id)] == [(1, True)]
        assert await world.store.reap(10) == [], "a settled lease was reaped"
        await world.check_log(claimed.job_id)

    async def test_late_failure_of_an_unreaped_lease_is_accepted_and_marked(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()

        answer = await world.fail(claimed)

        assert answer is Settled.LATE
        assert await world.state(claimed.job_id) is State.READY
        assert [(one.attempt, one.late) for one in await world.store.attempts(claimed.job_id)] == [(1, True)]
        assert (await world.claim_only(claimed.job_id)).failures == 1

    async def test_lapsed_lease_that_nobody_reaped_is_extended(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()

        extended = (await world.store.extend([claimed.lease]))[0]

        view = await world.view(claimed.job_id)
        assert extended.hold is Hold.HELD
        assert extended.expires_at == view.expires_at
        assert not view.lapsed
        assert await world.store.reap(10) == [], "the reaper took a lease that had been extended"
        assert await world.succeed(claimed) is Settled.APPLIED

    async def test_lapsed_lease_that_nobody_reaped_may_still_write(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()
        child = world.job(task="conformance.child")

        await world.enqueue(child, under=claimed.lease)
        checkpointed = await world.part(claimed, "part")
        await world.lapse()
        progressed = (await world.store.progress([Progress(claimed.lease, 5)]))[0]

        assert await world.state(child.id) is State.READY
        assert checkpointed.accepted
        assert progressed.accepted
        assert not (await world.view(claimed.job_id)).lapsed, "progress extends the lease"

    async def test_extension_runs_for_the_length_of_the_lease(self, world: World) -> None:
        claimed = await world.claimed()
        await world.store.rewind(LEASE / 2)
        before = await world.view(claimed.job_id)

        extended = (await world.store.extend([claimed.lease]))[0]

        view = await world.view(claimed.job_id)
        assert before.expires_at is not None
        assert extended.expires_at is not None
        assert extended.expires_at > before.expires_at
        assert view.expires_at is not None
        assert view.heartbeat_at is not None
        length = (view.expires_at - view.heartbeat_at).total_seconds()
        assert length == pytest.approx(LEASE, abs=0.01), f"a lease of {LEASE:g} s was extended by {length:g} s"

    async def test_holding_names_the_leases_of_one_worker(self, world: World) -> None:
        await world.enqueue(*world.jobs(3))
        mine = await world.claim(2)
        theirs = await world.claim(1, worker="two")

        held = {name: set(await world.store.holding(await world.worker(name))) for name in ("one", "two", "three")}

        assert held == {
            "one": {claim.lease for claim in mine},
            "two": {claim.lease for claim in theirs},
            "three": set(),
        }
        await world.succeed(mine[0])
        assert await world.store.holding(await world.worker("one")) == [mine[1].lease], "a settled lease is not held"

    async def test_tokens_are_all_different(self, world: World) -> None:
        await world.enqueue(*world.jobs(20))
        claims = await world.claim(20)

        assert len({claim.token for claim in claims}) == 20
