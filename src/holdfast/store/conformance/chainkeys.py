"""Unique keys of chains and of their steps: a chain holds the key it was started with until its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.core.job import OnConflict
from holdfast.core.lease import Hold
from holdfast.core.outcome import REPLACED, Continued, Succeeded
from holdfast.core.states import State
from holdfast.store.conformance.chains import at_step, begun, second_step
from holdfast.store.conformance.world import BOOM, ENDINGS, HOUR, NEXT_TASK, TASK, Subject, World, ids
from holdfast.store.port import Answer, Enqueue, Enqueued, JobFilter, Settled

if TYPE_CHECKING:
    from uuid import UUID

KEY: Final = "user:42"
TAKES_OVER: Final = (OnConflict.REPLACE, OnConflict.DEBOUNCE)
NEXT: Final = (NEXT_TASK,)


async def try_key(world: World, **fields: Any) -> Enqueued:
    """Enqueue one more job with the key of the chain."""
    return (await world.enqueue(world.job(**{"key": KEY, **fields})))[0]


async def try_step_key(world: World, **fields: Any) -> Enqueued:
    """Enqueue one more job with the key of a next step."""
    return await try_key(world, task=NEXT_TASK, **fields)


class ChainKeys(Subject):
    """Keys of chains, keys of steps, and who gives way."""

    # the chain's key

    @pytest.mark.parametrize("state", list(ENDINGS))
    async def test_key_of_a_chain_is_held_until_its_end(self, world: World, state: State) -> None:
        claimed = await begun(world, key=KEY)
        chain, seen = claimed.job_id, []
        for _ in range(3):
            seen.append(await try_key(world))
            claimed = await world.claim_only(await world.proceed(claimed), tasks=NEXT)
        seen.append(await try_key(world))

        await world.end(claimed, state)

        assert seen == [Enqueued(Enqueue.EXISTING, chain)] * 4, "the first step stands for its chain"
        assert (await try_key(world)).status is Enqueue.CREATED, "the key is still held after the chain ended"

    async def test_key_of_a_plain_job_that_continues_is_held_until_the_end(self, world: World) -> None:
        first = await world.claimed(key=KEY)
        step = await world.proceed(first)

        held = await try_key(world)
        await world.store.complete({step: "1"})

        assert held == Enqueued(Enqueue.EXISTING, first.job_id)
        assert (await try_key(world)).status is Enqueue.CREATED

    async def test_key_with_a_window_is_held_by_time_alone(self, world: World) -> None:
        claimed = await begun(world, key=KEY, window=2 * HOUR)
        chain, step = claimed.job_id, await world.proceed(claimed)
        await world.store.complete({step: "1"})
        after_the_end = await try_key(world)
        await world.store.rewind(3 * HOUR)

        assert after_the_end == Enqueued(Enqueue.EXISTING, chain)
        assert (await try_key(world)).status is Enqueue.CREATED

    async def test_fifty_producers_start_one_chain(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(4)]]
        jobs = [world.job(key=KEY) for _ in range(50)]
        starts = [world.job(id=job.id, chain_id=job.id, key=KEY) for job in jobs]

        batches = await asyncio.gather(*(world.enqueue(job, store=handles[i % 5]) for i, job in enumerate(starts)))

        answers = [answer for batch in batches for answer in batch]
        created = [answer.job_id for answer in answers if answer.status is Enqueue.CREATED]
        assert len(created) == 1, f"{len(created)} of 50 producers started a chain with one key"
        assert {answer.job_id for answer in answers} == set(created), "all must be told the same chain"
        page = await world.store.find_chains(JobFilter(key=KEY), limit=10)
        assert [chain.id for chain in page.chains] == created

    # the key of a step

    async def test_key_of_a_step_is_held_while_that_step_is_live(self, world: World) -> None:
        _, step = await second_step(world, key=KEY)
        waiting = await try_step_key(world)
        claimed = await world.claim_only(step, tasks=NEXT)
        running = await try_step_key(world)
        third = await world.proceed(claimed, task="third", key="other")

        assert waiting == running == Enqueued(Enqueue.EXISTING, step)
        assert (await try_step_key(world)).status is Enqueue.CREATED, "a step that continued still holds its own key"
        assert await try_key(world, task="third", key="other") == Enqueued(Enqueue.EXISTING, third)
        await world.store.complete({third: "1"})
        assert (await try_key(world, task="third", key="other")).status is Enqueue.CREATED

    async def test_key_may_go_from_step_to_step(self, world: World) -> None:
        chain, step = await second_step(world, key=KEY)
        for _ in range(3):
            step = await world.proceed(await world.claim_only(step, tasks=NEXT), key=KEY)
            assert await try_step_key(world) == Enqueued(Enqueue.EXISTING, step)

        await world.store.complete({step: "1"})

        assert (await world.chain_view(chain)).steps == 5
        assert (await try_step_key(world)).status is Enqueue.CREATED

    async def test_key_that_its_own_chain_holds_is_no_obstacle(self, world: World) -> None:
        claimed = await begun(world, key=KEY)
        chain = claimed.job_id
        for _ in range(3):
            claimed = await world.claim_only(await world.proceed(claimed, task=TASK, key=KEY))
            assert await try_key(world) == Enqueued(Enqueue.EXISTING, chain), "the chain goes on holding its key"

        await world.succeed(claimed)

        assert (await try_key(world)).status is Enqueue.CREATED

    async def test_taken_key_of_a_next_step_changes_nothing(self, world: World) -> None:
        holder = (await try_step_key(world)).job_id
        await world.enqueue(*world.jobs(2, key=None))
        other, claimed = await world.claim(2)
        then = world.job(NEXT_TASK, key=KEY)
        before = await world.snapshot(claimed.job_id, then.id, holder)

        answer = await world.settle(claimed, Continued(then))

        assert (answer, answer.accepted) == (Settled.KEY_TAKEN, False)
        before.check_unchanged(await world.snapshot(claimed.job_id, then.id, holder), "a continuation that met a taken key")
        assert not await world.store.settled(claimed.lease)
        assert (await world.store.extend([claimed.lease]))[0].hold is Hold.HELD, "the lease is still held"
        batch = [world.settlement(claimed, Continued(then)), world.settlement(other, Succeeded())]
        assert await world.store.settle(batch) == [Settled.KEY_TAKEN, Settled.APPLIED], "the others of the call are settled"
        await world.store.complete({holder: "1"})
        assert await world.settle(claimed, Continued(then)) is Settled.APPLIED, "the key is free now"
        await world.check_log(claimed.job_id, then.id)

    async def test_two_continuations_at_the_same_moment_take_one_key_once(self, world: World) -> None:
        other = await world.handle()
        for number in range(20):
            await world.enqueue(*world.jobs(2))
            left, right = await world.claim(2)
            steps = [world.job(NEXT_TASK, key=f"{number}") for _ in range(2)]

            answers = await asyncio.gather(
                world.settle(left, Continued(steps[0])), world.settle(right, Continued(steps[1]), store=other)
            )

            assert sorted(answers) == [Settled.APPLIED, Settled.KEY_TAKEN], f"two steps wanted one key: {answers}"
            there = [state is not None for state in await world.states(ids(steps))]
            assert there == [answer is Settled.APPLIED for answer in answers]
            refused = (left, right)[answers.index(Settled.KEY_TAKEN)]
            assert await world.succeed(refused) is Settled.APPLIED, "who was refused holds the lease"

    # who gives way

    @pytest.mark.parametrize("on_conflict", TAKES_OVER)
    async def test_next_step_may_replace_a_job_that_waits(self, world: World, on_conflict: OnConflict) -> None:
        holder = (await try_step_key(world, delay=HOUR)).job_id
        claimed = await begun(world)

        step = await world.proceed(claimed, key=KEY, on_conflict=on_conflict, delay=9 * HOUR)

        replaced, view = await world.view(holder), await world.view(step)
        assert (replaced.state, replaced.error and replaced.error.code) == (State.CANCELED, REPLACED)
        assert view.state is State.SCHEDULED
        assert view.run_at is not None
        earlier = (view.run_at - view.created_at).total_seconds() < 2 * HOUR
        assert earlier is (on_conflict is OnConflict.REPLACE), "replacing keeps the earlier time, debouncing the new one"
        assert await try_step_key(world) == Enqueued(Enqueue.EXISTING, step)
        await world.check_log(holder, step)

    @pytest.mark.parametrize("on_conflict", TAKES_OVER)
    async def test_chain_that_has_not_begun_may_be_replaced(self, world: World, on_conflict: OnConflict) -> None:
        chain = await world.chain(key=KEY, delay=HOUR)
        waiter = await world.waiter(chain, task="waiter")

        answer = await try_key(world, on_conflict=on_conflict)

        assert answer.status is Enqueue.CREATED
        assert await world.states([chain, waiter]) == [State.CANCELED, State.FAILED]

    @pytest.mark.parametrize("on_conflict", TAKES_OVER)
    async def test_chain_that_has_begun_gives_its_key_to_nobody(self, world: World, on_conflict: OnConflict) -> None:
        claimed = await begun(world, key=KEY)
        chain = claimed.job_id
        while_running = await try_key(world, on_conflict=on_conflict)
        step = await world.proceed(claimed, delay=HOUR)
        before = await world.snapshot(chain, step)

        while_waiting = await try_key(world, on_conflict=on_conflict)

        assert while_running == while_waiting == Enqueued(Enqueue.EXISTING, chain)
        before.check_unchanged(await world.snapshot(chain, step), "an enqueue that met the key of a chain")

    @pytest.mark.parametrize("on_conflict", TAKES_OVER)
    async def test_later_step_gives_its_key_to_nobody(self, world: World, on_conflict: OnConflict) -> None:
        chain, step = await second_step(world, key=KEY, delay=HOUR)
        claimed = await begun(world)
        before = await world.snapshot(chain, step, claimed.job_id)

        enqueued = await try_step_key(world, on_conflict=on_conflict)
        settled = await world.settle(claimed, Continued(world.job(NEXT_TASK, key=KEY, on_conflict=on_conflict)))

        assert enqueued == Enqueued(Enqueue.EXISTING, step)
        assert settled is Settled.KEY_TAKEN
        before.check_unchanged(await world.snapshot(chain, step, claimed.job_id), "jobs that met the key of a later step")

    @pytest.mark.parametrize("on_conflict", TAKES_OVER)
    async def test_next_step_does_not_replace_a_job_that_runs(self, world: World, on_conflict: OnConflict) -> None:
        running = await world.claimed(task=NEXT_TASK, key=KEY)
        claimed = await begun(world)

        answer = await world.settle(claimed, Continued(world.job(NEXT_TASK, key=KEY, on_conflict=on_conflict)))

        assert answer is Settled.KEY_TAKEN
        assert await world.succeed(running) is Settled.APPLIED

    # bringing back

    async def test_last_step_brought_back_takes_both_keys(self, world: World) -> None:
        claimed = await begun(world, key=KEY)
        chain, step = claimed.job_id, await world.proceed(claimed, key=KEY)
        await world.store.fail({step: BOOM})

        assert await world.store.reopen([step]) == [Answer.DONE]

        assert await try_key(world) == Enqueued(Enqueue.EXISTING, chain)
        assert await try_step_key(world) == Enqueued(Enqueue.EXISTING, step)

    @pytest.mark.parametrize("taken", [TASK, NEXT_TASK])
    async def test_last_step_is_not_brought_back_while_one_of_its_keys_is_taken(self, world: World, taken: str) -> None:
        chain, last = await at_step(world, 1, key=KEY)
        step = await world.proceed(last, key=KEY)
        await world.store.fail({step: BOOM})
        holder: UUID = (await try_key(world, task=taken)).job_id
        before = await world.snapshot(chain, step, holder)

        answer = await world.store.reopen([step])

        assert answer == [Answer.KEY_TAKEN]
        before.check_unchanged(await world.snapshot(chain, step, holder), "reopening a chain whose key is taken")
        await world.store.complete({holder: "1"})
        assert await world.store.reopen([step]) == [Answer.DONE]
