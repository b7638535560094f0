"""Whose turn it is: shares of queues and of retries, as counted and as really claimed. On every store."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from holdfast import Holdfast, Job, Retry
from holdfast.runtime.weights import Turns
from tests.support.lots import still

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Handle

WAIT = 30.0
AT_ONCE = Retry(max_attempts=None, initial=0, max=0)


async def work(app: Holdfast, handles: Sequence[Handle[None]]) -> None:
    """Run jobs one after another, each by a claim of its own."""
    async with app.worker(concurrency=1):
        for handle in handles:
            await handle.result(timeout=WAIT)


def turns_of(turns: Turns, count: int) -> list[str | None]:
    return [turns.next()[0] for _ in range(count)]


def test_each_queue_comes_first_in_proportion_to_its_weight_over_any_stretch() -> None:
    order = turns_of(Turns({"a": 5, "b": 2, "c": 1}, 0, still), 80)
    assert Counter(order) == {"a": 50, "b": 20, "c": 10}
    for start in range(0, 80, 8):
        assert Counter(order[start : start + 8]) == {"a": 5, "b": 2, "c": 1}
    assert "a a a a" not in " ".join(map(str, order)), "smooth: the heavy one does not take its turns at a stretch"


def test_fractions_are_weights_too() -> None:
    assert Counter(turns_of(Turns({"a": 0.75, "b": 0.25}, 0, still), 40)) == {"a": 30, "b": 10}


def test_equal_weights_are_equal_shares() -> None:
    assert turns_of(Turns({"a": 2, "b": 2}, 0, still), 4) == ["a", "b", "a", "b"]


def test_without_any_weight_the_usual_order_holds() -> None:
    turns = Turns({}, 0, still, frozenset({"a", "b"}))
    assert turns_of(turns, 3) == [None] * 3
    turns.saw(["a", "b"])
    assert turns_of(turns, 3) == [None] * 3


def test_a_queue_alone_has_no_turns() -> None:
    assert turns_of(Turns({"a": 2}, 0, still), 3) == [None] * 3


def test_what_people_set_stands_above_what_is_declared_until_they_take_it_back() -> None:
    turns = Turns({"a": 1, "b": 1}, 0, still)
    turns.weigh({"b": 3.0})
    assert Counter(turns_of(turns, 40)) == {"a": 10, "b": 30}
    turns.weigh({})
    assert Counter(turns_of(turns, 40)) == {"a": 20, "b": 20}


def test_a_weight_that_people_set_makes_queues_take_turns() -> None:
    turns = Turns({}, 0, still)
    turns.saw(["a", "b"])
    turns.weigh({"b": 3.0})
    assert Counter(turns_of(turns, 40)) == {"a": 10, "b": 30}


def test_claimers_that_make_one_claim_each_keep_the_shares() -> None:
    chance = random.Random(1)
    made = [Turns({"a": 3, "b": 1}, 0.2, chance.random).next() for _ in range(2000)]
    assert 1400 <= sum(first == "a" for first, _ in made) <= 1600
    assert 320 <= sum(retries for _, retries in made) <= 480


def test_a_queue_nobody_spoke_of_has_the_weight_one_once_it_is_seen() -> None:
    turns = Turns({"vip": 3}, 0, still)
    turns.saw(["default"])
    assert Counter(turns_of(turns, 40)) == {"vip": 30, "default": 10}


def test_queues_that_are_not_served_take_no_turns() -> None:
    turns = Turns({"a": 3, "b": 1, "elsewhere": 9}, 0, still, frozenset({"a", "b", "c"}))
    turns.saw(["other"])
    assert Counter(turns_of(turns, 50)) == {"a": 30, "b": 10, "c": 10}


def test_retries_come_first_as_often_as_their_share_says() -> None:
    for share, expected in ((0.0, 0), (0.2, 20), (0.25, 25), (1.0, 100)):
        turns = Turns({}, share, still)
        first = sum(turns.next()[1] for _ in range(100))
        assert abs(first - expected) <= 1, share


async def test_claims_are_shared_by_weight(app: Holdfast) -> None:
    app.queue("heavy", weight=3)
    app.queue("light", weight=1)
    ran: list[str] = []

    @app.task()
    async def note(*, job: Job) -> None:
        ran.append(job.queue)

    calls = [note.options(queue=queue).call() for queue in ("light", "heavy") for _ in range(40)]
    await work(app, await app.enqueue_many(calls))
    # 30 to 10; every tenth claim goes to the oldest
    assert 24 <= Counter(ran[:40])["heavy"] <= 34
    assert len(ran) == 80


async def test_queues_of_equal_weight_share_the_claims_though_one_has_many_older_jobs(app: Holdfast) -> None:
    app.queue("a", weight=2)
    app.queue("b", weight=2)
    ran: list[str] = []

    @app.task()
    async def note(*, job: Job) -> None:
        ran.append(job.queue)

    calls = [note.options(queue=queue).call() for queue, count in (("a", 60), ("b", 20)) for _ in range(count)]
    await work(app, await app.enqueue_many(calls))
    assert max(number for number, queue in enumerate(ran) if queue == "b") <= 50


async def test_a_weight_set_at_run_time_reaches_a_worker_that_runs(app: Holdfast) -> None:
    app.queue("a", weight=1)
    app.queue("b", weight=1)
    ran: list[str] = []

    @app.task()
    async def note(*, job: Job) -> None:
        ran.append(job.queue)

    await app.set_limit(queue="b", weight=9)
    calls = [note.options(queue=queue).call() for queue in ("a", "b") for _ in range(60)]
    handles = await app.enqueue_many(calls)
    async with app.worker(concurrency=1):
        for handle in handles:
            await handle.result(timeout=WAIT)
    assert Counter(ran[:50])["b"] >= 35
    assert (await app.limits())[0].rule is None, "nothing is held back"


async def test_no_claim_goes_empty_for_the_sake_of_a_share(app: Holdfast) -> None:
    app.queue("heavy", weight=100)
    ran: list[str] = []

    @app.task()
    async def note(*, job: Job) -> None:
        ran.append(job.queue)

    await work(app, await app.enqueue_many([note.options(queue="light").call() for _ in range(10)]))
    assert ran == ["light"] * 10


async def test_a_retry_does_not_wait_for_a_deep_backlog(app: Holdfast) -> None:
    ran: list[str] = []

    @app.task(retry=AT_ONCE)
    async def note(name: str, *, job: Job) -> None:
        ran.append(name)
        if name == "shaky" and job.attempt == 1:
            raise ValueError("not yet")

    await work(app, await app.enqueue_many([note.call("shaky"), *(note.call("fresh") for _ in range(60))]))
    first, second = (number for number, name in enumerate(ran) if name == "shaky")
    assert first == 0
    assert second <= 15, "a fifth of the claims begin with retries"


async def test_many_retries_do_not_starve_fresh_jobs(app: Holdfast) -> None:
    ran: list[str] = []
    fresh_done = False

    @app.task(retry=AT_ONCE)
    async def failing() -> None:
        ran.append("failing")
        if not fresh_done:
            raise ValueError("again")

    @app.task()
    async def fresh() -> None:
        nonlocal fresh_done
        ran.append("fresh")
        fresh_done = ran.count("fresh") == 20

    await work(app, await app.enqueue_many([*(failing.call() for _ in range(20)), *(fresh.call() for _ in range(20))]))
    last = max(number for number, name in enumerate(ran) if name == "fresh")
    assert last <= 80, "twenty of each, and a fifth or so of the claims for retries"
