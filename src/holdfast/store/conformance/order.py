"""In which order jobs are claimed, and which a claim leaves where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

from holdfast.core.limits import LimitKey
from holdfast.core.outcome import Failed, Released, Rescheduled
from holdfast.core.retry import Retry
from holdfast.core.states import State
from holdfast.errors import UnknownWorker
from holdfast.store.conformance.world import BOOM, HOUR, LATER, OTHER_TASK, TASK, Subject, World, ids, places, write_of
from holdfast.store.port import ClaimRequest, Settlement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from holdfast.core.lease import Claimed

BOTH = (TASK, OTHER_TASK)

# --- ways a job that has failed comes to be ready -----------------------------------------------------------------------


async def failed(world: World, claimed: Claimed) -> None:
    await world.fail(claimed)


async def failed_into_a_rest(world: World, claimed: Claimed) -> None:
    await world.store.settle([Settlement(claimed.lease, write_of(Failed(BOOM), LATER))])


async def reaped(world: World, claimed: Claimed) -> None:
    await world.reaped(claimed)


async def failed_and_released(world: World, claimed: Claimed) -> None:
    await world.fail(claimed)
    await world.settle(await world.claim_only(claimed.job_id), Released())


async def failed_and_aborted(world: World, claimed: Claimed) -> None:
    await world.fail(claimed)
    await world.settle(await world.claim_only(claimed.job_id), Released("shutdown", aborted=True))


async def failed_and_rescheduled(world: World, claimed: Claimed) -> None:
    await world.fail(claimed)
    await world.settle(await world.claim_only(claimed.job_id), Rescheduled())


async def failed_and_rescheduled_later(world: World, claimed: Claimed) -> None:
    await world.fail(claimed)
    await world.settle(await world.claim_only(claimed.job_id), Rescheduled(after=60.0))


async def failed_and_expired_free(world: World, claimed: Claimed) -> None:
    await world.fail(claimed)
    second = await world.claim_only(claimed.job_id)
    await world.store.flag_free([second.lease])
    await world.reaped(second)


WAYS_BACK: Final = [
    failed,
    failed_into_a_rest,
    reaped,
    failed_and_released,
    failed_and_aborted,
    failed_and_rescheduled,
    failed_and_rescheduled_later,
    failed_and_expired_free,
]


class Order(Subject):
    """Priorities, first in first out, fifo queues, aging, releases, retries, filters."""

    async def test_lane_is_first_in_first_out(self, world: World) -> None:
        jobs = world.jobs(12)
        await world.enqueue(*jobs[:5])
        for job in jobs[5:]:
            await world.enqueue(job)

        claims = [*await world.claim(3), *await world.claim(9)]

        assert places(ids(jobs), claims) == list(range(1, 13))

    async def test_jobs_of_one_call_keep_their_order_whatever_their_ids(self, world: World) -> None:
        jobs = world.jobs(10)[::-1]
        await world.enqueue(*jobs)

        claims = await world.claim(10)

        assert places(ids(jobs), claims) == list(range(1, 11)), "the order of the call counts, not that of the ids"

    async def test_higher_priorities_come_first(self, world: World) -> None:
        jobs = [world.job(priority=priority) for priority in (5, 0, 9, 3, 9, 5)]
        await world.enqueue(*jobs)

        one_by_one = [claim for _ in range(3) for claim in await world.claim(1)]
        rest = await world.claim(10)

        assert [claim.priority for claim in (*one_by_one, *rest)] == [9, 9, 5, 5, 3, 0]
        assert places(ids(jobs), (*one_by_one, *rest)) == [3, 5, 1, 6, 4, 2]

    async def test_every_tenth_claim_takes_what_waited_longest(self, world: World) -> None:
        low = await world.create(priority=0)
        await world.store.rewind(HOUR)
        await world.enqueue(*world.jobs(30, priority=9))

        turns = [ids(await world.claim(1))[0] for _ in range(20)]

        assert turns.index(low) == 9, f"the low job should be taken by the 10th claim, was by number {turns.index(low) + 1}"

    async def test_low_priority_is_not_starved_by_a_steady_stream(self, world: World) -> None:
        await world.enqueue(*world.jobs(3, priority=0))
        await world.store.rewind(HOUR)
        low = 0
        for _ in range(30):
            await world.enqueue(world.job(priority=9))
            low += sum(claim.priority == 0 for claim in await world.claim(1))

        assert low == 3, f"30 claims should have taken the three low jobs, one in ten; they took {low}"

    async def test_retried_job_goes_to_the_back(self, world: World) -> None:
        jobs = world.jobs(3)
        await world.enqueue(*jobs)
        first = (await world.claim(1))[0]
        await world.settle(first, Failed(BOOM))

        assert places(ids(jobs), await world.claim(3)) == [2, 3, 1]

    async def test_rescheduled_job_goes_to_the_back(self, world: World) -> None:
        jobs = world.jobs(3)
        await world.enqueue(*jobs)
        first = (await world.claim(1))[0]
        await world.settle(first, Rescheduled())

        assert places(ids(jobs), await world.claim(3)) == [2, 3, 1]

    async def test_reaped_job_goes_to_the_back(self, world: World) -> None:
        jobs = world.jobs(3)
        await world.enqueue(*jobs)
        await world.reaped((await world.claim(1))[0])

        assert places(ids(jobs), await world.claim(3)) == [2, 3, 1]

    async def test_reopened_job_goes_to_the_back(self, world: World) -> None:
        jobs = world.jobs(3)
        await world.enqueue(*jobs)
        await world.succeed((await world.claim(1))[0])
        await world.store.reopen([jobs[0].id])

        assert places(ids(jobs), await world.claim(3)) == [2, 3, 1]

    @pytest.mark.parametrize("one_by_one", [True, False])
    @pytest.mark.parametrize("backwards", [True, False])
    async def test_released_jobs_return_to_their_places(self, world: World, *, one_by_one: bool, backwards: bool) -> None:
        jobs = world.jobs(6)
        await world.enqueue(*jobs)
        claims = await world.claim(4)
        settlements = [world.settlement(claim, Released("not now")) for claim in (claims[::-1] if backwards else claims)]
        for batch in [[one] for one in settlements] if one_by_one else [settlements]:
            await world.store.settle(batch)

        assert places(ids(jobs), await world.claim(6)) == [1, 2, 3, 4, 5, 6]

    async def test_released_job_goes_before_all_that_came_later(self, world: World) -> None:
        jobs = world.jobs(5)
        await world.enqueue(*jobs)
        claims = await world.claim(3)
        await world.settle(claims[1], Released())

        later = [*await world.claim(1), *await world.claim(1)]

        assert places(ids(jobs), later) == [2, 4]

    async def test_job_released_twice_keeps_its_place(self, world: World) -> None:
        jobs = world.jobs(4)
        await world.enqueue(*jobs)
        for _ in range(2):
            claims = await world.claim(2)
            assert places(ids(jobs), claims) == [1, 2]
            await world.settle(claims[1], Released())
            await world.settle(claims[0], Released())

        assert places(ids(jobs), await world.claim(4)) == [1, 2, 3, 4]

    async def test_free_expiry_returns_a_job_to_its_place(self, world: World) -> None:
        jobs = world.jobs(3)
        await world.enqueue(*jobs)
        claimed = (await world.claim(1))[0]
        await world.store.flag_free([claimed.lease])
        await world.reaped(claimed)

        assert places(ids(jobs), await world.claim(3)) == [1, 2, 3]

    async def test_release_of_a_high_priority_comes_before_lower_ones(self, world: World) -> None:
        jobs = [world.job(priority=9), world.job(priority=1), world.job(priority=9)]
        await world.enqueue(*jobs)
        await world.settle((await world.claim(1))[0], Released())

        assert places(ids(jobs), await world.claim(3)) == [1, 3, 2]

    async def test_release_of_a_low_priority_does_not_jump_ahead(self, world: World) -> None:
        low, high = world.job(priority=1), world.job(priority=9)
        await world.enqueue(low)
        await world.settle((await world.claim(1))[0], Released())
        await world.enqueue(high)

        assert places([high.id, low.id], await world.claim(2)) == [1, 2]

    async def test_promotion_is_in_the_order_of_run_at(self, world: World) -> None:
        jobs = [world.job(delay=delay) for delay in (300.0, 100.0, 200.0, 50.0)]
        await world.enqueue(*jobs)
        await world.store.rewind(HOUR)
        await world.store.promote(10)

        assert places(ids(jobs), await world.claim(4)) == [4, 2, 3, 1]

    async def test_promoted_jobs_queue_up_behind_the_ready(self, world: World) -> None:
        jobs = [world.job(delay=100.0), world.job()]
        await world.enqueue(*jobs)
        await world.store.rewind(HOUR)
        await world.store.promote(10)

        assert places(ids(jobs), await world.claim(2)) == [2, 1]

    # what a claim leaves alone

    async def test_unknown_tasks_stay_where_they_are(self, world: World) -> None:
        foreign = [await world.create(task=f"foreign.{number}") for number in range(3)]
        mine = await world.create()

        assert ids(await world.claim(10)) == [mine]
        assert await world.states(foreign) == [State.READY] * 3
        assert await world.claim(10, tasks=()) == [], "a worker without tasks claims nothing"

    async def test_only_the_given_queues_are_claimed_from(self, world: World) -> None:
        jobs = {queue: await world.create(queue=queue) for queue in ("a", "b", "c")}

        none = await world.claim(10, queues=())
        two = await world.claim(10, queues=("a", "c", "unknown"))
        rest = await world.claim(10, queues=None)

        assert none == []
        assert {claim.queue for claim in two} == {"a", "c"}
        assert ids(rest) == [jobs["b"]]

    async def test_limit_is_respected(self, world: World) -> None:
        await world.enqueue(*world.jobs(5), *world.jobs(5, task=OTHER_TASK), *world.jobs(5, queue="other"))

        sizes = [len(await world.claim(limit, tasks=BOTH)) for limit in (0, -1, 4, 7, 100, 1)]

        assert sizes == [0, 0, 4, 7, 4, 0]

    async def test_requirements_must_be_met_by_capabilities(self, world: World) -> None:
        plain = await world.create()
        gpu = await world.create(requires=("gpu",))
        both = await world.create(requires=("gpu", "disk"))

        none = await world.claim(10)
        other = await world.claim(10, capabilities=("disk",))
        some = await world.claim(10, capabilities=("gpu", "net"))
        all_of_them = await world.claim(10, capabilities=("disk", "gpu"))

        assert [ids(claims) for claims in (none, other, some, all_of_them)] == [[plain], [], [gpu], [both]]

    async def test_requirements_are_a_set(self, world: World) -> None:
        jobs = [world.job(requires=("a", "b")), world.job(requires=("b", "a"))]
        await world.enqueue(*jobs)

        assert places(ids(jobs), await world.claim(10, capabilities=("a", "b"))) == [1, 2]

    async def test_unregistered_worker_may_not_claim(self, world: World) -> None:
        job_id = await world.create()
        request = ClaimRequest(worker=uuid4(), tasks=frozenset({TASK}), limit=1, look=True)

        with pytest.raises(UnknownWorker):
            await world.store.claim(request)

        assert await world.state(job_id) is State.READY

    # fifo queues

    async def test_fifo_queue_keeps_order_across_tasks(self, world: World) -> None:
        jobs = [world.job(task, queue="ledger", fifo=True) for task in (TASK, OTHER_TASK, OTHER_TASK, TASK, OTHER_TASK, TASK)]
        for job in jobs:
            await world.enqueue(job)

        claims = [*await world.claim(1, tasks=BOTH), *await world.claim(4, tasks=BOTH), *await world.claim(9, tasks=BOTH)]

        assert places(ids(jobs), claims) == [1, 2, 3, 4, 5, 6]

    async def test_nothing_passes_an_unknown_task_in_a_fifo_queue(self, world: World) -> None:
        jobs = [world.job(task, queue="ledger", fifo=True) for task in (TASK, OTHER_TASK, TASK)]
        await world.enqueue(*jobs)

        first = await world.claim(10)
        none = await world.claim(10)
        other = await world.claim(10, tasks=(OTHER_TASK,), worker="two")
        last = await world.claim(10)

        assert [places(ids(jobs), claims) for claims in (first, none, other, last)] == [[1], [], [2], [3]]

    async def test_fifo_lane_that_is_stopped_does_not_stop_others(self, world: World) -> None:
        stopped = world.job(OTHER_TASK, queue="ledger", fifo=True, priority=9)
        await world.enqueue(stopped, world.job(queue="ledger", fifo=True, priority=9))
        lower, elsewhere = world.job(queue="ledger", fifo=True, priority=4), world.job(priority=1)
        await world.enqueue(lower, elsewhere)

        assert ids(await world.claim(10)) == [lower.id, elsewhere.id]

    async def test_release_in_a_fifo_queue_returns_to_its_place(self, world: World) -> None:
        jobs = [world.job(task, queue="ledger", fifo=True) for task in (TASK, OTHER_TASK, TASK, OTHER_TASK)]
        await world.enqueue(*jobs)
        claims = await world.claim(3, tasks=BOTH)
        for claim in (claims[1], claims[0]):
            await world.settle(claim, Released())

        assert places(ids(jobs), await world.claim(10, tasks=BOTH)) == [1, 2, 4]

    async def test_released_unknown_task_stops_a_fifo_queue(self, world: World) -> None:
        jobs = [world.job(task, queue="ledger", fifo=True) for task in (OTHER_TASK, TASK)]
        await world.enqueue(*jobs)
        claimed = (await world.claim(1, tasks=BOTH))[0]
        await world.settle(claimed, Released())

        assert await world.claim(10) == [], "a released job stands in front again: nothing may pass it"
        assert places(ids(jobs), await world.claim(10, tasks=BOTH)) == [1, 2]

    async def test_fifo_queue_takes_higher_priorities_first(self, world: World) -> None:
        jobs = [world.job(queue="ledger", fifo=True, priority=priority) for priority in (1, 9, 1, 9)]
        await world.enqueue(*jobs)

        assert places(ids(jobs), await world.claim(10)) == [2, 4, 1, 3]

    # fairness among lanes

    async def test_lanes_of_one_priority_nearly_interleave(self, world: World) -> None:
        tasks = [f"conformance.lane{number}" for number in range(3)]
        jobs = [world.job(task) for _ in range(12) for task in tasks]
        for job in jobs:
            await world.enqueue(job)

        claims = [claim for _ in range(9) for claim in await world.claim(4, tasks=tasks)]

        order = places(ids(jobs), claims)
        unfairness = max(abs(place - position) for position, place in enumerate(order, start=1))
        assert sorted(order) == list(range(1, 37))
        assert unfairness <= 4 * len(tasks), f"a job was claimed {unfairness} places from its turn: {order}"

    async def test_single_claims_over_lanes_follow_the_oldest_head(self, world: World) -> None:
        jobs = [world.job(task) for _ in range(4) for task in BOTH]
        for job in jobs:
            await world.enqueue(job)

        claims = [claim for _ in range(8) for claim in await world.claim(1, tasks=BOTH)]

        assert places(ids(jobs), claims) == [1, 2, 3, 4, 5, 6, 7, 8]

    async def test_claim_fills_up_from_further_lanes(self, world: World) -> None:
        await world.enqueue(*(world.job(f"conformance.lane{number}") for number in range(20)))

        claims = await world.claim(20, tasks=[f"conformance.lane{number}" for number in range(20)])

        assert len(claims) == 20, f"20 lanes had one job each, one claim took {len(claims)}"

    async def test_queue_whose_turn_it_is_comes_first(self, world: World) -> None:
        jobs = [world.job(queue="a", priority=9), world.job(queue="b", priority=1), world.job(queue="b", priority=5)]
        await world.enqueue(*jobs)

        assert places(ids(jobs), await world.claim(3, first="b")) == [3, 2, 1]

    async def test_queue_whose_turn_it_is_leaves_no_claim_empty(self, world: World) -> None:
        job_id = await world.create(queue="a")

        assert ids(await world.claim(1, first="b")) == [job_id]
        assert await world.claim(1, first="b", queues=("b",)) == []

    # retries

    @pytest.mark.parametrize("limit", [None, LimitKey("tenants", "a")], ids=["", "key"])
    @pytest.mark.parametrize("way", WAYS_BACK, ids=lambda way: way.__name__)
    async def test_job_that_has_failed_waits_among_the_retries(
        self, world: World, way: Callable[[World, Claimed], Awaitable[None]], limit: LimitKey | None
    ) -> None:
        failed = await world.claimed(retry=Retry(max_attempts=9, initial=0.0, jitter=0.0), limit=limit)
        await way(world, failed)
        fresh = world.jobs(2, limit=limit)
        await world.enqueue(*fresh)
        await world.store.rewind(HOUR)
        await world.store.promote(10)

        claims = await world.claim(3, retries_first=True)

        assert places([failed.job_id, *ids(fresh)], claims) == [1, 2, 3]
        assert claims[0].failures > 0

    async def test_retries_wait_their_turn_unless_they_are_to_come_first(self, world: World) -> None:
        jobs = world.jobs(4)
        await world.enqueue(*jobs)
        await world.fail((await world.claim(1))[0])

        turns = [*await world.claim(1), *await world.claim(1, retries_first=True), *await world.claim(2)]

        assert places(ids(jobs), turns) == [2, 1, 3, 4]

    async def test_retries_come_first_whatever_their_priority(self, world: World) -> None:
        low, high = world.job(priority=1), world.job(priority=9)
        await world.enqueue(low)
        await world.fail((await world.claim(1))[0])
        await world.enqueue(high)

        assert places([low.id, high.id], await world.claim(2, retries_first=True)) == [1, 2]

    async def test_queue_whose_turn_it_is_goes_before_retries_of_others(self, world: World) -> None:
        elsewhere = await world.claimed(queue="a")
        await world.fail(elsewhere)
        mine = await world.claimed(queue="b", task=OTHER_TASK)
        await world.fail(mine)
        fresh = await world.create(queue="b")

        claims = await world.claim(3, tasks=BOTH, first="b", retries_first=True)

        assert places([mine.job_id, fresh, elsewhere.job_id], claims) == [1, 2, 3]

    async def test_retries_first_leaves_no_claim_empty(self, world: World) -> None:
        job_id = await world.create()

        assert ids(await world.claim(1, retries_first=True)) == [job_id]

    async def test_retries_are_not_starved_by_a_steady_stream(self, world: World) -> None:
        failed = await world.claimed()
        await world.enqueue(*world.jobs(3))
        await world.fail(failed)
        turns = []
        for _ in range(6):
            await world.enqueue(world.job())
            turns += ids(await world.claim(1))

        assert turns.index(failed.job_id) == 3, "a retry comes after what waited when it came, and before what came later"

    async def test_retries_do_not_starve_others(self, world: World) -> None:
        await world.enqueue(*world.jobs(5))
        for claim in await world.claim(5):
            await world.fail(claim)
        fresh = await world.create()
        turns: list[UUID] = []
        for _ in range(6):
            (claimed,) = await world.claim(1)
            turns.append(claimed.job_id)
            if claimed.job_id != fresh:
                await world.fail(claimed)

        assert turns.index(fresh) == 5, "who fails again and again goes behind what came in the meantime"

    async def test_retries_are_first_in_first_out(self, world: World) -> None:
        jobs = world.jobs(4)
        await world.enqueue(*jobs)
        claims = await world.claim(4)
        for index in (2, 0, 3, 1):
            await world.fail(claims[index])

        assert places(ids(jobs), await world.claim(4, retries_first=True)) == [3, 1, 4, 2]

    async def test_released_retries_return_to_their_places(self, world: World) -> None:
        jobs = world.jobs(3)
        await world.enqueue(*jobs)
        for claim in await world.claim(3):
            await world.fail(claim)
        claims = await world.claim(2)
        for claim in reversed(claims):
            await world.settle(claim, Released("shutdown", aborted=True))
        fresh = await world.create()

        assert places([*ids(jobs), fresh], await world.claim(4)) == [1, 2, 3, 4]

    async def test_reopened_job_is_no_retry(self, world: World) -> None:
        failed = await world.claimed()
        await world.fail(failed)
        await world.fail(await world.claim_only(failed.job_id), fatal=True)
        fresh = await world.create()
        await world.store.reopen([failed.job_id])

        assert places([fresh, failed.job_id], await world.claim(2, retries_first=True)) == [1, 2]

    async def test_retries_of_a_fifo_queue_keep_its_one_order(self, world: World) -> None:
        jobs = [world.job(task, queue="ledger", fifo=True) for task in (TASK, OTHER_TASK, TASK)]
        await world.enqueue(*jobs)
        await world.fail((await world.claim(1))[0])

        assert await world.claim(1, retries_first=True) == [], "nothing passes the head of a fifo queue, not even a retry"
        assert places(ids(jobs), await world.claim(3, tasks=BOTH, retries_first=True)) == [2, 3, 1]

    async def test_retries_stay_where_a_claim_may_not_take_them(self, world: World) -> None:
        job_id = await world.create(queue="q", requires=("gpu",))
        await world.fail(await world.claim_only(job_id, capabilities=("gpu",)))

        assert await world.claim(1, retries_first=True) == []
        assert await world.claim(1, capabilities=("gpu",), queues=("other",)) == []
        assert await world.claim(1, capabilities=("gpu",), tasks=(OTHER_TASK,)) == []
        await world.store.pause("q")
        assert await world.claim(1, capabilities=("gpu",)) == []
        await world.store.resume("q")
        assert ids(await world.claim(1, capabilities=("gpu",))) == [job_id]

    async def test_every_tenth_claim_takes_what_waited_longest_even_when_retries_come_first(self, world: World) -> None:
        oldest = await world.create(priority=0)
        await world.store.rewind(HOUR)
        await world.enqueue(*world.jobs(20, priority=9))
        for claim in await world.claim(20):
            if claim.job_id != oldest:
                await world.fail(claim)

        turns = [ids(await world.claim(1, retries_first=True))[0] for _ in range(9)]

        assert turns.index(oldest) == 8, "this is the tenth claim of the handle"

    # several claimers

    async def test_each_job_goes_to_one_claimer(self, world: World) -> None:
        other = await world.handle()
        jobs = world.jobs(10)
        await world.enqueue(*jobs)

        claims = [*await world.claim(6), *await world.claim(6, worker="two", store=other), *await world.claim(6)]

        assert places(ids(jobs), claims) == list(range(1, 11))

    async def test_claim_sees_what_other_handles_did(self, world: World) -> None:
        other = await world.handle()
        jobs = world.jobs(4)
        await world.enqueue(jobs[0], store=other)
        first = await world.claim(4)
        await world.settle(first[0], Released(), store=other)
        await world.enqueue(*jobs[1:], store=other)

        assert places(ids(jobs), await world.claim(4)) == [1, 2, 3, 4]

    async def test_attempt_grows_with_each_claim_and_failures_do_not(self, world: World) -> None:
        job_id = await world.create()
        for attempt in (1, 2, 3):
            claimed = await world.claim_only(job_id)
            assert (claimed.attempt, claimed.failures) == (attempt, 0)
            await world.settle(claimed, Released())

    async def test_claim_hands_over_the_whole_job(self, world: World) -> None:
        job = world.job(args='{"n": 1.0}', queue="media", priority=7, lease=33.0, trace="00-abc-def-01")
        await world.enqueue(job)

        claimed = await world.claim_only(job.id)

        view = await world.view(job.id)
        given = (claimed.queue, claimed.priority, claimed.args, claimed.policy, claimed.lease_seconds, claimed.trace)
        assert given == ("media", 7, '{"n": 1.0}', job.policy, 33.0, "00-abc-def-01")
        assert (claimed.expires_at - claimed.claimed_at).total_seconds() == pytest.approx(33.0, abs=0.01)
        shown = (view.claimed_at, view.expires_at, view.created_at)
        assert shown == (claimed.claimed_at, claimed.expires_at, claimed.created_at)
