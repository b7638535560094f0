"""Figures that are added up, and the attempts that ended badly."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from holdfast.core.figures import BUCKETS, EMPTY, Figure
from holdfast.core.outcome import Error, Failed, Released, Suspended
from holdfast.core.states import Event, State
from holdfast.store.conformance.world import AT_ONCE, BOOM, HOUR, Subject, World, ids
from holdfast.store.port import FigureView, Grain, Retention

DAY: Final = 24 * HOUR


def figure(count: int = 1, *, place: int = 0, **fields: Any) -> Figure:
    """Return figures of one task, all in one bucket."""
    histogram = tuple(count if number == place else 0 for number in range(BUCKETS))
    given = {"queue": "q", "task": "t", "event": Event.SUCCEED, "waited": count / 4, "ran": count / 2}
    return Figure(**{**given, "count": count, "waits": histogram, "runs": histogram, **fields})


async def figures(world: World, grain: Grain = Grain.ALL, **options: Any) -> list[Figure]:
    """Return the figures of a grain without their times."""
    return [view.figure for view in await world.store.figures(grain, **options)]


class Figures(Subject):
    """Measure, figures, failures."""

    async def test_figures_are_shown_for_this_minute_this_hour_and_all_time(self, world: World) -> None:
        given = figure(3, place=2, event=Event.FAIL, code="BOOM")
        before = await world.store.now()
        await world.store.measure([given])
        after = await world.store.now()

        (minute,) = await world.store.figures(Grain.MINUTE)
        (hour,) = await world.store.figures(Grain.HOUR)

        assert await world.store.figures(Grain.ALL) == [FigureView(at=None, figure=given)]
        assert (minute.figure, hour.figure) == (given, given)
        assert minute.at in {moment.replace(second=0, microsecond=0) for moment in (before, after)}
        assert hour.at in {moment.replace(minute=0, second=0, microsecond=0) for moment in (before, after)}

    async def test_figures_about_the_same_are_added_up(self, world: World) -> None:
        await world.store.measure([figure(1, place=0), figure(2, place=5)])
        await world.store.measure([figure(4, place=BUCKETS - 1)])
        await world.store.measure([])

        (total,) = await figures(world)

        buckets = [0] * BUCKETS
        buckets[0], buckets[5], buckets[-1] = 1, 2, 4
        assert total == figure(7, waits=tuple(buckets), runs=tuple(buckets))

    async def test_the_whole_of_all_tasks_and_queues_is_kept_beside_each(self, world: World) -> None:
        await world.store.measure([figure(1, place=0), figure(2, place=5, task="u", queue="r")])
        await world.store.measure([figure(4, place=0, event=Event.FAIL, code="BOOM"), figure(8, place=1, code="odd")])

        for grain in Grain:
            failed, succeeded = await figures(world, grain, whole=True)
            assert (failed.event, failed.count, failed.queue, failed.task, failed.code) == (Event.FAIL, 4, "", "", "")
            assert (succeeded.event, succeeded.count, succeeded.waited) == (Event.SUCCEED, 11, 11 / 4)
            assert succeeded.runs[:6] == (1, 8, 0, 0, 0, 2)
            assert all(one.task and one.queue for one in await figures(world, grain))

    async def test_figures_differ_by_queue_task_event_and_code_and_are_listed_in_that_order(self, world: World) -> None:
        given = [
            figure(1, queue="B"),
            figure(2, queue="a"),
            figure(3, queue="a", task="u"),
            figure(4, queue="a", task="u", event=Event.FAIL, code="X"),
            figure(5, queue="a", task="u", event=Event.FAIL, code="Y"),
            figure(6, queue="ä 'x'", task="%s"),
        ]
        await world.store.measure(given[::-1])

        shown = await figures(world)

        assert shown == sorted(given, key=lambda one: one.key)

    async def test_figures_without_times_have_empty_histograms(self, world: World) -> None:
        await world.store.measure([Figure(queue="q", task="t", event=Event.RELEASE, count=2**40)])

        (shown,) = await figures(world)

        assert (shown.count, shown.waits, shown.runs, shown.waited, shown.ran) == (2**40, EMPTY, EMPTY, 0.0, 0.0)

    async def test_figures_of_other_minutes_and_hours_stand_apart_oldest_first(self, world: World) -> None:
        await world.store.measure([figure(1)])
        await world.store.rewind(HOUR)
        await world.store.measure([figure(2)])

        minutes = await world.store.figures(Grain.MINUTE)
        hours = await world.store.figures(Grain.HOUR)

        assert [view.figure.count for view in minutes] == [1, 2]
        assert [view.figure.count for view in hours] == [1, 2]
        assert [one.count for one in await figures(world)] == [3]
        assert hours[1].at is not None
        assert [view.figure.count for view in await world.store.figures(Grain.HOUR, since=hours[1].at)] == [2]

    async def test_figures_begin_with_the_one_that_since_falls_into(self, world: World) -> None:
        await world.store.measure([figure(1)])
        (view,) = await world.store.figures(Grain.MINUTE)
        assert view.at is not None

        within = await figures(world, Grain.MINUTE, since=view.at + timedelta(seconds=59))
        beyond = await figures(world, Grain.MINUTE, since=view.at + timedelta(seconds=61))
        always = await figures(world, Grain.ALL, since=view.at + timedelta(days=9))

        assert [one.count for one in within] == [1]
        assert beyond == []
        assert [one.count for one in always] == [1]

    async def test_two_who_measure_at_once_add_up_exactly(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        tasks = [f"t{number}" for number in range(12)]

        async def add(number: int) -> None:
            for turn in range(5):
                order = tasks[turn:] + tasks[:turn]
                given = order if number % 2 else order[::-1]
                await handles[number].measure([figure(1, task=task, place=number) for task in given])

        await asyncio.gather(*(add(number) for number in range(4)))

        shown = await figures(world)
        buckets = (5, 5, 5, 5, *(0,) * (BUCKETS - 4))
        assert shown == [figure(20, task=task, waits=buckets, runs=buckets) for task in sorted(tasks)]

    async def test_old_minutes_and_hours_go_with_the_first_look_of_a_walk(self, world: World) -> None:
        await world.store.measure([figure(1)])
        await world.store.rewind(DAY - HOUR)
        await world.store.prune(Retention(), limit=1)
        young = [len(await figures(world, grain)) for grain in Grain]
        await world.store.rewind(2 * HOUR)
        await world.store.prune(Retention(), limit=1, after=await world.create())
        later = [len(await figures(world, grain)) for grain in Grain]
        await world.store.prune(Retention(), limit=0)
        a_day = [len(await figures(world, grain)) for grain in Grain]
        await world.store.rewind(90 * DAY)
        await world.store.prune(Retention(), limit=1)
        a_season = [len(await figures(world, grain)) for grain in Grain]

        assert list(Grain) == [Grain.MINUTE, Grain.HOUR, Grain.ALL]
        assert (young, later, a_day, a_season) == ([1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 0, 1])

    # waiting, as claims tell it

    async def test_claim_tells_since_when_a_job_was_ready(self, world: World) -> None:
        first = await world.create(retry=AT_ONCE)
        await world.store.rewind(HOUR)
        waited = await world.claim_only(first)
        await world.fail(waited)
        again = await world.claim_only(first)
        await world.succeed(again)
        await world.create(delay=HOUR)
        await world.store.rewind(2 * HOUR)
        await world.store.promote(10)
        (promoted,) = await world.claim(5)

        assert HOUR <= waited.waited < HOUR + 60
        assert 0 <= again.waited < 60
        assert 0 <= promoted.waited < 60

    async def test_claim_of_many_tells_since_when_each_was_ready(self, world: World) -> None:
        await world.enqueue(*world.jobs(3, delay=HOUR), *world.jobs(2))
        await world.store.rewind(2 * HOUR)
        await world.store.promote(10)

        waits = sorted(claim.waited // HOUR for claim in await world.claim(10))

        assert waits == [0, 0, 0, 2, 2]

    # attempts that ended badly

    async def test_failures_tell_whose_they_were_and_why(self, world: World) -> None:
        since = await world.store.now()
        claimed = await world.claimed(key="k", queue="mail", retry=AT_ONCE)
        await world.fail(claimed)
        again = await world.claim_only(claimed.job_id)
        await world.fail(again, Error("WORSE", "much"), fatal=True)

        last, first = await world.store.failures(since=since, limit=10)

        assert (first.job_id, first.task, first.queue, first.key) == (claimed.job_id, claimed.task, "mail", "k")
        assert (first.attempt, first.event, first.error) == (1, Event.RETRY, BOOM)
        assert (last.attempt, last.event, last.error) == (2, Event.FAIL, Error("WORSE", "much"))
        assert since <= first.at <= last.at

    async def test_only_attempts_with_an_error_are_failures(self, world: World) -> None:
        since = await world.store.now()
        await world.ended(State.SUCCEEDED)
        await world.settle(await world.claimed(), Suspended(signal="never"))
        await world.proceed(await world.claimed())
        await world.store.complete({(await world.claimed()).job_id: "1"})
        await world.store.fail({await world.create(): BOOM})
        assert await world.store.failures(since=since, limit=10) == []
        released = await world.claimed()
        await world.settle(released, Released("shut down"))

        (only,) = await world.store.failures(since=since, limit=10)

        assert (only.job_id, only.key, only.event, only.error.code) == (released.job_id, None, Event.RELEASE, "RELEASED")

    async def test_failures_are_newest_first_within_limit_and_time(self, world: World) -> None:
        claims = []
        for _ in range(4):
            claims.append(await world.claimed())
            await world.fail(claims[-1], fatal=True)
            await world.store.rewind(HOUR)
        now = await world.store.now()
        newest = ids(claims)[::-1]

        async def shown(hours: float, limit: int) -> list[int]:
            found = await world.store.failures(since=now - timedelta(hours=hours), limit=limit)
            return [newest.index(one.job_id) for one in found]

        assert await shown(9, 10) == [0, 1, 2, 3]
        assert await shown(9, 2) == [0, 1]
        assert await shown(2.5, 10) == [0, 1]
        assert await shown(0.5, 10) == []
        assert await shown(9, 0) == []
        assert await shown(9, -1) == []
        assert await shown(9, 2**40) == [0, 1, 2, 3]

    async def test_failures_go_on_behind_the_last_one_of_a_page(self, world: World) -> None:
        since = await world.store.now()
        await world.enqueue(*world.jobs(5))
        ends = [world.settlement(one, Failed(BOOM, fatal=True)) for one in await world.claim(5)]
        await world.store.settle(ends)  # all at one moment: the time alone does not tell them apart
        whole = await world.store.failures(since=since, limit=10)

        pages = [await world.store.failures(since=since, limit=2)]
        while pages[-1]:
            pages.append(await world.store.failures(since=since, limit=2, after=pages[-1][-1]))

        assert [len(page) for page in pages] == [2, 2, 1, 0]
        assert [one for page in pages for one in page] == whole

    async def test_failures_of_pruned_jobs_are_gone(self, world: World) -> None:
        since = await world.store.now() - timedelta(hours=9)
        await world.ended(State.FAILED)
        await world.store.rewind(HOUR)

        await world.store.prune(Retention(failed=0.0), limit=10)

        assert await world.store.failures(since=since, limit=10) == []
