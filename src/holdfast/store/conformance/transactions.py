"""A handler's transaction: what it enqueues, how it settles, and what it does not do until it has committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from uuid import uuid4

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.lease import Hold, Lease
from holdfast.core.outcome import Continued, Failed, Released, Stopped, Succeeded, Suspended
from holdfast.core.states import Event, State
from holdfast.errors import BadJob, BadSetting, QueueFull, StaleLease
from holdfast.store.conformance.chains import second_step
from holdfast.store.conformance.world import APPLIED, BLOCKER_TASK, BOOM, NEXT_TASK, Subject, World, ids
from holdfast.store.port import Enqueue, Enqueued, Settled

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast.core.outcome import Outcome

T = TypeVar("T")
CHILD: Final = "conformance.child"
WRITTEN: Final = frozenset({*APPLIED, Settled.LATE})
"""The answers after which a handler's transaction may commit: one that was settled before is none of them."""


def by_hand(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends, as blocking code does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine} suspends, although its connection is said to be a blocking one")


class Transactions(Subject):
    """begin(), and settled()."""

    writers_wait: ClassVar[bool] = False
    """Whether an open transaction that has written keeps every other writer waiting, as in a database of one writer."""

    # together or not at all

    async def test_commit_makes_everything_visible_together(self, world: World) -> None:
        other = await world.handle()
        claimed, children = await world.claimed(), world.jobs(3, task=CHILD)
        waiter = world.job(CHILD, after=(children[0].id,))
        then = world.job(NEXT_TASK)
        everything = [claimed.job_id, *ids(children), waiter.id, then.id]

        transaction = await world.store.begin()
        answers = await transaction.enqueue([*children, waiter])
        settled = await transaction.settle(world.settlement(claimed, Continued(then)))
        before = [view and view.state for view in await other.get(everything)]
        await transaction.commit()

        assert answers == [Enqueued(Enqueue.CREATED, job.id) for job in (*children, waiter)]
        assert settled is Settled.APPLIED
        assert before == [State.RUNNING, *[None] * 5], "others saw what was not committed"
        after = [view and view.state for view in await other.get(everything)]
        assert after == [State.SUCCEEDED, *[State.READY] * 3, State.BLOCKED, State.READY]
        assert await world.store.settled(claimed.lease)
        assert ids(await world.claim(10, tasks=(CHILD,))) == ids(children), "they keep their order"
        await world.check_log(*everything)

    async def test_rollback_leaves_nothing(self, world: World) -> None:
        claimed, child, then = await world.claimed(), world.job(CHILD, key="k"), world.job(NEXT_TASK)
        before = await world.snapshot(claimed.job_id, child.id, then.id)

        transaction = await world.store.begin()
        await transaction.enqueue([child])
        assert await transaction.settle(world.settlement(claimed, Continued(then))) is Settled.APPLIED
        await transaction.rollback()

        before.check_unchanged(await world.snapshot(claimed.job_id, child.id, then.id), "a transaction that was rolled back")
        assert not await world.store.settled(claimed.lease)
        assert (await world.enqueue(world.job(CHILD, key="k")))[0].status is Enqueue.CREATED
        assert await world.succeed(claimed) is Settled.APPLIED, "the lease is still held"

    @pytest.mark.parametrize("end", ["succeed", "fail", "retry", "suspend"])
    async def test_every_outcome_may_be_committed(self, world: World, end: str) -> None:
        ends: dict[str, tuple[Outcome, State, Event]] = {
            "succeed": (Succeeded('"in one"'), State.SUCCEEDED, Event.SUCCEED),
            "fail": (Failed(BOOM, fatal=True), State.FAILED, Event.FAIL),
            "retry": (Failed(BOOM), State.READY, Event.RETRY),
            "suspend": (Suspended(signal="s"), State.SCHEDULED, Event.SUSPEND),
        }
        outcome, state, event = ends[end]
        claimed = await world.claimed()

        transaction = await world.store.begin()
        answer = await transaction.settle(world.settlement(claimed, outcome))
        await transaction.commit()

        assert answer is Settled.APPLIED
        assert await world.state(claimed.job_id) is state
        assert await world.attempts(claimed.job_id) == [(1, event)]
        assert await world.store.settled(claimed.lease)
        await world.check_log(claimed.job_id)

    async def test_waiters_go_on_when_their_blocker_is_committed(self, world: World) -> None:
        claimed = await world.claimed(task=BLOCKER_TASK)
        waiter = await world.waiter(claimed.job_id)

        transaction = await world.store.begin()
        answer = await transaction.settle(world.settlement(claimed, Succeeded("1")))
        before = await world.state(waiter)
        await transaction.commit()

        assert answer is Settled.FREED
        assert (before, await world.state(waiter)) == (State.BLOCKED, State.READY)
        assert await world.store.unblock(10) == 0, "nothing was left for unblock() to settle"

    async def test_waiter_created_in_a_transaction_goes_on_with_its_blocker(self, world: World) -> None:
        running = await world.claimed(task=BLOCKER_TASK)
        done = await world.ended(State.SUCCEEDED, task=BLOCKER_TASK)
        waiters = [world.job(after=(blocker,)) for blocker in (running.job_id, done)]

        transaction = await world.store.begin()
        await transaction.enqueue(waiters)
        await transaction.commit()
        await world.store.unblock(10)
        seen = await world.states(ids(waiters))
        await world.succeed(running)
        await world.store.unblock(10)

        assert seen == [State.BLOCKED, State.READY]
        assert await world.states(ids(waiters)) == [State.READY] * 2
        await world.check_log(*ids(waiters))

    # the fence

    @pytest.mark.parametrize("how", ["settle", "fail", "continue", "prove"])
    async def test_lost_lease_cannot_be_committed_under(self, world: World, how: str) -> None:
        claimed = await world.claimed()
        await world.reaped(claimed)
        child, then = world.job(CHILD, key="k"), world.job(NEXT_TASK)
        seen = (claimed.job_id, child.id, then.id)
        before = await world.snapshot(*seen)

        transaction = await world.store.begin()
        await transaction.enqueue([child])
        if how == "prove":
            answer = await transaction.prove(claimed.lease)
        else:
            ends: dict[str, Outcome] = {"continue": Continued(then), "fail": Failed(BOOM, fatal=True)}
            answer = await transaction.settle(world.settlement(claimed, ends.get(how, Succeeded())))
        await transaction.rollback()

        assert answer is Settled.STALE
        before.check_unchanged(await world.snapshot(*seen), "a transaction under a lost lease")
        assert not await world.store.settled(claimed.lease)

    async def test_lease_is_not_lost_between_settling_and_the_commit(self, world: World) -> None:
        claimed, child = await world.claimed(), world.job(CHILD)
        await world.lapse()
        transaction = await world.store.begin()
        await transaction.enqueue([child])
        assert await transaction.settle(world.settlement(claimed, Succeeded())) is Settled.LATE
        reaping = asyncio.ensure_future((await world.handle()).reap(10))
        if not self.writers_wait:
            await reaping

        try:
            await transaction.commit()
        except StaleLease:
            assert await reaping, "the commit was refused although nobody had taken the lease"
            assert await world.states([claimed.job_id, child.id]) == [State.READY, None], "a part of it stands"
        else:
            assert await reaping == [], "a lease was reaped although its settlement was committed"
            assert await world.states([claimed.job_id, child.id]) == [State.SUCCEEDED, State.READY]
        await world.check_log(claimed.job_id)

    async def test_proven_lease_goes_on(self, world: World) -> None:
        claimed, child = await world.claimed(), world.job(CHILD)
        before = await world.snapshot(claimed.job_id)

        transaction = await world.store.begin()
        await transaction.enqueue([child])
        answer = await transaction.prove(claimed.lease)
        await transaction.commit()

        assert answer is Settled.APPLIED
        assert await world.state(child.id) is State.READY
        changes = [change for change in before.changes(await world.snapshot(claimed.job_id)) if change.startswith("job 1")]
        assert not changes, f"a fenced write is no end of the attempt: {changes}"
        assert not await world.store.settled(claimed.lease)
        assert await world.succeed(claimed) is Settled.APPLIED

    async def test_settled_attempt_cannot_be_committed_again(self, world: World) -> None:
        claimed = await world.claimed()
        await world.succeed(claimed)

        transaction = await world.store.begin()
        await transaction.enqueue([child := world.job(CHILD)])
        answer = await transaction.settle(world.settlement(claimed, Succeeded()))
        await transaction.rollback()

        assert answer not in WRITTEN, "what is written twice in transactions of one attempt would happen twice"
        assert await world.state(child.id) is None

    async def test_settled_tells_how_its_holder_ended_an_attempt(self, world: World) -> None:
        await world.enqueue(*world.jobs(5))
        ended, lost, running, done, back = await world.claim(5)
        await world.succeed(done)
        await world.settle(back, Released("enough"))
        await world.fail(ended)
        await world.store.complete({lost.job_id: "1"})
        leases = [ended.lease, lost.lease, running.lease, Lease(ended.job_id, uuid4()), Lease(uuid7(), uuid4())]

        assert [await world.store.settled(lease) for lease in leases] == [Event.RETRY, None, None, None, None]
        assert await world.store.settled(done.lease) is Event.SUCCEED
        assert await world.store.settled(back.lease) is Event.RELEASE

        await world.store.cancel([ended.job_id])
        assert await world.store.settled(ended.lease), "what became of the job afterwards does not matter"

    @pytest.mark.parametrize("end", ["continue", "retry", "suspend", "release"])
    async def test_cancel_that_wins_is_told_before_the_commit(self, world: World, end: str) -> None:
        """Committing would keep the handler's writes without what was to follow them: the whole is undone instead."""
        then = world.job(NEXT_TASK)
        ends: dict[str, Outcome] = {
            "continue": Continued(then),
            "retry": Failed(BOOM),
            "suspend": Suspended(signal="s"),
            "release": Released(),
        }
        claimed, child = await world.claimed(), world.job(CHILD)
        await world.store.cancel([claimed.job_id], reason="enough")
        before = await world.snapshot(claimed.job_id, child.id, then.id)

        transaction = await world.store.begin()
        await transaction.enqueue([child])
        answer = await transaction.settle(world.settlement(claimed, ends[end]))
        await transaction.rollback()

        assert answer is Settled.CANCELED
        before.check_unchanged(await world.snapshot(claimed.job_id, child.id, then.id), "a transaction that was undone")
        assert not await world.store.settled(claimed.lease)
        assert await world.settle(claimed, Stopped("enough")) is Settled.APPLIED, "the lease is still held"
        assert await world.states([claimed.job_id, child.id, then.id]) == [State.CANCELED, None, None]
        await world.check_log(claimed.job_id)

    @pytest.mark.parametrize(
        "outcome", [Succeeded("1"), Failed(BOOM, fatal=True), Stopped("enough")], ids=lambda one: type(one).__name__
    )
    async def test_cancel_that_was_asked_for_leaves_an_end_as_it_is(self, world: World, outcome: Outcome) -> None:
        claimed = await world.claimed()
        await world.store.cancel([claimed.job_id])

        transaction = await world.store.begin()
        answer = await transaction.settle(world.settlement(claimed, outcome))
        await transaction.commit()

        assert answer is Settled.APPLIED, "it ended as the settlement said"
        assert await world.store.settled(claimed.lease)

    # others while it is open

    async def test_lease_can_be_extended_while_a_transaction_is_open(self, world: World) -> None:
        claimed = await world.claimed()
        heart = await world.handle()
        transaction = await world.store.begin()
        if not self.writers_wait:
            await transaction.enqueue([world.job(CHILD)])
        beating = asyncio.ensure_future(heart.extend([claimed.lease]))
        if not self.writers_wait:
            assert (await beating)[0].hold is Hold.HELD, "the heartbeat must not wait for the handler's transaction"

        answer = await transaction.settle(world.settlement(claimed, Succeeded()))
        await transaction.commit()

        assert answer is Settled.APPLIED
        assert (await beating)[0].hold in {Hold.HELD, Hold.ENDED, Hold.SETTLING}
        assert await world.state(claimed.job_id) is State.SUCCEEDED

    async def test_two_transactions_at_the_same_time_do_not_disturb_each_other(self, world: World) -> None:
        other = await world.handle()
        claims = [await world.claimed(task="one"), await world.claimed(task="two")]
        children = world.jobs(2, task=CHILD)

        async def run(number: int) -> Settled:
            transaction = await (world.store, other)[number].begin()
            await transaction.enqueue([children[number]])
            await asyncio.sleep(0)
            answer = await transaction.settle(world.settlement(claims[number], Succeeded(f"{number}")))
            await transaction.commit()
            return answer

        answers = await asyncio.gather(run(0), run(1))

        assert set(answers) == {Settled.APPLIED}
        assert [(await world.view(claim.job_id)).result for claim in claims] == ["0", "1"]
        assert await world.states(ids(children)) == [State.READY] * 2
        await world.check_counts()

    async def test_transactions_of_one_handle_are_apart(self, world: World) -> None:
        kept, dropped = world.jobs(2, task=CHILD)
        first = await world.store.begin()
        await first.enqueue([dropped])
        await first.rollback()
        second = await world.store.begin()
        await second.enqueue([kept])
        await second.commit()

        assert await world.states([kept.id, dropped.id]) == [State.READY, None]

    # errors

    async def test_error_leaves_the_transaction_usable(self, world: World) -> None:
        claimed = await world.claimed()
        chain, step = await second_step(world, task="second")
        good, also = world.jobs(2, task=CHILD)
        transaction = await world.store.begin()
        await transaction.enqueue([good])
        for bad in (world.job(CHILD, after=(uuid7(),)), world.job(CHILD, after=(step,))):
            with pytest.raises(BadJob):
                await transaction.enqueue([world.job(CHILD), bad])
        with pytest.raises(QueueFull):
            await transaction.enqueue(world.jobs(3, task=CHILD, queue="small"), caps={"small": 2})
        with pytest.raises(BadJob):
            await transaction.settle(world.settlement(claimed, Continued(world.job(NEXT_TASK, id=chain))))
        await transaction.enqueue([also])
        assert await transaction.settle(world.settlement(claimed, Succeeded())) is Settled.APPLIED

        await transaction.commit()

        children = [view.id for view in await world.all_jobs() if view.task == CHILD]
        assert sorted(children) == sorted([good.id, also.id]), (
            "what was refused left something behind, or took something with it"
        )
        assert await world.state(claimed.job_id) is State.SUCCEEDED
        await world.check_counts()

    async def test_taken_key_of_a_next_step_leaves_the_transaction_usable(self, world: World) -> None:
        await world.create(task=NEXT_TASK, key="k")
        claimed = await world.claimed()
        transaction = await world.store.begin()
        refused = await transaction.settle(world.settlement(claimed, Continued(world.job(NEXT_TASK, key="k"))))
        answer = await transaction.settle(world.settlement(claimed, Failed(BOOM)))
        await transaction.commit()

        assert (refused, answer) == (Settled.KEY_TAKEN, Settled.APPLIED)
        assert await world.attempts(claimed.job_id) == [(1, Event.RETRY)]

    async def test_keys_count_within_a_transaction(self, world: World) -> None:
        holder = await world.create(task=CHILD, key="taken")
        first, second, third = world.job(CHILD, key="k"), world.job(CHILD, key="k"), world.job(CHILD, key="taken")
        transaction = await world.store.begin()
        answers = [*await transaction.enqueue([first]), *await transaction.enqueue([second, third, first])]
        await transaction.commit()

        assert answers == [
            Enqueued(Enqueue.CREATED, first.id),
            Enqueued(Enqueue.EXISTING, first.id),
            Enqueued(Enqueue.EXISTING, holder),
            Enqueued(Enqueue.REPEATED, first.id),
        ]
        assert await world.states([first.id, second.id, third.id]) == [State.READY, None, None]

    async def test_caps_count_what_the_transaction_created(self, world: World) -> None:
        transaction = await world.store.begin()
        await transaction.enqueue(world.jobs(2, task=CHILD, queue="small"), caps={"small": 3})
        with pytest.raises(QueueFull):
            await transaction.enqueue(world.jobs(2, task=CHILD, queue="small"), caps={"small": 3})
        await transaction.commit()

        assert (await world.store.stats()).count(queue="small") == 2

    # the end of it

    async def test_ended_transaction_takes_nothing_more(self, world: World) -> None:
        claimed = await world.claimed()
        for end in ("commit", "rollback"):
            transaction = await world.store.begin()
            await getattr(transaction, end)()

            with pytest.raises(BadSetting):
                await transaction.enqueue([world.job(CHILD)])
            with pytest.raises(BadSetting):
                await transaction.settle(world.settlement(claimed, Succeeded()))
            await transaction.rollback()
        assert len(await world.all_jobs()) == 1

    async def test_what_is_to_follow_a_commit_follows_it_once(self, world: World) -> None:
        heard: list[str] = []
        committed, dropped = await world.store.begin(), None
        told = committed.after_commit(lambda: heard.append("committed"))
        await committed.enqueue([world.job(CHILD)])
        assert heard == []
        await committed.commit()
        dropped = await world.store.begin()
        dropped.after_commit(lambda: heard.append("dropped"))
        await dropped.rollback()

        assert heard == (["committed"] if told else [])

    async def test_blocking_transaction_may_be_driven_by_hand(self, world: World) -> None:
        claimed, child = await world.claimed(), world.job(CHILD)
        transaction = await world.store.begin()
        if not transaction.blocking:
            await transaction.rollback()
            return
        by_hand(transaction.enqueue([child]))
        by_hand(transaction.prove(claimed.lease))
        answer = by_hand(transaction.settle(world.settlement(claimed, Succeeded())))
        by_hand(transaction.commit())
        by_hand(transaction.rollback())

        assert answer is Settled.APPLIED
        assert await world.states([claimed.job_id, child.id]) == [State.SUCCEEDED, State.READY]
