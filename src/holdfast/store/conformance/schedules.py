"""Schedules: one job for each slot, whoever fires it and however often."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.states import State
from holdfast.errors import BadJob
from holdfast.store.conformance.records import hostile
from holdfast.store.conformance.world import HOUR, TASK, Subject, World
from holdfast.store.port import Enqueue, Enqueued, Firing, Schedule, ScheduleView

if TYPE_CHECKING:
    from holdfast.core.job import NewJob

NAME: Final = "nightly"
STEP: Final = timedelta(seconds=HOUR)


async def begin(world: World, **fields: Any) -> datetime:
    """Make a schedule known and return its slot, which was due a minute ago."""
    slot = await world.store.now() - timedelta(minutes=1)
    await world.store.schedule([a_schedule(**{"next_at": slot, **fields})])
    return (await standing(world, fields.get("name", NAME))).schedule.next_at


def a_schedule(**fields: Any) -> Schedule:
    """Return a schedule to be made known."""
    return Schedule(**{"name": NAME, "task": TASK, "cron": "0 3 * * *", "timezone": "Europe/Berlin", **fields})


async def standing(world: World, name: str = NAME) -> ScheduleView:
    """Return how a schedule stands."""
    return next(view for view in await world.store.schedules() if view.schedule.name == name)


def firing(slot: datetime, job: NewJob | None, name: str = NAME) -> Firing:
    """Return the firing of a slot, with the next an hour later."""
    return Firing(name=name, slot=slot, next_at=slot + STEP, job=job)


class Schedules(Subject):
    """Schedule, unschedule, fire."""

    async def test_schedule_is_shown_as_it_was_given(self, world: World) -> None:
        given = a_schedule(next_at=await world.store.now() + STEP, spec='{"args":  {"n": 1.0}}')

        await world.store.schedule([given])

        (view,) = await world.store.schedules()
        assert (view.schedule, view.last_at, view.last_job) == (given, None, None)
        assert view.due_in == pytest.approx(HOUR, abs=60)

    async def test_due_in_counts_by_the_stores_clock(self, world: World) -> None:
        await world.store.schedule([a_schedule(next_at=await world.store.now() + STEP)])
        await world.store.rewind(2 * HOUR)

        assert (await standing(world)).due_in == pytest.approx(-HOUR, abs=60)

    async def test_schedules_are_sorted_by_name(self, world: World) -> None:
        now = await world.store.now()
        await world.store.schedule([a_schedule(name=name, next_at=now) for name in ("b", "ä", "C", "a")])

        names = [view.schedule.name for view in await world.store.schedules()]
        assert names == ["C", "a", "b", "ä"], "by code points, whatever language the database speaks"

    @hostile
    async def test_schedule_keeps_hostile_text(self, world: World, text: str) -> None:
        given = Schedule(name=text, task=text, cron=text, timezone=text, spec=text, next_at=await world.store.now())
        await world.store.schedule([given])

        assert [view.schedule for view in await world.store.schedules()] == [given]
        assert await world.store.fire(firing(given.next_at, None, text)) is None
        assert (await standing(world, text)).schedule.next_at == given.next_at + STEP
        await world.store.unschedule([text])
        assert await world.store.schedules() == []

    async def test_known_schedule_keeps_its_place(self, world: World) -> None:
        slot = await begin(world)
        job = world.job()
        await world.store.fire(firing(slot, job))

        await world.store.schedule([a_schedule(next_at=slot + 99 * STEP)])

        view = await standing(world)
        assert (view.schedule.next_at, view.last_at, view.last_job) == (slot + STEP, slot, job.id)

    @pytest.mark.parametrize("change", [{"task": "other"}, {"cron": "1 3 * * *"}, {"timezone": "UTC"}, {"spec": '{"n":1}'}])
    async def test_changed_schedule_begins_anew(self, world: World, change: dict[str, str]) -> None:
        slot = await begin(world)
        await world.store.fire(firing(slot, world.job()))
        changed = a_schedule(next_at=slot + 99 * STEP, **change)

        await world.store.schedule([changed])

        view = await standing(world)
        assert (view.schedule, view.last_at, view.last_job) == (changed, None, None)

    async def test_forgotten_schedule_leaves_its_jobs(self, world: World) -> None:
        slot = await begin(world)
        await begin(world, name="other")
        job = world.job()
        await world.store.fire(firing(slot, job))

        await world.store.unschedule([NAME, "unknown"])
        await world.store.unschedule([NAME])

        assert [view.schedule.name for view in await world.store.schedules()] == ["other"]
        assert await world.state(job.id) is State.READY

    # firing

    async def test_fired_slot_becomes_a_job(self, world: World) -> None:
        slot = await begin(world)
        job = world.job(args='{"slot": 1}')

        assert await world.store.fire(firing(slot, job)) == Enqueued(Enqueue.CREATED, job.id)

        view = await standing(world)
        assert (view.schedule.next_at, view.last_at, view.last_job) == (slot + STEP, slot, job.id)
        assert (await world.claim_only(job.id)).args == '{"slot": 1}'
        await world.check_log(job.id)

    async def test_slot_is_fired_once(self, world: World) -> None:
        slot = await begin(world)
        first, second = world.job(), world.job()
        await world.store.fire(firing(slot, first))
        before = await standing(world)

        assert await world.store.fire(firing(slot, second)) is None

        after = await standing(world)
        assert (after.schedule, after.last_at, after.last_job) == (before.schedule, before.last_at, before.last_job)
        assert await world.state(second.id) is None

    async def test_ten_callers_make_one_job_of_a_slot(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        slot = await begin(world)
        for _ in range(5):
            jobs = world.jobs(10)
            calls = [handles[number % 4].fire(firing(slot, job)) for number, job in enumerate(jobs)]

            answers = await asyncio.gather(*calls)

            fired = [answer for answer in answers if answer is not None]
            assert len(fired) == 1, f"{len(fired)} of 10 callers fired one slot"
            states = await world.states(job.id for job in jobs)
            assert states.count(State.READY) == 1, f"one slot became {10 - states.count(None)} jobs"
            view = await standing(world)
            assert (view.last_at, view.last_job) == (slot, fired[0].job_id)
            slot += STEP

    async def test_firing_repeated_after_an_unknown_outcome_changes_nothing(self, world: World) -> None:
        slot = await begin(world)
        job = world.job()
        once = firing(slot, job)
        assert await world.store.fire(once) == Enqueued(Enqueue.CREATED, job.id)

        assert await world.store.fire(once) is None

        assert (await world.store.stats()).count() == 1
        assert (await standing(world)).schedule.next_at == slot + STEP

    async def test_wrong_slot_fires_nothing(self, world: World) -> None:
        slot = await begin(world)
        jobs = world.jobs(2)

        assert await world.store.fire(firing(slot + timedelta(microseconds=1), jobs[0])) is None
        assert await world.store.fire(firing(slot - STEP, jobs[1])) is None

        assert await world.states(job.id for job in jobs) == [None, None]
        assert (await standing(world)).schedule.next_at == slot

    async def test_slot_is_a_moment_whatever_its_time_zone(self, world: World) -> None:
        slot = await begin(world)
        job = world.job()
        elsewhere = slot.astimezone(timezone(timedelta(hours=5, minutes=45)))

        assert await world.store.fire(firing(elsewhere, job)) == Enqueued(Enqueue.CREATED, job.id)
        assert (await standing(world)).schedule.next_at == slot + STEP

    async def test_unknown_schedule_fires_nothing(self, world: World) -> None:
        job = world.job()

        assert await world.store.fire(firing(await world.store.now(), job)) is None

        assert await world.state(job.id) is None
        assert await world.store.schedules() == []

    async def test_slot_passed_over_makes_no_job(self, world: World) -> None:
        slot = await begin(world)
        job = world.job()
        await world.store.fire(firing(slot, job))

        assert await world.store.fire(firing(slot + STEP, None)) is None

        view = await standing(world)
        assert (view.schedule.next_at, view.last_at, view.last_job) == (slot + 2 * STEP, slot, job.id)
        assert (await world.store.stats()).count() == 1

    async def test_slot_whose_key_is_taken_is_stood_for_by_the_holder(self, world: World) -> None:
        slot = await begin(world)
        holder = await world.create(key="k")

        assert await world.store.fire(firing(slot, world.job(key="k"))) == Enqueued(Enqueue.EXISTING, holder)

        view = await standing(world)
        assert (view.schedule.next_at, view.last_at, view.last_job) == (slot + STEP, slot, holder)
        assert (await world.store.stats()).count() == 1

    async def test_slot_whose_job_is_there_already_is_advanced(self, world: World) -> None:
        slot = await begin(world)
        job = world.job()
        await world.enqueue(job)

        assert await world.store.fire(firing(slot, job)) == Enqueued(Enqueue.REPEATED, job.id)
        assert (await standing(world)).schedule.next_at == slot + STEP

    async def test_refused_job_leaves_the_slot(self, world: World) -> None:
        slot = await begin(world)

        with pytest.raises(BadJob):
            await world.store.fire(firing(slot, world.job(after=(uuid7(),))))

        view = await standing(world)
        assert (view.schedule.next_at, view.last_at) == (slot, None)
        assert await world.store.fire(firing(slot, world.job())) is not None

    async def test_schedule_ages_with_the_store(self, world: World) -> None:
        slot = await begin(world)
        await world.store.fire(firing(slot, world.job()))

        await world.store.rewind(HOUR)

        view = await standing(world)
        assert (view.schedule.next_at, view.last_at) == (slot, slot - STEP)
        assert await world.store.fire(firing(slot, world.job())) is not None
