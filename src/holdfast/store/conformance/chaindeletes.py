"""Removing chains: all of what is asked for or nothing, and never what somebody outside still needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy
from holdfast.core.lease import Hold
from holdfast.core.outcome import Continued
from holdfast.core.states import State
from holdfast.errors import BadJob
from holdfast.store.conformance.chains import at_step, begun, second_step
from holdfast.store.conformance.world import BLOCKER_TASK, HOUR, NEXT_TASK, Subject, World
from holdfast.store.port import Answer, ChainsDeleted, JobFilter, Settled

if TYPE_CHECKING:
    from uuid import UUID

NEXT: Final = (NEXT_TASK,)


def check_gone(answer: ChainsDeleted, chains: set[UUID], jobs: set[UUID]) -> None:
    """Check that exactly these chains were removed, with these steps."""
    assert answer.answer is Answer.DONE, f"the chains should have been removed: {answer}"
    assert (set(answer.chains), set(answer.jobs)) == (chains, jobs)
    assert (len(answer.chains), len(answer.jobs)) == (len(chains), len(jobs)), f"each once: {answer}"


class ChainDeletes(Subject):
    """delete_chains(), and what delete() refuses."""

    async def test_chain_goes_with_all_its_steps(self, world: World) -> None:
        chain, last = await at_step(world, 3, key="k")
        await world.succeed(last)
        steps = {view.id for view in await world.all_jobs(JobFilter(chain_id=chain))}
        other = await world.create()

        answer = await world.store.delete_chains([chain])

        check_gone(answer, {chain}, steps)
        assert len(steps) == 3
        assert await world.store.chains([chain]) == [None]
        assert [view.id for view in await world.all_jobs()] == [other]
        assert (await world.store.find_chains(JobFilter(), limit=10)).chains == []
        assert [await world.store.events(step) for step in steps] == [[], [], []]
        await world.check_counts()

    async def test_plain_job_is_removed_as_a_chain_of_one(self, world: World) -> None:
        job = await world.create()

        check_gone(await world.store.delete_chains([job]), {job}, {job})

        assert await world.state(job) is None

    async def test_chain_that_runs_is_removed_and_its_lease_is_dead(self, world: World) -> None:
        chain, running = await at_step(world, 2, key="k")

        check_gone(await world.store.delete_chains([chain]), {chain}, {chain, running.job_id})

        assert (await world.store.extend([running.lease]))[0].hold is Hold.GONE
        then = world.job(NEXT_TASK)
        assert await world.settle(running, Continued(then)) is Settled.STALE
        assert await world.succeed(running) is Settled.STALE
        assert await world.states([chain, running.job_id, then.id]) == [None] * 3
        assert not await world.store.settled(running.lease)
        assert (await world.enqueue(world.job(key="k")))[0].status == "created", "a chain that is gone holds its key"
        await world.check_counts()

    async def test_unknown_chain_is_named_and_nothing_is_removed(self, world: World) -> None:
        chain, later = await second_step(world)
        for unknown in (uuid7(), later):
            answer = await world.store.delete_chains([chain, unknown])

            assert (answer.answer, answer.chain, answer.jobs) == (Answer.NOT_FOUND, unknown, ())
            assert None not in await world.states([chain, later])

    async def test_one_step_of_several_is_not_deleted_alone(self, world: World) -> None:
        chain, last = await at_step(world, 2)
        before = await world.snapshot(chain, last.job_id)

        answers = await world.store.delete([chain, last.job_id])

        assert answers == [Answer.CHAINED, Answer.CHAINED]
        before.check_unchanged(await world.snapshot(chain, last.job_id), "deleting single steps of a chain")

    async def test_chain_of_one_step_may_be_deleted_as_a_job(self, world: World) -> None:
        chain = await world.chain(key="k")

        assert await world.store.delete([chain]) == [Answer.DONE]

        assert await world.store.chains([chain]) == [None]
        assert (await world.store.find_chains(JobFilter(), limit=10)).chains == []

    # what others need

    async def test_chain_that_somebody_outside_needs_is_refused_by_name(self, world: World) -> None:
        chain, step = await second_step(world)
        waiter = await world.waiter(chain, delay=HOUR, task="waiter")
        seen = (chain, step, waiter)
        for bring_on in (None, "unblocked", "ready", "running"):
            match bring_on:
                case "unblocked":
                    await world.store.complete({step: "1"})
                case "ready":
                    await world.store.rewind(2 * HOUR)
                    await world.store.promote(10)
                case "running":
                    await world.claim_only(waiter, tasks=("waiter",))
            before = await world.snapshot(*seen)

            answer = await world.store.delete_chains([chain])

            assert answer == ChainsDeleted(answer=Answer.NEEDED, chain=chain, needed_by=waiter)
            before.check_unchanged(await world.snapshot(*seen), f"deleting a chain that is needed ({bring_on})")
        await world.store.complete({waiter: "1"})
        check_gone(await world.store.delete_chains([chain]), {chain}, {chain, step})
        assert await world.state(waiter) is State.SUCCEEDED

    async def test_waiters_among_what_is_removed_go_too(self, world: World) -> None:
        chain, step = await second_step(world)
        waiter = await world.waiter(chain)
        last = await world.waiter(waiter)

        refused = await world.store.delete_chains([chain, last])
        gone = await world.store.delete_chains([chain, last, waiter])

        assert refused == ChainsDeleted(answer=Answer.NEEDED, chain=chain, needed_by=waiter)
        check_gone(gone, {chain, waiter, last}, {chain, step, waiter, last})
        await world.check_counts()

    # cascade

    async def test_cascade_takes_the_blockers_with_it(self, world: World) -> None:
        deep = await world.chain(task="deep")
        middle, step = await second_step(world, after=(deep,))
        waiter = await world.create(after=(middle,), task="waiter")
        unrelated = await world.create(task=BLOCKER_TASK)

        alone = await world.store.delete_chains([middle])
        all_of_it = await world.store.delete_chains([waiter], cascade=True)

        assert alone == ChainsDeleted(answer=Answer.NEEDED, chain=middle, needed_by=waiter)
        check_gone(all_of_it, {waiter, middle, deep}, {waiter, middle, step, deep})
        assert [view.id for view in await world.all_jobs()] == [unrelated]
        await world.check_counts()

    async def test_cascade_takes_blockers_that_have_ended_too(self, world: World) -> None:
        ended = await world.ended(State.SUCCEEDED, task=BLOCKER_TASK)
        done = await world.create(task=BLOCKER_TASK)
        waiter = await world.create(after=(ended, done))
        await world.store.complete({done: "1"})

        check_gone(await world.store.delete_chains([waiter], cascade=True), *[{waiter, ended, done}] * 2)

    async def test_without_cascade_blockers_stay(self, world: World) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        waiter = await world.waiter(blocker)

        check_gone(await world.store.delete_chains([waiter]), {waiter}, {waiter})

        assert await world.state(blocker) is State.READY
        assert await world.store.delete([blocker]) == [Answer.DONE], "who needed it is gone"

    async def test_cascade_walks_a_diamond_once(self, world: World) -> None:
        top = await world.chain(task="top")
        left, right = await world.waiter(top, task="left"), await world.waiter(top, task="right")
        bottom = await world.create(task="bottom", after=(left, right))

        check_gone(await world.store.delete_chains([bottom], cascade=True), *[{top, left, right, bottom}] * 2)

        assert await world.all_jobs() == []

    async def test_cascade_is_refused_while_somebody_outside_needs_a_part(self, world: World) -> None:
        top = await world.chain(task="top")
        left, right = await world.waiter(top, task="left"), await world.waiter(top, task="right")
        bottom = await world.create(task="bottom", after=(left,))
        seen = (top, left, right, bottom)
        before = await world.snapshot(*seen)

        answer = await world.store.delete_chains([bottom], cascade=True)

        assert answer == ChainsDeleted(answer=Answer.NEEDED, chain=top, needed_by=right)
        before.check_unchanged(await world.snapshot(*seen), "a cascade that somebody outside needs a part of")
        await world.store.cancel([right])
        check_gone(await world.store.delete_chains([bottom], cascade=True), *[{top, left, bottom}] * 2)
        assert await world.state(right) is State.CANCELED

    async def test_cascade_passes_over_blockers_that_are_gone(self, world: World) -> None:
        blocker = await world.ended(State.FAILED, task=BLOCKER_TASK)
        waiter = await world.waiter(blocker, on_blocker_failure=BlockerPolicy.FAIL)
        assert await world.store.delete([blocker]) == [Answer.DONE]

        check_gone(await world.store.delete_chains([waiter], cascade=True), {waiter}, {waiter})

    # races

    async def test_chain_that_continues_while_it_is_removed_goes_as_a_whole(self, world: World) -> None:
        other = await world.handle()
        for _ in range(20):
            claimed = await begun(world)
            then = world.job(NEXT_TASK)

            settled, removed = await asyncio.gather(
                world.settle(claimed, Continued(then)), other.delete_chains([claimed.job_id])
            )

            assert removed.answer is Answer.DONE
            assert await world.states([claimed.job_id, then.id]) == [None, None], f"a step was left behind ({settled})"
            assert settled in {Settled.APPLIED, Settled.STALE}
            assert (then.id in removed.jobs) is (settled is Settled.APPLIED)
        await world.check_counts()

    async def test_waiter_created_while_its_chain_is_removed_is_refused_or_keeps_it(self, world: World) -> None:
        other = await world.handle()
        for _ in range(20):
            chain, step = await second_step(world)
            waiter = world.job(BLOCKER_TASK, after=(chain,))

            removed, enqueued = await asyncio.gather(
                world.store.delete_chains([chain]), world.enqueue(waiter, store=other), return_exceptions=True
            )

            assert isinstance(removed, ChainsDeleted), removed
            if isinstance(enqueued, BadJob):
                assert removed.answer is Answer.DONE
                assert await world.states([chain, step, waiter.id]) == [None] * 3
            else:
                assert removed == ChainsDeleted(answer=Answer.NEEDED, chain=chain, needed_by=waiter.id)
                assert await world.states([step, waiter.id]) == [State.READY, State.BLOCKED]
                check_gone(
                    await world.store.delete_chains([waiter.id], cascade=True), {waiter.id, chain}, {waiter.id, chain, step}
                )
