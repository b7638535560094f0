"""Limits: never more than they admit, whoever claims; room again with the end of a lease; keys take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.core.fairness import AGING_TURN
from holdfast.core.limits import AGAIN, LimitKey, LimitKind, LimitName, LimitRule, make_rule
from holdfast.core.outcome import Failed, Released, Rescheduled, Succeeded
from holdfast.core.retry import Retry
from holdfast.core.rotation import OFFERED
from holdfast.core.states import State
from holdfast.errors import BadJob
from holdfast.store.conformance.world import BOOM, HOUR, LATER, OTHER_TASK, TASK, Subject, World, ids
from holdfast.store.port import MOST_LIMITS, Action, ClaimRequest, Retention

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from holdfast.core.lease import Claimed, Taken
    from holdfast.core.outcome import Outcome
    from holdfast.store.port import LimitView, Store

SCOPE: Final = "tenants"
OVER_QUEUE: Final = LimitName(LimitKind.QUEUE, "default")
OVER_TASK: Final = LimitName(LimitKind.TASK, TASK)
OVER_KEYS: Final = LimitName(LimitKind.KEY, SCOPE)
TWO: Final = LimitRule(most=2)


def with_key(name: str, weight: float = 1.0) -> dict[str, Any]:
    """Return what makes a job one of this key."""
    return {"limit": LimitKey(SCOPE, name, weight), "tags": (name,)}


async def keys_of(world: World, claims: list[Claimed]) -> list[str]:
    """Return the keys of claimed jobs, in their order."""
    views = await world.store.get(ids(claims))
    return [view.tags[0] for view in views if view is not None]


async def enqueue_keys(world: World, keys: str, jobs: int, **fields: Any) -> None:
    """Enqueue so many jobs of each key, one key after the other."""
    await world.enqueue(*(world.job(**with_key(key), **fields) for key in keys for _ in range(jobs)))


async def take(world: World, limit: int, **options: Any) -> Taken:
    """Claim, and return the answer as it came."""
    request = ClaimRequest(worker=await world.worker(), tasks=frozenset({TASK}), limit=limit, look=True, **options)
    return await world.store.claim(request)


async def the_limit(world: World, name: LimitName) -> LimitView:
    """Return a limit that must be there."""
    found = [view for view in await world.store.limits() if view.name == name]
    assert found, f"limits() does not show {name}"
    return found[0]


# --- ways in which a lease ends ---------------------------------------------------------------------------------------------


def by_settling(outcome: Outcome) -> Callable[[World, Claimed], Awaitable[None]]:
    async def end(world: World, claimed: Claimed) -> None:
        await world.settle(claimed, outcome)

    return end


async def by_reaping(world: World, claimed: Claimed) -> None:
    await world.store.rewind(HOUR)
    assert claimed.job_id in [one.job_id for one in await world.store.reap(100)]


async def by_completion(world: World, claimed: Claimed) -> None:
    await world.store.complete({claimed.job_id: "1"})


async def by_failure_outside(world: World, claimed: Claimed) -> None:
    await world.store.fail({claimed.job_id: BOOM})


async def by_deletion(world: World, claimed: Claimed) -> None:
    await world.store.delete([claimed.job_id])


async def by_revoking(world: World, claimed: Claimed) -> None:
    assert await world.store.revoke(await world.worker("other")) == [claimed.job_id]


async def by_continuing(world: World, claimed: Claimed) -> None:
    await world.proceed(claimed)


ENDS: Final[dict[str, Callable[[World, Claimed], Awaitable[None]]]] = {
    "succeeded": by_settling(Succeeded()),
    "failed": by_settling(Failed(BOOM, fatal=True)),
    "retried": by_settling(Failed(BOOM)),
    "released": by_settling(Released("")),
    "rescheduled": by_settling(Rescheduled(after=HOUR)),
    "reaped": by_reaping,
    "completed outside": by_completion,
    "failed outside": by_failure_outside,
    "deleted": by_deletion,
    "revoked": by_revoking,
    "continued": by_continuing,
}

OVER: Final = {"queue": OVER_QUEUE, "task": OVER_TASK, "key": OVER_KEYS}


class Limits(Subject):
    """Limits, and the turns of keys."""

    @pytest.mark.parametrize("over", OVER.values(), ids=OVER)
    async def test_no_more_run_than_a_limit_admits(self, world: World, over: LimitName) -> None:
        await world.store.declare({over: TWO})
        await enqueue_keys(world, "a", 5)
        first = await world.claim(4)
        assert len(first) == 2
        assert all(claimed.limited for claimed in first)
        assert await world.claim(4) == []
        await world.succeed(first[0])
        assert len(await world.claim(4)) == 1
        assert await world.claim(4) == []

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
    async def test_there_is_room_again_when_a_lease_ends_however_that_happens(
        self, world: World, end: Callable[[World, Claimed], Awaitable[None]]
    ) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=1)})
        held = await world.create(**with_key("a"))
        waiting = await world.create(**with_key("a"))
        (claimed,) = await world.claim(5, worker="other")
        assert claimed.job_id == held
        assert await world.claim(5) == []
        await end(world, claimed)
        (then,) = await world.claim(5)
        assert then.job_id in (held, waiting)
        assert await world.claim(5) == []

    async def test_a_limit_of_a_task_counts_all_its_jobs_wherever_they_wait(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(most=3)})
        await world.enqueue(
            world.job(queue="one"),
            world.job(queue="two", priority=8),
            world.job(requires=("gpu",)),
            world.job(**with_key("a")),
            world.job(OTHER_TASK),
        )
        options: dict[str, Any] = {"tasks": (TASK, OTHER_TASK), "capabilities": ("gpu",)}
        claims = await world.claim(10, **options)
        assert Counter(claimed.task for claimed in claims) == {TASK: 3, OTHER_TASK: 1}
        assert await world.claim(10, **options) == []

    async def test_a_limit_of_a_queue_counts_all_its_tasks_and_no_other_queue(self, world: World) -> None:
        await world.store.declare({OVER_QUEUE: TWO})
        await world.enqueue(world.job(), world.job(OTHER_TASK), world.job(), world.job(queue="free"), world.job(queue="free"))
        claims = await world.claim(10, tasks=(TASK, OTHER_TASK))
        assert Counter(claimed.queue for claimed in claims) == {"default": 2, "free": 2}

    async def test_each_key_has_a_limit_of_its_own(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: TWO})
        await enqueue_keys(world, "abc", 4)
        assert Counter(await keys_of(world, await world.claim(100))) == {"a": 2, "b": 2, "c": 2}
        assert await world.claim(100) == []

    async def test_a_key_is_shared_by_all_tasks_of_its_scope(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: TWO})
        await world.enqueue(*(world.job(task, **with_key("a")) for task in (TASK, OTHER_TASK) for _ in range(2)))
        assert len(await world.claim(10, tasks=(TASK, OTHER_TASK))) == 2
        assert await world.claim(10, tasks=(TASK, OTHER_TASK)) == []

    async def test_of_several_limits_each_holds(self, world: World) -> None:
        rules = {OVER_QUEUE: LimitRule(most=4), OVER_TASK: LimitRule(most=3), OVER_KEYS: TWO}
        await world.store.declare(rules)
        await enqueue_keys(world, "ab", 5)
        await world.enqueue(*(world.job(OTHER_TASK) for _ in range(5)))
        claims = await world.claim(10, tasks=(TASK, OTHER_TASK))
        assert len(claims) == 4
        assert Counter(claimed.task for claimed in claims)[TASK] <= 3
        assert max(Counter(await keys_of(world, [one for one in claims if one.task == TASK])).values()) <= 2

    async def test_jobs_behind_a_full_limit_are_passed_by_others(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=1)})
        await enqueue_keys(world, "a", 3)
        others = world.jobs(2)
        await world.enqueue(*others)
        claims = await world.claim(10)
        assert set(ids(others)) < set(ids(claims))
        assert len(claims) == 3

    async def test_claimers_at_once_get_no_more_than_the_limit_together(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=3), OVER_QUEUE: LimitRule(most=10)})
        await enqueue_keys(world, "abcdef", 5)
        handles = [world.store, *[await world.handle() for _ in range(5)]]
        await asyncio.gather(*(world.worker(f"w{index}") for index in range(len(handles))))
        held: Counter[str] = Counter()
        for _ in range(6):
            claims = await asyncio.gather(
                *(world.claim(4, worker=f"w{index}", store=store) for index, store in enumerate(handles))
            )
            got = [claimed for some in claims for claimed in some]
            held.update(await keys_of(world, got))
            assert held.total() <= 10
            assert max(held.values(), default=0) <= 3
            if got:
                await world.succeed(got[0])
                held.subtract(await keys_of(world, got[:1]))
        assert held.total() == 9  # the last thing that happened is that one ended

    async def test_what_people_set_stands_above_what_is_declared(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(most=1)})
        await world.enqueue(*world.jobs(5))
        await world.store.set_limit(OVER_TASK, LimitRule(most=3), by="ann")
        assert len(await world.claim(10)) == 3
        await world.store.declare({OVER_TASK: LimitRule(most=5)})
        assert await world.claim(10) == []
        view = await the_limit(world, OVER_TASK)
        assert (view.declared, view.override, view.override_by, view.running) == (
            LimitRule(most=5),
            LimitRule(most=3),
            "ann",
            3,
        )
        await world.store.set_limit(OVER_TASK, None, by="ann")
        assert len(await world.claim(10)) == 2
        assert (await the_limit(world, OVER_TASK)).override is None

    async def test_a_rule_that_says_nothing_takes_back_what_was_declared(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(most=1), OVER_QUEUE: LimitRule(most=5)})
        await world.store.declare({OVER_TASK: LimitRule()})
        await world.enqueue(*world.jobs(4))
        assert len(await world.claim(10)) == 4
        assert [view.name for view in await world.store.limits() if view.rule is not None] == [OVER_QUEUE]

    @pytest.mark.parametrize("over", [OVER_QUEUE, OVER_TASK], ids=["queue", "task"])
    async def test_what_runs_when_a_limit_is_set_counts(self, world: World, over: LimitName) -> None:
        await world.enqueue(*world.jobs(5))
        running = await world.claim(2)
        await world.store.set_limit(over, LimitRule(most=3), by="ann")
        assert (await the_limit(world, over)).running == 2
        assert len(await world.claim(10)) == 1
        for claimed in running:
            await world.succeed(claimed)
        assert len(await world.claim(10)) == 2

    async def test_a_lowered_limit_disturbs_nothing_that_runs(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=3)})
        await enqueue_keys(world, "a", 5)
        running = await world.claim(10)
        await world.store.set_limit(OVER_KEYS, LimitRule(most=1), by="ann")
        for claimed in running[:2]:
            await world.succeed(claimed)
            assert await world.claim(10) == []
        await world.succeed(running[2])
        assert len(await world.claim(10)) == 1

    async def test_a_limit_of_none_at_all_stops_claims(self, world: World) -> None:
        await world.enqueue(*world.jobs(2))
        await world.store.set_limit(OVER_TASK, LimitRule(most=0), by="ann")
        assert await world.claim(10) == []
        await world.store.set_limit(OVER_TASK, None, by="ann")
        assert len(await world.claim(10)) == 2

    async def test_one_key_can_have_another_limit_than_the_others(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=1)})
        await world.store.set_limit(LimitName(LimitKind.KEY, SCOPE, "b"), LimitRule(most=3), by="ann")
        await enqueue_keys(world, "ab", 5)
        assert Counter(await keys_of(world, await world.claim(100))) == {"a": 1, "b": 3}

    async def test_a_weight_set_for_a_key_leaves_it_under_the_limit_of_its_scope(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=1)})
        await world.store.set_limit(LimitName(LimitKind.KEY, SCOPE, "a"), LimitRule(weight=5.0), by="ann")
        await enqueue_keys(world, "a", 3)
        assert len(await world.claim(10)) == 1

    # rates

    async def test_a_rate_lets_start_what_its_bucket_holds_and_what_flows_in(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(rate=0.1, burst=3)})
        await world.enqueue(*world.jobs(10))
        assert len(await world.claim(10)) == 3
        again = await take(world, 10)
        assert again == []
        assert again.again is not None
        assert 5 < again.again <= 10
        await world.store.rewind(20)
        assert len(await world.claim(10)) == 2
        await world.store.rewind(HOUR)
        assert len(await world.claim(10)) == 3, "no more than the bucket holds flows in, however long nothing was taken"

    @pytest.mark.parametrize(("name", "most"), [(OVER_TASK, 3), (OVER_QUEUE, 3), (OVER_KEYS, 9)], ids=str)
    async def test_claimers_at_once_get_no_more_than_the_buckets_hold(self, world: World, name: LimitName, most: int) -> None:
        await world.store.declare({name: LimitRule(rate=0.001, burst=3)})
        await enqueue_keys(world, "abc", 10)
        handles = [world.store, *[await world.handle() for _ in range(5)]]
        await asyncio.gather(*(world.worker(f"w{index}") for index in range(len(handles))))
        taken: list[Claimed] = []
        for _ in range(6):
            claims = await asyncio.gather(
                *(world.claim(2, worker=f"w{index}", store=store) for index, store in enumerate(handles))
            )
            taken += [claimed for some in claims for claimed in some]
        assert len(taken) == most
        assert name != OVER_KEYS or set(Counter(await keys_of(world, taken)).values()) == {3}

    async def test_a_rate_counts_starts_and_not_what_runs(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(rate=0.001, burst=2)})
        await enqueue_keys(world, "ab", 3)
        claims = await world.claim(10)
        assert Counter(await keys_of(world, claims)) == {"a": 2, "b": 2}
        for claimed in claims:
            await world.succeed(claimed)
        assert await world.claim(10) == []

    async def test_a_job_takes_its_cost_out_of_the_bucket(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(rate=0.1, burst=10)})
        policy = world.job().policy
        jobs = [world.job(policy=type(policy)(retry=policy.retry, cost=cost)) for cost in (4.0, 4.0, 4.0, 1.0)]
        await world.enqueue(*jobs)
        assert ids(await world.claim(10)) == ids(jobs[:2])
        assert await world.claim(10) == [], "nothing passes a job of its own lane that waits for tokens"
        await world.store.rewind(21)
        assert ids(await world.claim(10)) == ids(jobs[2:3])

    async def test_a_bucket_in_debt_says_when_it_is_worth_asking_again(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(rate=0.5, burst=1)})
        policy = world.job().policy
        dear = type(policy)(retry=policy.retry, cost=5.0)
        await world.enqueue(*(world.job(policy=dear) for _ in range(3)))
        assert len(await world.claim(1)) == 1
        for _ in range(2):
            again = (await take(world, 1)).again
            assert again is not None
            assert 8 < again <= 10, "four tokens of debt and the one that is needed, at half a token a second"

    async def test_a_job_dearer_than_the_bucket_starts_when_that_is_full(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(rate=0.1, burst=2)})
        policy = world.job().policy
        dear = world.job(policy=type(policy)(retry=policy.retry, cost=5.0))
        await world.enqueue(world.job(), dear, world.job())
        assert len(await world.claim(10)) == 1
        await world.store.rewind(10.5)
        assert ids(await world.claim(10)) == [dear.id]
        await world.store.rewind(35)
        assert await world.claim(10) == [], "what it took too much is paid back first"
        await world.store.rewind(10)
        assert len(await world.claim(10)) == 1

    async def test_a_claim_says_when_to_ask_again(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=1)})
        await enqueue_keys(world, "a", 2)
        assert (await take(world, 1)).again in (None, AGAIN)
        assert (await take(world, 1)).again == AGAIN
        await world.store.declare({OVER_KEYS: LimitRule()})
        assert (await take(world, 1)).again is None

    # turns

    async def test_keys_take_turns_however_many_jobs_one_of_them_has(self, world: World) -> None:
        await enqueue_keys(world, "a", 30)
        await enqueue_keys(world, "b", 5)
        assert Counter(await keys_of(world, await world.claim(8))) == {"a": 4, "b": 4}
        single = [key for _ in range(2) for key in await keys_of(world, await world.claim(1))]
        assert "b" in single
        assert Counter(await keys_of(world, await world.claim(10))) == {"a": 10}, "what nobody else wants is anybody's"

    async def test_what_one_key_leaves_goes_to_the_others_in_the_same_claim(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=20)})
        await enqueue_keys(world, "a", 30)
        await enqueue_keys(world, "b", 1)
        claims = await world.claim(8)
        assert Counter(await keys_of(world, claims)) == {"a": 7, "b": 1}
        assert len(set(ids(claims))) == 8

    async def test_keys_have_turns_by_weight(self, world: World) -> None:
        await world.enqueue(*(world.job(**with_key("a", 3.0)) for _ in range(40)))
        await world.enqueue(*(world.job(**with_key("b")) for _ in range(40)))
        assert Counter(await keys_of(world, await world.claim(8))) == {"a": 6, "b": 2}
        single = [key for _ in range(20) for key in await keys_of(world, await world.claim(1))]
        assert 12 <= Counter(single)["a"] <= 17

    async def test_people_set_the_weight_of_a_key(self, world: World) -> None:
        await world.store.set_limit(LimitName(LimitKind.KEY, SCOPE, "b"), LimitRule(weight=3.0), by="ann")
        await enqueue_keys(world, "ab", 20)
        assert Counter(await keys_of(world, await world.claim(8))) == {"a": 2, "b": 6}

    async def test_a_small_key_waits_for_few_of_many_claimers(self, world: World) -> None:
        """Twenty of one slot each, which begin together: each in step with the others would take the large key first."""
        await enqueue_keys(world, "a", 60)
        await enqueue_keys(world, "b", 5)
        claimers = await self._claimers(world, 20)
        taken: list[str] = []
        for _ in range(2):
            for name, store in claimers.items():
                taken += await keys_of(world, await world.claim(1, worker=name, store=store))
        assert taken.index("b") <= 12
        assert taken.count("b") == 5

    async def test_claimers_that_make_one_claim_each_have_keys_take_turns_too(self, world: World) -> None:
        """As workers that are replaced after each job."""
        await enqueue_keys(world, "a", 60)
        await enqueue_keys(world, "b", 20)
        claimers = await self._claimers(world, 40)
        claims = [await world.claim(1, worker=name, store=store) for name, store in claimers.items()]
        assert 6 <= Counter([key for one in claims for key in await keys_of(world, one)])["b"] <= 20

    async def test_claimers_that_begin_anywhere_among_many_more_keys_than_they_look_at_find_all_of_them(
        self, world: World
    ) -> None:
        jobs = [world.job(**with_key(f"key{number}")) for number in range(2 * OFFERED + 50)]
        await world.enqueue(*jobs)
        claimers = await self._claimers(world, 3)
        taken = [ids(await world.claim(1, worker=name, store=store)) for name, store in claimers.items()]
        assert [len(one) for one in taken] == [1, 1, 1], "each finds something at once"
        name, store = next(iter(claimers.items()))
        while claims := await world.claim(50, worker=name, store=store):
            taken.append(ids(claims))
        assert {one for some in taken for one in some} == set(ids(jobs))

    async def test_claimers_that_make_few_claims_each_take_what_waited_longest_too(self, world: World) -> None:
        low = await world.create(priority=0)
        await world.store.rewind(HOUR)
        await world.enqueue(*world.jobs(100, priority=9))
        claimers = await self._claimers(world, 20)
        taken: list[UUID] = []
        for _ in range(4):
            for name, store in claimers.items():
                taken += ids(await world.claim(1, worker=name, store=store))
        assert low in taken, "every tenth claim goes by age, whoever makes it"

    async def _claimers(self, world: World, count: int) -> dict[str, Store]:
        """Return so many handles, as processes have them, by the names of their workers."""
        claimers = {f"w{number}": await world.joined() for number in range(count)}
        for name in claimers:
            await world.worker(name)
        return claimers

    async def test_no_key_waits_for_long_behind_many(self, world: World) -> None:
        await enqueue_keys(world, "abcdefghij", 20)
        await enqueue_keys(world, "z", 1)
        seen: list[str] = []
        while "z" not in seen:
            seen += await keys_of(world, await world.claim(1))
            assert len(seen) <= 22, "a key comes once before the others have come twice, but for aging turns"

    async def test_of_many_more_keys_than_a_claim_looks_at_none_starves(self, world: World) -> None:
        """The first key has most of the jobs, which came before all others."""
        keys = [f"key{number:03}" for number in range(2 * OFFERED + 50)]
        await world.store.declare({OVER_KEYS: TWO})
        jobs = [world.job(**with_key(keys[0])) for _ in range(100)]
        await world.enqueue(*jobs, *(world.job(**with_key(key)) for key in keys[1:]))
        seen: list[str] = []
        while len(seen) < len(keys) + 40 and not set(keys) <= set(seen):
            claims = await world.claim(5)
            seen += await keys_of(world, claims)
            for claimed in claims:
                await world.succeed(claimed)
        assert set(keys) <= set(seen), "each comes once before others have come twice, but for aging turns"

    async def test_what_waited_longest_is_found_among_many_more_keys_than_a_claim_looks_at(self, world: World) -> None:
        """It has a low priority, and others of its priority and urgent ones wait too."""
        old = await world.create(priority=0, **with_key("old"))
        await world.store.rewind(HOUR)
        many = [world.job(priority=0, **with_key(f"key{number}")) for number in range(2 * OFFERED)]
        await world.enqueue(*many, *(world.job(priority=9) for _ in range(3 * AGING_TURN)))
        taken: list[UUID] = []
        while old not in taken:
            taken += ids(await world.claim(1))
            assert len(taken) <= 2 * AGING_TURN

    async def test_a_job_behind_many_more_full_keys_than_a_claim_looks_at_is_found(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: LimitRule(most=0)})
        await world.enqueue(*(world.job(**with_key(f"key{number}")) for number in range(2 * OFFERED + 50)))
        empty = await take(world, 5)
        assert (list(empty), empty.again) == ([], AGAIN)
        await world.store.set_limit(LimitName(LimitKind.KEY, SCOPE, "key170"), LimitRule(most=1), by="ann")
        assert await keys_of(world, await world.claim(5)) == ["key170"]

    async def test_urgent_keys_go_before_many_others(self, world: World) -> None:
        await world.enqueue(*(world.job(**with_key(f"key{number}")) for number in range(2 * OFFERED)))
        urgent = await world.create(priority=9, **with_key("key7"))
        assert ids(await world.claim(1)) == [urgent]

    async def test_keys_of_another_queue_are_no_obstacle_however_many(self, world: World) -> None:
        await world.enqueue(*(world.job(queue="other", **with_key(f"key{number}")) for number in range(2 * OFFERED)))
        mine = await world.create(queue="mine", **with_key("key7"))
        assert ids(await world.claim(5, queues=("mine",))) == [mine]

    async def test_with_many_keys_those_of_more_weight_give_more_in_their_turn(self, world: World) -> None:
        keys = [f"key{number}" for number in range(2 * OFFERED)]
        heavy = set(keys[::10])
        jobs = [world.job(**with_key(key, 3.0 if key in heavy else 1.0)) for key in keys for _ in range(4)]
        await world.enqueue(*jobs)
        got = Counter([key for _ in range(24) for key in await keys_of(world, await world.claim(10))])
        assert sum(got[key] for key in heavy) / len(heavy) > 1.5 * sum(got[key] for key in keys) / len(keys)

    async def test_within_a_key_first_in_is_first_out_and_what_is_released_comes_first(self, world: World) -> None:
        jobs = world.jobs(4, **with_key("a"))
        await world.enqueue(*jobs)
        first, second = await world.claim(2)
        assert ids([first, second]) == ids(jobs[:2])
        await world.settle(first, Released(""))
        assert ids(await world.claim(4)) == ids([jobs[0], *jobs[2:]])
        await world.succeed(second)

    async def test_priority_goes_before_turns(self, world: World) -> None:
        await enqueue_keys(world, "a", 2)
        urgent = await world.create(priority=9, **with_key("b"))
        assert ids(await world.claim(1)) == [urgent]

    async def test_a_share_of_the_claims_can_be_kept_for_retries_of_keys(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: TWO})
        failed = await world.claimed(**with_key("a"))
        await enqueue_keys(world, "a", 5)
        await world.fail(failed)
        turns = [ids(await world.claim(1, retries_first=first))[0] for first in (False, True)]
        assert turns.index(failed.job_id) == 1
        assert await world.claim(9) == [], "retries count for the limit of their key"

    async def test_a_key_has_no_second_share_for_its_retries(self, world: World) -> None:
        await enqueue_keys(world, "a", 20)
        for claimed in await world.claim(10):
            await world.fail(claimed)
        await enqueue_keys(world, "b", 20)
        taken = [key for _ in range(16) for key in await keys_of(world, await world.claim(1))]
        assert 6 <= Counter(taken)["b"] <= 10

    async def test_retries_of_a_key_that_rested_are_found(self, world: World) -> None:
        failed = await world.claimed(**with_key("a"), retry=Retry(max_attempts=9, initial=HOUR, jitter=0.0))
        await world.fail(failed)
        await self._let_it_be_forgotten(world)
        await world.store.promote(10)
        await world.fail(await world.claim_only(failed.job_id))
        await self._let_it_be_forgotten(world)
        await world.store.promote(10)
        assert ids(await world.claim(5, retries_first=True)) == [failed.job_id]

    @pytest.mark.parametrize("how", ["limit", "pause"])
    async def test_what_may_not_start_keeps_nothing_behind_it_from_its_turn(self, world: World, how: str) -> None:
        """The oldest jobs are held back, the next oldest has a low priority, and urgent ones never cease to come."""
        await world.enqueue(*world.jobs(3, task=OTHER_TASK, queue="slow"))
        if how == "pause":
            await world.store.pause("slow")
        else:
            await world.store.declare({LimitName(LimitKind.TASK, OTHER_TASK): LimitRule(most=1)})
            assert len(await world.claim(1, tasks=(OTHER_TASK,))) == 1
        await world.store.rewind(HOUR)
        low = await world.create(priority=0)
        await world.store.rewind(HOUR)
        taken: list[UUID] = []
        while low not in taken:
            await world.enqueue(world.job(priority=9))
            taken += ids(await world.claim(1, tasks=(TASK, OTHER_TASK)))
            assert len(taken) <= 2 * AGING_TURN, "every tenth claim takes what waited longest of what may start"

    # turns of queues

    async def test_a_claim_tells_what_people_have_set_for_the_turns_of_queues(self, world: World) -> None:
        mail, other = LimitName(LimitKind.QUEUE, "mail"), LimitName(LimitKind.QUEUE, "other")
        assert not (await take(world, 1)).weights
        await world.store.set_limit(mail, LimitRule(weight=3.0), by="ann")
        await world.store.set_limit(other, LimitRule(most=7, weight=0.5), by="ann")
        await world.store.set_limit(OVER_QUEUE, TWO, by="ann")
        assert (await take(world, 1)).weights == {"mail": 3.0, "other": 0.5}
        assert (await take(world, 1, queues=frozenset({"mail"}))).weights == {"mail": 3.0}, "of no queue that was not asked for"
        await world.store.set_limit(mail, None, by="ann")
        assert (await take(world, 1)).weights == {"other": 0.5}

    async def test_a_weight_set_for_a_queue_holds_nothing_back(self, world: World) -> None:
        await world.store.set_limit(OVER_QUEUE, LimitRule(weight=3.0), by="ann")
        await world.enqueue(*world.jobs(5), *(world.job(**with_key("a")) for _ in range(3)))
        claims = await world.claim(20)
        assert len(claims) == 8
        view = await the_limit(world, OVER_QUEUE)
        assert (view.rule, view.override) == (None, LimitRule(weight=3.0))

    async def test_a_weight_set_for_a_queue_leaves_it_under_the_limit_that_is_declared(self, world: World) -> None:
        await world.store.declare({OVER_QUEUE: TWO})
        await world.store.set_limit(OVER_QUEUE, LimitRule(weight=3.0), by="ann")
        await world.enqueue(*world.jobs(5))
        assert len(await world.claim(10)) == 2
        assert (await the_limit(world, OVER_QUEUE)).rule == TWO

    # everything else about a job with a key

    async def test_a_job_with_a_key_can_be_seen_canceled_retried_and_deleted_like_any(self, world: World) -> None:
        job_id = await world.create(**with_key("a"))
        assert await world.state(job_id) is State.READY
        await world.store.cancel([job_id])
        assert await world.state(job_id) is State.CANCELED
        await world.store.reopen([job_id])
        assert await world.state(job_id) is State.READY
        claimed = await world.claim_only(job_id)
        await world.fail(claimed)
        claimed = await world.claim_only(job_id)
        assert claimed.attempt == 2
        await world.check_log(job_id)
        await world.store.delete([job_id])
        assert await world.state(job_id) is None
        assert await world.claim(5) == []

    async def test_jobs_with_keys_are_counted_with_their_task(self, world: World) -> None:
        await enqueue_keys(world, "abc", 2)
        await world.enqueue(*world.jobs(2))
        stats = await world.store.stats()
        assert [(row.queue, row.task, row.counts[State.READY]) for row in stats.tasks] == [("default", TASK, 8)]
        await world.check_counts()

    async def test_a_key_that_was_forgotten_is_known_again_when_its_job_comes_back(self, world: World) -> None:
        later = await world.create(delay=HOUR, **with_key("a"))
        failing = await world.create(retry=LATER, **with_key("b"))
        await world.fail(await world.claim_only(failing))
        await self._let_it_be_forgotten(world)
        await world.store.rewind(2 * HOUR)
        await world.store.promote(100)
        assert set(ids(await world.claim(10))) == {later, failing}

    async def _let_it_be_forgotten(self, world: World) -> None:
        """Let time pass in which nothing of a key waits, and have the store tidy up."""
        for _ in range(3):
            await world.store.rewind(HOUR)
            await world.store.prune(Retention(), limit=100)
        await world.claim(1, tasks=("unknown",))

    async def test_a_paused_queue_gives_no_job_of_a_key(self, world: World) -> None:
        await enqueue_keys(world, "a", 1)
        await world.store.pause("default")
        assert await world.claim(5) == []
        await world.store.resume("default")
        assert len(await world.claim(5)) == 1

    async def test_a_fifo_queue_keeps_its_order_under_its_limit(self, world: World) -> None:
        await world.store.declare({OVER_QUEUE: TWO})
        jobs = [world.job(TASK if number % 2 else OTHER_TASK, fifo=True) for number in range(5)]
        await world.enqueue(*jobs)
        options: dict[str, Any] = {"tasks": (TASK, OTHER_TASK)}
        first = await world.claim(10, **options)
        assert ids(first) == ids(jobs[:2])
        assert await world.claim(10, **options) == []
        await world.succeed(first[1])
        assert ids(await world.claim(10, **options)) == ids(jobs[2:3])

    async def test_what_runs_in_a_fifo_queue_does_not_count_for_its_task(self, world: World) -> None:
        await world.store.declare({OVER_TASK: LimitRule(most=1)})
        await world.enqueue(world.job(queue="ledger", fifo=True))
        assert len(await world.claim(1)) == 1
        await world.enqueue(world.job())
        assert len(await world.claim(1)) == 1
        await world.store.set_limit(OVER_TASK, LimitRule(most=2), by="ann")
        await world.enqueue(*world.jobs(3))
        assert len(await world.claim(5)) == 1

    def test_a_fifo_queue_takes_no_key(self, world: World) -> None:
        with pytest.raises(BadJob, match="fifo"):
            world.job(fifo=True, **with_key("a"))

    async def test_limits_show_what_is_used(self, world: World) -> None:
        await world.store.declare({OVER_KEYS: TWO, OVER_QUEUE: LimitRule(rate=0.5, burst=10)})
        await enqueue_keys(world, "ab", 3)
        await world.claim(3)
        views = {view.name: view for view in await world.store.limits()}
        assert list(views) == [
            OVER_KEYS,
            LimitName(LimitKind.KEY, SCOPE, "a"),
            LimitName(LimitKind.KEY, SCOPE, "b"),
            OVER_QUEUE,
        ]
        assert [view.running for view in views.values()] == [3, 2, 1, 3]
        tokens = views[OVER_QUEUE].tokens
        assert tokens is not None
        assert 7 <= tokens <= 8

    async def test_a_view_tells_the_key_of_a_job_wherever_it_stands(self, world: World) -> None:
        key = LimitKey(SCOPE, "a", 2.5)
        ready = await world.create(limit=key, requires=("gpu",))
        later = await world.create(limit=key, delay=HOUR)
        plain, strict = await world.create(), await world.create(fifo=True, queue="strict")
        views = await world.store.get([ready, later, plain, strict])
        assert [view and (view.limit, view.fifo) for view in views] == [(key, False), (key, False), (None, False), (None, True)]
        assert views[0] is not None
        assert views[0].requires == ("gpu",)
        assert views[0].limits_over == (OVER_QUEUE, OVER_TASK, key.name)
        claimed = await world.claim_only(ready, capabilities=("gpu",))
        assert await self._limit_of(world, ready) == key
        await world.succeed(claimed)
        assert await self._limit_of(world, ready) == key

    async def _limit_of(self, world: World, job_id: UUID) -> LimitKey | None:
        view = (await world.store.get([job_id]))[0]
        assert view is not None
        return view.limit

    async def test_limits_that_are_named_are_shown_each_in_its_place(self, world: World) -> None:
        own = LimitName(LimitKind.KEY, SCOPE, "a")
        unknown = LimitName(LimitKind.KEY, SCOPE, "nobody")
        await world.store.declare({OVER_KEYS: LimitRule(rate=0.5, burst=3), OVER_TASK: TWO})
        await world.store.set_limit(LimitName(LimitKind.KEY, SCOPE, "b"), LimitRule(weight=2.0), by="ann")
        await enqueue_keys(world, "a", 2)
        for claimed in await world.claim(2):
            await world.succeed(claimed)
        names = [unknown, own, OVER_TASK, OVER_QUEUE, own, OVER_KEYS]
        views = await world.store.limits(names)
        assert [view.name for view in views] == names
        assert [view.rule for view in views] == [
            *(LimitRule(rate=0.5, burst=3), LimitRule(rate=0.5, burst=3), TWO, None),
            *(LimitRule(rate=0.5, burst=3), LimitRule(rate=0.5, burst=3)),
        ]
        assert (views[0].tokens, views[0].override, views[0].declared) == (None, None, None)
        assert views[1].tokens is not None, "its bucket is known though nothing runs"
        assert 1 <= views[1].tokens <= 2
        assert own not in [view.name for view in await world.store.limits()]
        assert await world.store.limits([]) == []

    async def test_what_holds_for_a_key_is_its_own_or_that_of_its_scope(self, world: World) -> None:
        weighed, chosen = (LimitName(LimitKind.KEY, SCOPE, key) for key in "ab")
        await world.store.declare({OVER_KEYS: TWO})
        await world.store.set_limit(weighed, LimitRule(weight=2.0), by="ann")
        await world.store.set_limit(chosen, LimitRule(most=5), by="ann")
        views = await world.store.limits([weighed, chosen])
        assert [(view.rule, view.inherited) for view in views] == [(TWO, TWO), (LimitRule(most=5), TWO)]
        await world.store.set_limit(OVER_KEYS, LimitRule(most=9), by="ann")
        assert [view.rule for view in await world.store.limits([weighed, chosen])] == [LimitRule(most=9), LimitRule(most=5)]

    async def test_a_limit_tells_whether_it_has_room(self, world: World) -> None:
        own = LimitName(LimitKind.KEY, SCOPE, "a")
        await world.store.declare({OVER_KEYS: LimitRule(most=1), OVER_TASK: LimitRule(rate=0.1, burst=1)})
        await enqueue_keys(world, "a", 2)
        rooms = [view.room for view in await world.store.limits([own, OVER_TASK])]
        assert [room and room.admits(1.0) for room in rooms] == [True, True]
        await world.claim(1)
        held, rated = (view.room for view in await world.store.limits([own, OVER_TASK]))
        assert held is not None
        assert rated is not None
        assert (held.admits(1.0), rated.admits(1.0)) == (False, False)
        assert 5 < rated.again(1.0) <= 10
        queue, scope = await world.store.limits([OVER_QUEUE, OVER_KEYS])
        assert (queue.room, scope.room, scope.running) == (None, None, 1)

    async def test_of_too_many_limits_single_keys_are_left_out(self, world: World) -> None:
        for number in range(MOST_LIMITS + 1):
            await world.store.set_limit(LimitName(LimitKind.KEY, SCOPE, f"{number:05}"), TWO)
        await world.store.declare({OVER_TASK: TWO})
        views = await world.store.limits()
        assert len(views) == MOST_LIMITS
        assert views[-1].name == OVER_TASK

    async def test_setting_a_limit_leaves_a_line_in_the_audit_log(self, world: World) -> None:
        await world.store.set_limit(OVER_TASK, TWO, by="ann")
        await world.store.set_limit(OVER_TASK, make_rule(rate=10, per=60), by="ann")
        await world.store.set_limit(OVER_TASK, None, by="bob")
        lines = [(line.actor, line.action, line.targets, line.detail) for line in await world.store.audits(limit=10)]
        assert lines == [
            ("bob", Action.SET_LIMIT, (str(OVER_TASK),), "as declared"),
            ("ann", Action.SET_LIMIT, (str(OVER_TASK),), "10 a minute"),
            ("ann", Action.SET_LIMIT, (str(OVER_TASK),), "at most 2 at once"),
        ]

    @pytest.mark.parametrize(
        ("name", "rule"),
        [
            (LimitName(LimitKind.QUEUE, ""), TWO),
            (LimitName(LimitKind.QUEUE, "a\0b"), TWO),
            (LimitName(LimitKind.QUEUE, "mail", "key"), TWO),
            (LimitName(LimitKind.KEY, SCOPE, "x" * 1000), TWO),
            (OVER_TASK, LimitRule(weight=2.0)),
            (OVER_KEYS, LimitRule(weight=2.0)),
        ],
    )
    async def test_a_limit_that_makes_no_sense_is_refused(self, world: World, name: LimitName, rule: LimitRule) -> None:
        with pytest.raises(BadJob):
            await world.store.set_limit(name, rule, by="ann")
        with pytest.raises(BadJob):
            await world.store.declare({name: rule})
        assert await world.store.limits() == []
        assert await world.store.audits(limit=10) == []
