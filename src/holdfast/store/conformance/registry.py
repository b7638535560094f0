"""Who the workers are, which of them are alive, and what they hold."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

from holdfast.core.outcome import CANCELED, Error
from holdfast.core.states import Event, State
from holdfast.errors import UnknownWorker
from holdfast.store.conformance.records import hostile
from holdfast.store.conformance.world import HOUR, OTHER_TASK, TASK, Subject, World, ids
from holdfast.store.port import HEARD_EVERY, Beat, ClaimRequest, Retention, Signal, Worker, WorkerKind, WorkerState, WorkerView

if TYPE_CHECKING:
    from uuid import UUID

SILENCE: Final = 100.0
"""After how many seconds without a sign of life these tests call a worker offline."""


async def beat(world: World, name: str = "one", counters: str = "{}") -> Signal:
    """Let a worker give a sign of life."""
    return await world.store.beat(Beat(worker=await world.worker(name), counters=counters))


class Registry(Subject):
    """Register, beat, retire, mark offline, disable and enable, drain, revoke."""

    # registering

    async def test_worker_is_shown_as_it_introduced_itself(self, world: World) -> None:
        worker = Worker(
            id=uuid4(),
            name="gpu-7",
            info='{"host": "x", "pid":  7}',
            kind=WorkerKind.REMOTE,
            version="1.2.3",
            slots=8,
            capabilities=("gpu", "arm"),
            owner="farm",
        )
        await world.store.register(worker)

        assert await world.store.workers() == [
            WorkerView(worker=worker, registered_at=(await world.store.workers())[0].registered_at)
        ]

    @hostile
    async def test_hostile_text_of_a_worker_comes_back_as_it_went_in(self, world: World, text: str) -> None:
        worker = Worker(id=uuid4(), name=text, info=text, version=text, capabilities=(text, "plain"), owner=text)
        await world.store.register(worker)
        await world.store.beat(Beat(worker=worker.id, counters=text))
        await world.store.disable(worker.id, by=text)

        view = (await world.store.workers())[0]

        assert (view.worker, view.counters, view.disabled_by) == (worker, text, text)

    async def test_worker_registered_again_changes_what_it_says_of_itself(self, world: World) -> None:
        claimed = await world.claimed()
        await beat(world, counters='{"done": 3}')
        before = await world.worker_view()
        changed = Worker(id=before.worker.id, name="renamed", info='{"host": "x"}', version="2", slots=4, capabilities=("a",))

        await world.store.register(changed)

        after = await world.worker_view()
        assert after.worker == changed
        assert (after.registered_at, after.counters) == (before.registered_at, '{"done": 3}')
        assert after.jobs == (claimed.job_id,)
        assert (await world.view(claimed.job_id)).worker_name == "renamed"

    async def test_worker_registered_again_is_online_and_stays_disabled(self, world: World) -> None:
        worker = await world.worker()
        await world.store.disable(worker, by="ops")
        await world.store.retire(worker)

        await world.store.register(Worker(id=worker, name="one"))

        view = await world.worker_view()
        assert view.offline_at is None
        assert (view.state, view.disabled_by) == (WorkerState.DISABLED, "ops")

    async def test_worker_registered_again_has_given_a_sign_of_life(self, world: World) -> None:
        worker = await world.worker()
        await beat(world)
        await world.store.rewind(2 * SILENCE)

        await world.store.register(Worker(id=worker, name="one"))

        assert await world.store.mark_offline(SILENCE) == []

    async def test_workers_are_listed_newest_first(self, world: World) -> None:
        for name in ("first", "second", "third"):
            await world.worker(name)
            await world.store.rewind(1)
        await beat(world, "first")
        await world.store.register(Worker(id=await world.worker("second"), name="second"))

        assert [view.worker.name for view in await world.store.workers()] == ["third", "second", "first"]
        assert [view.worker.name for view in await world.store.workers(limit=2)] == ["third", "second"]
        assert await world.store.workers(limit=0) == []

    async def test_list_of_workers_goes_on_behind_any_place_of_it(self, world: World) -> None:
        for name in ("one", "two", "three", "four", "five"):
            await world.worker(name)
            await world.store.rewind(10.0)
        for name in ("two", "five"):
            await world.store.retire(await world.worker(name))
            await world.store.rewind(10.0)
        listed = await world.store.workers()
        assert [view.worker.name for view in listed] == ["four", "three", "one", "five", "two"]
        for count, view in enumerate(listed, start=1):
            assert await world.store.workers(after=view.place) == listed[count:]
            assert await world.store.workers(after=view.place, limit=1) == listed[count : count + 1]
        some = [listed[1].worker.id, listed[4].worker.id]
        assert await world.store.workers(ids=some, after=listed[1].place) == listed[4:]
        assert await world.store.workers(ids=some, after=listed[3].place) == listed[4:]

    async def test_living_worker_is_listed_before_any_number_that_came_later_and_are_gone(self, world: World) -> None:
        await world.worker("old and living")
        for name in ("second", "third", "fourth"):
            await world.store.rewind(1)
            await world.worker(name)
        for name in ("third", "fourth", "second"):
            await world.store.rewind(1)
            await world.store.retire(await world.worker(name))

        listed = [view.worker.name for view in await world.store.workers()]
        assert listed == ["old and living", "second", "fourth", "third"], "who went last comes first of those that are gone"
        assert [view.worker.name for view in await world.store.workers(limit=2)] == listed[:2]

    async def test_workers_are_found_by_their_ids_however_many_came_since(self, world: World) -> None:
        gone, living = await world.worker("gone"), await world.worker("living")
        await world.store.retire(gone)
        await world.store.rewind(1)
        for name in ("third", "fourth"):
            await world.worker(name)
        strangers = [uuid4() for _ in range(600)]

        assert [view.worker.name for view in await world.store.workers(limit=1, ids=[gone])] == ["gone"]
        found = await world.store.workers(ids=[gone, *strangers, living, gone])
        assert [view.worker.name for view in found] == ["living", "gone"]
        assert await world.store.workers(limit=1, ids=[gone, living]) == found[:1]
        assert await world.store.workers(ids=strangers) == await world.store.workers(ids=[]) == []

    # signs of life

    async def test_worker_that_never_beat_has_no_heartbeat(self, world: World) -> None:
        view = await world.worker_view()

        assert (view.heartbeat_at, view.offline_at, view.disabled_at, view.counters) == (None, None, None, "{}")
        assert view.state is WorkerState.IDLE

    async def test_beat_notes_the_time_and_the_counters(self, world: World) -> None:
        await beat(world, counters='{"done": 1}')
        first = await world.worker_view()
        await world.store.rewind(HOUR)

        assert await beat(world, counters='{"done":  2}') == Signal(disabled=False)

        second = await world.worker_view()
        assert (first.counters, second.counters) == ('{"done": 1}', '{"done":  2}')
        assert first.heartbeat_at is not None
        assert second.heartbeat_at is not None
        assert second.heartbeat_at - first.heartbeat_at > timedelta(seconds=-60), "it beat now, not an hour ago"
        assert second.heartbeat_at - second.registered_at > timedelta(seconds=HOUR / 2), "the registration has aged"

    async def test_unknown_worker_may_not_beat(self, world: World) -> None:
        with pytest.raises(UnknownWorker):
            await world.store.beat(Beat(worker=uuid4()))

        assert await world.store.workers() == []

    async def test_worker_that_is_heard_of_without_a_beat_is_alive_and_keeps_its_counters(self, world: World) -> None:
        late, silent = await world.worker("late"), await world.worker("silent")
        await beat(world, "late", counters='{"claims": 1}')
        await world.store.rewind(2 * SILENCE)
        await world.store.mark_offline(SILENCE)

        await world.store.heard([late, uuid4()])

        views = {view.worker.id: view for view in await world.store.workers()}
        assert (views[late].state, views[silent].state) == (WorkerState.IDLE, WorkerState.OFFLINE)
        assert views[late].counters == '{"claims": 1}'
        assert await world.store.mark_offline(SILENCE) == []

    async def test_worker_that_was_heard_of_just_now_is_not_noted_again(self, world: World) -> None:
        worker = await world.worker()
        await world.store.heard([worker])
        assert (await world.worker_view()).heartbeat_at is None, "it has registered just now"
        await beat(world)
        before = (await world.worker_view()).heartbeat_at
        await world.store.heard([worker])
        assert (await world.worker_view()).heartbeat_at == before
        await world.store.rewind(HEARD_EVERY)
        await world.store.heard([worker])
        after = (await world.worker_view()).heartbeat_at
        assert before is not None
        assert after is not None
        assert after >= before, "rewinding moved the former back by as much"

    async def test_retired_worker_is_offline_at_once(self, world: World) -> None:
        worker = await world.worker()
        await beat(world)

        await world.store.retire(worker)
        first = await world.worker_view()
        await world.store.rewind(HOUR)
        await world.store.retire(worker)
        again = await world.worker_view()

        assert first.state is WorkerState.OFFLINE
        assert first.offline_at is not None
        assert again.offline_at == first.offline_at - timedelta(seconds=HOUR), "it is offline since it first retired"
        assert await world.store.mark_offline(SILENCE) == [], "who has retired is not found missing"

    async def test_worker_that_is_offline_for_long_is_listed_no_more_and_jobs_still_name_it(self, world: World) -> None:
        claimed = await world.claimed()
        await world.succeed(claimed)
        worker = (await world.worker_view()).worker.id
        await world.store.register(Worker(id=worker, name="one", info='{"host": "box"}', capabilities=("gpu",)))
        await world.store.retire(worker)
        await world.store.prune(Retention(workers=HOUR), limit=10)
        assert [view.worker.id for view in await world.store.workers()] == [worker]

        await world.store.rewind(2 * HOUR)
        await world.store.prune(Retention(), limit=10)
        assert [view.worker.id for view in await world.store.workers()] == [worker], "for ever, where nothing is said"
        await world.store.prune(Retention(workers=HOUR), limit=10)

        assert await world.store.workers() == []
        (known,) = await world.store.workers(ids=[worker])
        assert (known.worker.name, known.worker.info, known.worker.capabilities, known.counters) == ("one", "{}", (), "{}")
        (attempt,) = await world.store.attempts(claimed.job_id)
        assert (attempt.worker_id, attempt.worker_name) == (worker, "one")

        await beat(world)
        assert [view.worker.id for view in await world.store.workers()] == [worker], "it is back"

    async def test_worker_that_holds_a_job_or_was_disabled_stays_listed(self, world: World) -> None:
        await world.claimed()
        holder, disabled, gone = (
            (await world.worker_view()).worker.id,
            await world.worker("disabled"),
            await world.worker("gone"),
        )
        await world.store.disable(disabled, by="ann")
        for worker in (holder, disabled, gone):
            await world.store.retire(worker)
        await world.store.rewind(2 * HOUR)
        await world.store.prune(Retention(workers=HOUR), limit=10)

        assert {view.worker.id for view in await world.store.workers()} == {holder, disabled}

    async def test_unknown_worker_may_retire(self, world: World) -> None:
        await world.store.retire(uuid4())

        assert await world.store.workers() == []

    async def test_silent_worker_is_marked_offline_once(self, world: World) -> None:
        silent, alive = await world.worker("silent"), await world.worker("alive")
        await beat(world, "silent")
        await world.store.rewind(2 * SILENCE)
        await beat(world, "alive")

        assert await world.store.mark_offline(SILENCE) == [silent]
        assert await world.store.mark_offline(SILENCE) == []
        views = {view.worker.id: view.state for view in await world.store.workers()}
        assert views == {silent: WorkerState.OFFLINE, alive: WorkerState.IDLE}

    async def test_worker_that_never_beat_is_silent_since_its_registration(self, world: World) -> None:
        worker = await world.worker()
        assert await world.store.mark_offline(SILENCE) == []
        await world.store.rewind(2 * SILENCE)

        assert await world.store.mark_offline(SILENCE) == [worker]

    async def test_next_beat_clears_the_offline_mark(self, world: World) -> None:
        worker = await world.worker()
        await world.store.rewind(2 * SILENCE)
        await world.store.mark_offline(SILENCE)

        await beat(world)

        assert (await world.worker_view()).offline_at is None
        await world.store.rewind(2 * SILENCE)
        assert await world.store.mark_offline(SILENCE) == [worker], "it fell silent again, which is news again"

    async def test_of_several_who_look_for_silent_workers_one_is_told(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        workers = {await world.worker(f"silent {number}") for number in range(10)}
        await world.store.rewind(2 * SILENCE)

        told = await asyncio.gather(*(handle.mark_offline(SILENCE) for handle in handles))

        all_told = [worker for some in told for worker in some]
        assert len(all_told) == 10, f"ten workers fell silent, {len(all_told)} were told of"
        assert set(all_told) == workers

    async def test_offline_worker_keeps_its_leases(self, world: World) -> None:
        claimed = await world.claimed()
        await world.store.retire(await world.worker())

        assert await world.state(claimed.job_id) is State.RUNNING
        assert (await world.succeed(claimed)).accepted, "only the expiry of a lease decides anything"

    @pytest.mark.parametrize("counters", ["{}", '{"done": 3}', '{"concurrent_jobs": "many"}'])
    async def test_who_does_not_say_what_it_runs_is_idle_while_it_holds_less_than_it_could(
        self, world: World, counters: str
    ) -> None:
        able = Worker(id=uuid4(), name="able", slots=2, capabilities=("gpu",))
        await world.store.register(able)
        world.workers["able"], world.has["able"] = able.id, {"gpu"}
        await world.store.beat(Beat(worker=able.id, counters=counters))
        await world.enqueue(*world.jobs(3))
        (held,) = await world.claim(worker="able")
        half = await beat(world, "plain")
        await world.claim(worker="able")
        full = await beat(world, "plain")
        await world.store.beat(Beat(worker=able.id, counters='{"concurrent_jobs": 1}'))
        said = await beat(world, "plain")
        await world.store.beat(Beat(worker=able.id, counters=counters))
        await world.succeed(held)

        assert (half.idle, full.idle) == (("gpu",), ())
        assert said.idle == ("gpu",), "what it says itself counts"
        assert (await beat(world, "plain")).idle == ("gpu",)

    async def test_who_says_that_it_drains_is_left_nothing(self, world: World) -> None:
        able = await world.worker("able", {"gpu"})
        told = []
        for counters in ('{"draining": 0}', '{"draining": 1}', '{"draining": 1, "concurrent_jobs": 0}', "{}"):
            await world.store.beat(Beat(worker=able, counters=counters))
            told.append((await beat(world, "plain")).idle)

        assert told == [("gpu",), (), (), ("gpu",)]

    async def test_job_is_left_to_a_worker_that_it_prefers_and_claimed_at_once_when_that_one_is_full(
        self, world: World
    ) -> None:
        able = await world.worker("able", {"gpu"})
        await world.store.beat(Beat(worker=able))
        job = await world.create(prefers=("gpu",), prefer_for=HOUR)

        async def claims() -> list[UUID]:
            idle = frozenset((await beat(world, "plain")).idle)
            plain = await world.worker("plain")
            return ids(
                await world.store.claim(ClaimRequest(worker=plain, tasks=frozenset({TASK}), limit=1, idle=idle, look=True))
            )

        assert await claims() == [], "it is left to the one that has a free slot"
        await world.claimed("able", task=OTHER_TASK)
        assert await claims() == [job]

    # disabling

    async def test_disabled_worker_learns_it_with_its_next_beat(self, world: World) -> None:
        worker = await world.worker()

        assert await world.store.disable(worker, by="ops")

        view = await world.worker_view()
        assert (view.state, view.disabled_by) == (WorkerState.DISABLED, "ops")
        assert view.disabled_at is not None
        assert await beat(world) == Signal(disabled=True)
        assert await beat(world) == Signal(disabled=True), "a beat does not enable"

    async def test_disabled_worker_is_given_nothing_more_until_it_is_enabled(self, world: World) -> None:
        first, second, third = [await world.create() for _ in range(3)]
        assert [job.job_id for job in await world.claim()] == [first]

        await world.store.disable(await world.worker(), by="ops")

        assert await world.claim() == await world.claim(limit=5) == [], "also before it has heard of it"
        await world.store.enable(await world.worker())
        assert [job.job_id for job in await world.claim(limit=5)] == [second, third]

    async def test_revoked_worker_is_not_given_again_what_was_taken_from_it(self, world: World) -> None:
        job = await world.create()
        await world.claim()

        await world.store.revoke(await world.worker(), by="ops")

        assert await world.claim() == []
        assert [one.job_id for one in await world.claim(worker="another")] == [job]

    async def test_disabling_again_changes_who_not_since_when(self, world: World) -> None:
        worker = await world.worker()
        await world.store.disable(worker, by="first")
        first = (await world.worker_view()).disabled_at
        await world.store.rewind(HOUR)

        assert await world.store.disable(worker, by="second")

        view = await world.worker_view()
        assert first is not None
        assert (view.disabled_at, view.disabled_by) == (first - timedelta(seconds=HOUR), "second")

    async def test_enabled_worker_goes_on(self, world: World) -> None:
        worker = await world.worker()
        await world.store.disable(worker, by="ops")

        assert await world.store.enable(worker)
        assert await world.store.enable(worker), "enabling is repeatable"

        view = await world.worker_view()
        assert (view.state, view.disabled_at, view.disabled_by) == (WorkerState.IDLE, None, "")
        assert await beat(world) == Signal(disabled=False)

    async def test_unknown_worker_cannot_be_disabled_or_enabled(self, world: World) -> None:
        assert not await world.store.disable(uuid4(), by="ops")
        assert not await world.store.enable(uuid4())
        assert await world.store.workers() == []

    # draining

    async def test_draining_worker_learns_it_with_its_next_beat(self, world: World) -> None:
        worker = await world.worker()

        assert await world.store.drain(worker, by="ops")

        first = (await world.worker_view()).draining_at
        assert first is not None
        assert await beat(world) == Signal(drain=True)
        await world.store.rewind(HOUR)
        assert await world.store.drain(worker), "asking again is no error"
        assert (await world.worker_view()).draining_at == first - timedelta(seconds=HOUR)

    async def test_worker_that_registers_again_or_is_enabled_is_no_longer_draining(self, world: World) -> None:
        worker = await world.worker()
        await world.store.drain(worker)
        await world.store.register(Worker(id=worker, name="one"))
        registered = await beat(world)
        await world.store.drain(worker)
        await world.store.disable(worker)
        both = await beat(world)
        await world.store.enable(worker)

        assert (registered, both) == (Signal(), Signal(disabled=True, drain=True))
        assert await beat(world) == Signal()
        assert (await world.worker_view()).draining_at is None

    async def test_unknown_worker_can_neither_be_drained_nor_revoked(self, world: World) -> None:
        assert not await world.store.drain(uuid4())
        assert await world.store.revoke(uuid4()) is None
        assert await world.store.workers() == []

    # revoking

    async def test_revoked_worker_is_disabled_and_its_jobs_wait_again_in_front(self, world: World) -> None:
        await world.enqueue(*world.jobs(5))
        claims = await world.claim(3)
        other = await world.claim(1, worker="another")
        worker = await world.worker()

        released = await world.store.revoke(worker, by="ops")

        assert released == sorted(ids(claims))
        view = await world.worker_view()
        assert (view.state, view.disabled_by, view.running) == (WorkerState.DISABLED, "ops", 0)
        assert await world.store.holding(worker) == []
        assert [lease.job_id for lease in await world.store.holding(await world.worker("another"))] == ids(other)
        again = await world.claim(5, worker="another")
        assert ids(again)[:3] == ids(claims), "they are back at their old places"
        assert [(claim.attempt, claim.failures) for claim in again] == [(2, 0)] * 3 + [(1, 0)]
        await world.check_counts()

    async def test_revoked_attempt_is_recorded_as_released_by_who_revoked_it(self, world: World) -> None:
        claimed = await world.claimed()

        await world.store.revoke(await world.worker(), by="ops")

        (attempt,) = await world.store.attempts(claimed.job_id)
        line = (await world.store.events(claimed.job_id))[-1]
        assert (attempt.event, attempt.late) == (Event.RELEASE, False)
        assert attempt.error is not None
        assert attempt.error.code == "RELEASED"
        assert (line.event, line.state, line.actor, line.attempt) == (Event.RELEASE, State.READY, "ops", 1)
        await world.check_log(claimed.job_id)
        (audit,) = await world.store.audits(limit=5, actor="ops")
        assert audit.detail == "1 released"

    async def test_lapsed_lease_is_revoked_as_if_it_had_not_lapsed(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()

        await world.store.revoke(await world.worker(), by="ops")

        (attempt,) = await world.store.attempts(claimed.job_id)
        assert (attempt.event, attempt.late) == (Event.RELEASE, False)
        assert await world.store.reap(10) == []

    async def test_job_that_was_asked_to_stop_is_canceled_when_its_worker_is_revoked(self, world: World) -> None:
        claimed = await world.claimed(key="k")
        waiter = await world.waiter(claimed.job_id)
        await world.store.cancel([claimed.job_id], reason="enough")

        assert await world.store.revoke(await world.worker(), by="ops") == []

        view = await world.view(claimed.job_id)
        assert (view.state, view.error) == (State.CANCELED, Error(CANCELED, "enough"))
        assert await world.state(waiter) is not State.BLOCKED, "who waited for it has heard of it"
        await world.create(key="k")
        await world.check_log(claimed.job_id, waiter)

    async def test_revoking_again_finds_nothing_more(self, world: World) -> None:
        claimed = await world.claimed()
        worker = await world.worker()

        assert await world.store.revoke(worker) == [claimed.job_id]
        assert await world.store.revoke(worker) == []
        assert await world.attempts(claimed.job_id) == [(1, Event.RELEASE)]

    # what it holds

    async def test_worker_shows_the_jobs_it_holds(self, world: World) -> None:
        worker = Worker(id=uuid4(), name="two slots", slots=2)
        await world.store.register(worker)
        world.workers["two slots"] = worker.id
        await world.enqueue(*world.jobs(3))
        await world.claim(1, worker="another")
        seen = []
        claims = []
        for _ in range(2):
            claims += await world.claim(1, worker="two slots")
            view = await world.worker_view("two slots")
            seen.append((view.running, list(view.jobs), view.state))
        await world.succeed(claims[0])
        last = await world.worker_view("two slots")

        assert seen == [(1, ids(claims[:1]), WorkerState.ACTIVE), (2, sorted(ids(claims)), WorkerState.BUSY)]
        assert (last.running, list(last.jobs), last.state) == (1, ids(claims[1:]), WorkerState.ACTIVE)

    async def test_worker_shows_at_most_a_hundred_jobs_and_counts_all(self, world: World) -> None:
        await world.enqueue(*world.jobs(105))
        claims = await world.claim(105)

        view = await world.worker_view()

        assert view.running == 105
        assert list(view.jobs) == sorted(ids(claims))[:100]
