"""Lists, counts and pruning."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from holdfast.core.outcome import Failed, Released, Rescheduled, Stopped, Succeeded
from holdfast.core.states import TERMINAL, State
from holdfast.store.conformance.world import BLOCKER_TASK, BOOM, HOUR, LATER, OTHER_TASK, TASK, Subject, World, counts, ids
from holdfast.store.port import Answer, JobFilter, Pruned, Retention

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome
    from holdfast.store.port import JobView


async def mixed(world: World) -> list[UUID]:
    """Enqueue jobs of several tasks, queues, tags and keys, at least one in each state; return their ids."""
    jobs = []
    for state in State:
        rows = [world.job(OTHER_TASK, queue=queue, tags=(queue, "all"), key=f"{state}:{queue}") for queue in ("a", "b")]
        await world.enqueue(*rows)
        jobs += [await in_state(world, state, task=f"{TASK}.{state}"), *ids(rows)]
    return jobs


async def in_state(world: World, state: State, **fields: str) -> UUID:
    """Return a job in a state; no other job of its task may be ready."""
    match state:
        case State.BLOCKED:
            return await world.waiter(await world.create(task=BLOCKER_TASK), **fields)
        case State.SCHEDULED:
            return await world.create(delay=9 * HOUR, **fields)
        case State.READY:
            return await world.create(**fields)
        case State.RUNNING:
            return (await world.claimed(lease=9 * HOUR, **fields)).job_id
        case State.SUCCEEDED | State.FAILED | State.CANCELED:
            return await world.ended(state, **fields)


class Lists(Subject):
    """Find, cursors, stats, prune."""

    async def test_list_is_newest_first_by_id(self, world: World) -> None:
        jobs = world.jobs(7)
        await world.enqueue(*Random(1).sample(jobs, 7))  # noqa: S311  a seed, so that a failure repeats

        page = await world.store.find(JobFilter(), limit=10)

        assert ids(page.jobs) == sorted(ids(jobs), reverse=True)
        assert page.after is None
        assert page.searched_all

    async def test_list_shows_what_get_shows(self, world: World) -> None:
        jobs = await mixed(world)

        listed = {view.id: view for view in await world.all_jobs()}

        for view in await world.store.get(jobs):
            assert view is not None
            assert listed[view.id] == view

    async def test_running_jobs_are_those_that_have_stalled_and_then_those_that_run_longest(self, world: World) -> None:
        oldest = await world.claimed(lease=9 * HOUR)
        await world.store.rewind(HOUR)
        stalled = [await world.claimed(queue=queue, lease=60.0) for queue in ("a", "b")]
        await world.store.rewind(HOUR)
        newest = await world.claimed(queue="a", lease=9 * HOUR)
        await world.ended(State.SUCCEEDED)

        shown = await world.store.running(limit=10)

        assert ids(shown.jobs) == [*(one.job_id for one in stalled), oldest.job_id, newest.job_id]
        assert shown.jobs == await world.store.get(ids(shown.jobs))
        assert shown.lapsed == 2
        few = await world.store.running(limit=1)
        assert (ids(few.jobs), few.lapsed) == ([stalled[0].job_id], 2)
        of_a = await world.store.running(limit=10, queues=frozenset({"a", "x"}))
        assert (ids(of_a.jobs), of_a.lapsed) == ([stalled[0].job_id, newest.job_id], 1)
        for limit, queues in ((0, None), (-1, None), (10, frozenset[str]())):
            assert ids((await world.store.running(limit=limit, queues=queues)).jobs) == []

    async def test_every_filter_and_combination(self, world: World) -> None:
        jobs = await mixed(world)
        await world.store.rewind(HOUR)
        new = world.job(OTHER_TASK, queue="a", tags=("a", "fresh"), key="new")
        await world.enqueue(new)
        views = await world.all_jobs()
        assert {*ids(views)} >= {*jobs, new.id}
        border = (await world.view(new.id)).created_at
        filters = [
            JobFilter(states=states, task=task, queue=queue, tag=tag, key=key, created_from=first, created_before=before)
            for states in (None, frozenset({State.READY}), TERMINAL, frozenset())
            for task in (None, OTHER_TASK)
            for queue, tag in ((None, None), ("a", None), (None, "all"), ("b", "all"), ("a", "fresh"), ("default", "all"))
            for key in (None, "new", "ready:b")
            for first, before in ((None, None), (border, None), (None, border), (border, border))
        ]
        for where in Random(2).sample(filters, 60):  # noqa: S311  as above
            expected = [view.id for view in views if self.shown(view, where)]
            assert ids(await world.all_jobs(where)) == expected, f"find({where}) differs from a search by hand"

    def shown(self, view: JobView, where: JobFilter) -> bool:
        """Say by hand whether a filter shows a job."""
        return (
            (where.states is None or view.state in where.states)
            and where.task in (None, view.task)
            and where.queue in (None, view.queue)
            and where.tag in (None, *view.tags)
            and where.key in (None, view.key)
            and (where.created_from is None or view.created_at >= where.created_from)
            and (where.created_before is None or view.created_at < where.created_before)
        )

    async def test_cursor_walks_everything_once_while_new_jobs_arrive(self, world: World) -> None:
        old = [job for _ in range(5) for job in world.jobs(5)]
        await world.enqueue(*old)
        seen: list[UUID] = []
        after: UUID | None = None
        for _ in range(100):
            page = await world.store.find(JobFilter(task=TASK), limit=4, after=after)
            seen += ids(page.jobs)
            after = page.after
            if after is None:
                break
            await world.enqueue(world.job(), world.job(OTHER_TASK))

        assert seen == sorted(ids(old), reverse=True), "each old job once, in order, and none of the new"

    async def test_page_of_exactly_the_limit_ends_the_list(self, world: World) -> None:
        jobs = world.jobs(6)
        await world.enqueue(*jobs)

        walked = [ids(await world.all_jobs(limit=limit)) for limit in (1, 2, 3, 6, 7)]

        assert walked == [sorted(ids(jobs), reverse=True)] * 5

    async def test_cursor_of_a_job_that_is_gone_still_works(self, world: World) -> None:
        jobs = sorted((await mixed(world))[:4], reverse=True)
        first = await world.store.find(JobFilter(), limit=1)
        assert first.after is not None
        await world.store.cancel([first.jobs[0].id])
        await world.store.delete([first.jobs[0].id])

        rest = await world.store.find(JobFilter(), limit=100, after=first.after)

        assert first.jobs[0].id not in ids(rest.jobs)
        assert {*jobs} - {first.jobs[0].id} <= {*ids(rest.jobs)}

    # counts

    async def test_counts_follow_every_state(self, world: World) -> None:
        await mixed(world)

        stats = await world.store.stats()

        await world.check_log()
        assert stats.live + stats.terminal == len(await world.all_jobs())
        assert stats.count(State.READY, queue="a", task=OTHER_TASK) == 7
        assert stats.count(State.READY, queue="nowhere") == 0

    async def test_empty_store_counts_nothing(self, world: World) -> None:
        stats = await world.store.stats()

        assert (counts(stats), stats.live, dict(stats.oldest_waiting)) == ({}, 0, {})
        assert await world.store.queues() == []
        assert (await world.store.find(JobFilter(), limit=5)).jobs in ([], ())

    async def test_oldest_wait_is_absent_when_nothing_is_ready(self, world: World) -> None:
        await world.create(queue="a", delay=HOUR)
        await world.claimed(queue="b")
        await world.create(queue="c")

        assert set((await world.store.stats()).oldest_waiting) == {"c"}

    @pytest.mark.parametrize("seed", range(4))
    async def test_counts_are_exact_after_random_operations(self, world: World, seed: int) -> None:
        chance = Random(seed)  # noqa: S311  as above
        for _ in range(40):
            await self.something(world, chance)

        await world.check_log(*ids(await world.all_jobs())[:10])

    async def something(self, world: World, chance: Random) -> None:
        """Do one random operation."""
        views = await world.all_jobs()
        some = [view.id for view in chance.sample(views, min(3, len(views)))]
        match chance.randrange(10):
            case 0 | 1 | 2:
                kinds = [(chance.choice((TASK, OTHER_TASK)), chance.choice("ab"), chance.choice((0.0, HOUR))) for _ in range(4)]
                await world.enqueue(*(world.job(task, queue=queue, delay=delay) for task, queue, delay in kinds))
            case 3 | 4:
                for claim in await world.claim(5, tasks=(TASK, OTHER_TASK)):
                    await self.settle_somehow(world, claim, chance)
            case 5:
                await world.store.rewind(2 * HOUR)
                await world.store.promote(2)
                await world.store.reap(2)
            case 6:
                await world.store.cancel(some)
            case 7:
                await world.store.reopen(some)
            case 8:
                await world.store.delete(some[:1])
                await world.store.complete(dict.fromkeys(some[1:2], "1"))
                await world.store.fail(dict.fromkeys(some[2:], BOOM))
            case _:
                if some:
                    await world.waiter(some[0])

    async def settle_somehow(self, world: World, claim: Claimed, chance: Random) -> None:
        outcomes = (Succeeded(), Failed(BOOM), Rescheduled(after=60), Stopped(), Released(), None)
        if (outcome := chance.choice(outcomes)) is not None:
            await world.settle(claim, outcome)

    # pruning

    async def test_prune_goes_by_the_retention_of_each_state(self, world: World) -> None:
        old = {state: await world.ended(state) for state in sorted(TERMINAL)}
        live = await world.create(retry=LATER)
        await world.store.rewind(2 * HOUR)
        young = await world.ended(State.SUCCEEDED, task=OTHER_TASK)

        pruned = await world.store.prune(Retention(succeeded=HOUR, failed=3 * HOUR), limit=100)

        assert pruned == Pruned(1, None)
        assert await world.state(old[State.SUCCEEDED]) is None
        assert await world.states([old[State.FAILED], old[State.CANCELED], live, young]) == [
            State.FAILED,
            State.CANCELED,
            State.READY,
            State.SUCCEEDED,
        ]
        await world.check_log(live, young)

    async def test_age_counts_from_the_end_of_the_job(self, world: World) -> None:
        claimed = await world.claimed(lease=9 * HOUR)
        await world.store.rewind(2 * HOUR)
        await world.succeed(claimed)

        assert (await world.store.prune(Retention(succeeded=HOUR), limit=10)).count == 0

        await world.store.rewind(2 * HOUR)
        assert (await world.store.prune(Retention(succeeded=HOUR), limit=10)).count == 1

    async def test_prune_removes_everything_of_a_job(self, world: World) -> None:
        job_id = await world.create(key="k")
        first = await world.claim_only(job_id)
        await world.part(first, "part")
        await world.fail(first)
        await world.succeed(await world.claim_only(job_id))
        await world.store.rewind(HOUR)

        await world.store.prune(Retention(succeeded=60), limit=10)

        assert await world.state(job_id) is None
        assert await world.store.events(job_id) == []
        assert await world.store.attempts(job_id) == []
        assert await world.store.parts(job_id) == []
        assert await world.all_jobs() == []
        assert counts(await world.store.stats()) == {}
        assert await world.store.reopen([job_id]) == [Answer.NOT_FOUND]
        assert (await world.enqueue(world.job(key="k")))[0].status == "created"

    async def test_prune_walks_the_archive_in_bounded_steps(self, world: World) -> None:
        jobs = world.jobs(10)
        await world.enqueue(*jobs)
        claims = await world.claim(10)
        outcomes: list[Outcome] = [Succeeded(), Stopped()] * 5
        await world.store.settle([world.settlement(*pair) for pair in zip(claims, outcomes, strict=True)])
        await world.store.rewind(HOUR)

        steps, after, looks = [], None, 0
        while looks < 20:
            looks += 1
            pruned = await world.store.prune(Retention(succeeded=60), limit=4, after=after)
            steps.append(pruned.count)
            after = pruned.after
            if after is None:
                break

        assert after is None, "the walk never came to its end"
        assert sum(steps) == 5
        assert max(steps) <= 4
        assert len(steps) >= 3, f"10 archived jobs at 4 a step take three steps, it took {len(steps)}"
        states = await world.states(ids(jobs))
        assert states == [None, State.CANCELED] * 5

    async def test_prune_looks_at_no_more_than_its_limit(self, world: World) -> None:
        await world.enqueue(*world.jobs(10))
        await world.store.settle([world.settlement(claim, Succeeded()) for claim in await world.claim(10)])
        await world.store.rewind(HOUR)

        first = await world.store.prune(Retention(succeeded=60), limit=4)
        second = await world.store.prune(Retention(succeeded=60), limit=4, after=first.after)
        third = await world.store.prune(Retention(succeeded=60), limit=4, after=second.after)

        assert [first.count, second.count, third.count] == [4, 4, 2]
        assert third.after is None
        await world.check_counts()

    async def test_prune_without_retention_keeps_everything(self, world: World) -> None:
        job_id = await world.ended(State.FAILED)
        await world.store.rewind(1_000 * HOUR)

        pruned = await world.store.prune(Retention(), limit=10)

        assert pruned.count == 0
        assert await world.state(job_id) is State.FAILED

    async def test_pruned_blocker_counts_as_unknown(self, world: World) -> None:
        blocker = await world.ended(State.SUCCEEDED)
        await world.store.rewind(HOUR)
        await world.store.prune(Retention(succeeded=60), limit=10)

        with pytest.raises(ValueError, match=str(blocker)):
            await world.waiter(blocker)

    # storage

    async def test_what_the_store_takes_and_has_left_are_bytes_or_unknown(self, world: World) -> None:
        before = await world.store.storage()
        await world.enqueue(*world.jobs(100))
        after = await world.store.storage()

        for storage in (before, after):
            assert all(size is None or size > 0 for size in (storage.bytes_used, storage.bytes_free))
        assert (before.bytes_used is None) == (after.bytes_used is None)
