"""Keys, and the audit log: every operation that names somebody leaves one line, together with what it changes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.job import OnConflict
from holdfast.core.states import State
from holdfast.errors import BadJob, HoldfastError, QueueFull, StaleLease
from holdfast.store.conformance.bounds import HOSTILE
from holdfast.store.conformance.world import BOOM, HOUR, Subject, World
from holdfast.store.port import TEXT_LIMIT, Action, Answer, Audit, Enqueue, Key, Retention, Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.store.port import AuditView, Store

MINUTE: Final = 60.0


def key(number: int = 1, **fields: Any) -> Key:
    """Return a key to be kept."""
    return Key(**{"id": f"{number:012d}", "name": "ann", "role": Role.OPERATOR, "digest": f"{number:064x}", **fields})


async def the_key(world: World, number: int = 1) -> Key:
    """Return a key that is there."""
    (found,) = await world.store.keys([f"{number:012d}"])
    return found


async def lines(world: World, **options: Any) -> list[tuple[str, Action, tuple[str, ...], int, str]]:
    """Return the audit log, oldest first, without numbers and times."""
    found = await world.store.audits(**{"limit": 1000, **options})
    return [(line.actor, line.action, line.targets, line.count, line.detail) for line in reversed(found)]


async def _told(store: Store) -> set[str]:
    """Return the first job of every enqueue that the audit log tells of."""
    return {line.targets[0] for line in await store.audits(limit=1000, action=Action.ENQUEUE)}


async def _there(store: Store, ids: Iterable[UUID]) -> set[str]:
    """Return which of these jobs are there."""
    return {str(view.id) for view in await store.get(list(ids)) if view is not None}


async def _cancel(world: World, by: str) -> tuple[Action, object]:
    job_id = await world.create()
    await world.store.cancel([job_id], by=by, reason="enough")
    return Action.CANCEL, job_id


async def _complete(world: World, by: str) -> tuple[Action, object]:
    job_id = await world.create()
    await world.store.complete({job_id: "1"}, by=by)
    return Action.COMPLETE, job_id


async def _fail(world: World, by: str) -> tuple[Action, object]:
    job_id = await world.create()
    await world.store.fail({job_id: BOOM}, by=by)
    return Action.FAIL, job_id


async def _delete(world: World, by: str) -> tuple[Action, object]:
    job_id = await world.create()
    await world.store.delete([job_id], by=by)
    return Action.DELETE, job_id


async def _delete_chains(world: World, by: str) -> tuple[Action, object]:
    chain_id = await world.chain()
    await world.store.delete_chains([chain_id], by=by)
    return Action.DELETE_CHAINS, chain_id


async def _retry(world: World, by: str) -> tuple[Action, object]:
    job_id = await world.ended(State.FAILED)
    await world.store.reopen([job_id], by=by)
    return Action.RETRY, job_id


async def _emit(world: World, by: str) -> tuple[Action, object]:
    await world.store.emit("arrived", "1", by=by)
    return Action.EMIT, "arrived"


async def _pause(world: World, by: str) -> tuple[Action, object]:
    await world.store.pause("mail", by=by, reason="broken")
    return Action.PAUSE, "mail"


async def _resume(world: World, by: str) -> tuple[Action, object]:
    await world.store.resume("mail", by=by)
    return Action.RESUME, "mail"


async def _disable(world: World, by: str) -> tuple[Action, object]:
    worker = await world.worker()
    await world.store.disable(worker, by=by)
    return Action.DISABLE, worker


async def _enable(world: World, by: str) -> tuple[Action, object]:
    worker = await world.worker()
    await world.store.enable(worker, by=by)
    return Action.ENABLE, worker


async def _drain(world: World, by: str) -> tuple[Action, object]:
    worker = await world.worker()
    await world.store.drain(worker, by=by)
    return Action.DRAIN, worker


async def _revoke(world: World, by: str) -> tuple[Action, object]:
    worker = await world.worker()
    await world.store.revoke(worker, by=by)
    return Action.REVOKE_WORKER, worker


async def _add_key(world: World, by: str) -> tuple[Action, object]:
    await world.store.add_key(key(), by=by)
    return Action.ADD_KEY, key().id


async def _expire_key(world: World, by: str) -> tuple[Action, object]:
    await world.store.add_key(key())
    await world.store.expire_key(key().id, 5.0, by=by)
    return Action.EXPIRE_KEY, key().id


async def _rotate_key(world: World, by: str) -> tuple[Action, object]:
    await world.store.add_key(key())
    await world.store.rotate_key(key().id, key(2), 5.0, by=by)
    return Action.ROTATE_KEY, key().id


async def _revoke_key(world: World, by: str) -> tuple[Action, object]:
    await world.store.add_key(key())
    await world.store.revoke_key(key().id, by=by)
    return Action.REVOKE_KEY, key().id


STEERING: Final = [
    *(_cancel, _complete, _fail, _delete, _delete_chains, _retry, _emit, _pause, _resume),
    *(_disable, _enable, _drain, _revoke, _add_key, _expire_key, _rotate_key, _revoke_key),
]

ANN: Final = Audit(by="ann")
KINDS: Final[dict[str, Callable[[World], list[NewJob]]]] = {
    "one": lambda world: world.jobs(1),
    "alike": lambda world: world.jobs(3),
    "later": lambda world: world.jobs(3, delay=HOUR),
    "keyed": lambda world: [world.job(key=f"{number}") for number in range(3)],
    "of several queues": lambda world: [world.job(queue="a"), world.job(queue="b", priority=7), world.job()],
}
"""Jobs that a store may well create in ways of their own."""
each_kind = pytest.mark.parametrize("kind", KINDS)


async def _bad_job(world: World) -> tuple[type[HoldfastError], dict[str, Any]]:
    return BadJob, {"jobs": [world.job(), world.job(after=(uuid7(),))]}


async def _full_queue(world: World) -> tuple[type[HoldfastError], dict[str, Any]]:
    return QueueFull, {"jobs": world.jobs(3, queue="narrow"), "caps": {"narrow": 2}}


async def _lost_lease(world: World) -> tuple[type[HoldfastError], dict[str, Any]]:
    await world.create()
    held = (await world.claim())[0].lease
    await world.store.delete([held.job_id])
    return StaleLease, {"jobs": world.jobs(2), "under": held}


REFUSED: Final = [_bad_job, _full_queue, _lost_lease]

each_operation = pytest.mark.parametrize("steer", STEERING, ids=lambda steer: steer.__name__.strip("_"))


class Access(Subject):
    """Keys, the audit log, and what writes into it."""

    # keys

    async def test_key_comes_back_as_it_went_in_with_the_time_of_the_store(self, world: World) -> None:
        end = datetime(2090, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
        given = key(role=Role.WORKER, queues=("a", "b"), actions=(), expires_at=end, created_by="root")
        before = await world.store.now()

        await world.store.add_key(given, by="ann")

        kept = await the_key(world)
        assert kept.created_at is not None
        assert timedelta(0) <= kept.created_at - before < timedelta(minutes=1)
        assert kept == key(
            role=Role.WORKER, queues=("a", "b"), actions=(), expires_at=end, created_by="root", created_at=kept.created_at
        )

    async def test_key_knows_who_added_it_where_it_does_not_say_so_itself(self, world: World) -> None:
        await world.store.add_key(key(), by="ann")

        assert (await the_key(world)).created_by == "ann"

    async def test_key_that_is_added_again_stays_as_it_is(self, world: World) -> None:
        await world.store.add_key(key())
        first = await the_key(world)

        await world.store.add_key(key(name="somebody else"))

        assert await the_key(world) == first
        assert await world.store.keys() == [first]

    async def test_id_of_another_key_is_refused(self, world: World) -> None:
        await world.store.add_key(key())
        first = await the_key(world)

        with pytest.raises(BadJob):
            await world.store.add_key(key(digest="f" * 64), by="ann")

        assert await world.store.keys() == [first]
        assert await lines(world) == []

    async def test_keys_are_listed_newest_first(self, world: World) -> None:
        assert await world.store.keys() == []
        for number in (2, 3, 1):
            await world.store.add_key(key(number))
            await world.store.rewind(1)

        assert [one.id[-1] for one in await world.store.keys()] == ["1", "3", "2"]

    async def test_keys_are_found_by_their_ids(self, world: World) -> None:
        for number in (2, 3, 1):
            await world.store.add_key(key(number))
            await world.store.rewind(1)
        await world.store.revoke_key(key(3).id)

        found = await world.store.keys(["9" * 12, key(2).id, key(3).id, key(2).id, "no id", "\0", ""])

        assert [one.id[-1] for one in found] == ["3", "2"]
        assert await world.store.keys([]) == []

    async def test_key_is_made_to_end_and_never_later_than_it_would_have(self, world: World) -> None:
        now = await world.store.now()
        await world.store.add_key(key())
        ends = []
        for within in (HOUR, 2 * HOUR, MINUTE, 0.0):
            assert await world.store.expire_key(key().id, within)
            ends.append((await the_key(world)).expires_at)

        assert ends[0] is not None
        assert timedelta(seconds=HOUR) <= ends[0] - now < timedelta(seconds=HOUR + MINUTE)
        assert ends[1] == ends[0]
        assert ends[2] is not None
        assert ends[2] < ends[0]
        assert ends[3] is not None
        assert ends[3] < ends[2]
        assert not await world.store.expire_key("9" * 12, 1.0)

    @pytest.mark.parametrize("within", [-1.0, float("nan"), float("inf")])
    async def test_key_ends_within_a_number_of_seconds_that_is_one(self, world: World, within: float) -> None:
        await world.store.add_key(key())

        with pytest.raises(BadJob):
            await world.store.expire_key(key().id, within, by="ann")
        with pytest.raises(BadJob):
            await world.store.rotate_key(key().id, key(2), within, by="ann")

        assert await lines(world) == []
        assert len(await world.store.keys()) == 1

    async def test_key_takes_over_from_another_which_ends_a_while_later(self, world: World) -> None:
        await world.store.add_key(key())
        now = await world.store.now()

        assert await world.store.rotate_key(key().id, key(2, queues=("a",)), HOUR, by="ann")

        old, new = await the_key(world), await the_key(world, 2)
        assert old.expires_at is not None
        assert timedelta(seconds=HOUR) <= old.expires_at - now < timedelta(seconds=HOUR + MINUTE)
        assert (new.queues, new.expires_at, new.created_by) == (("a",), None, "ann")
        assert await lines(world) == [
            ("ann", Action.ROTATE_KEY, (old.id,), 1, f"operator ann: {new.id} takes over, this one ends within 3600 s")
        ]

    async def test_key_that_others_take_over_from_ends_no_later_than_it_would_have(self, world: World) -> None:
        end = await world.store.now() + timedelta(seconds=MINUTE)
        await world.store.add_key(key(expires_at=end))

        assert await world.store.rotate_key(key().id, key(2), HOUR)

        assert (await the_key(world)).expires_at == end

    @pytest.mark.parametrize("within", [HOUR, 0.0])
    async def test_rotation_that_is_repeated_leaves_what_the_first_has_left(self, world: World, within: float) -> None:
        await world.store.add_key(key())
        assert await world.store.rotate_key(key().id, key(2), within)
        first = await world.store.keys()

        assert await world.store.rotate_key(key().id, key(2), within)

        assert await world.store.keys() == first

    @pytest.mark.parametrize("flaw", ["unknown", "revoked", "expired"])
    async def test_key_that_lets_nobody_in_is_not_rotated(self, world: World, flaw: str) -> None:
        if flaw != "unknown":
            await world.store.add_key(key())
        if flaw == "revoked":
            await world.store.revoke_key(key().id)
        if flaw == "expired":
            await world.store.expire_key(key().id, 0.0)
        before = await world.store.keys()

        assert not await world.store.rotate_key(key().id, key(2), HOUR, by="ann")

        assert await world.store.keys() == before
        assert await lines(world) == []

    async def test_rotation_to_the_id_of_another_key_is_refused_and_ends_nothing(self, world: World) -> None:
        await world.store.add_key(key())
        await world.store.add_key(key(2))
        before = await world.store.keys()

        for taken in (key(2, digest="f" * 64), key(digest="f" * 64), key()):
            with pytest.raises(BadJob):
                await world.store.rotate_key(key().id, taken, HOUR, by="ann")

        assert await world.store.keys() == before
        assert await lines(world) == []

    @pytest.mark.parametrize("key_id", ["", "nul \0", "\ud800", "x" * 10_000])
    async def test_what_cannot_be_the_id_of_a_key_is_that_of_none(self, world: World, key_id: str) -> None:
        assert await world.store.keys([key_id]) == []
        assert not await world.store.expire_key(key_id, 1.0, by="ann")
        assert not await world.store.rotate_key(key_id, key(), 1.0, by="ann")
        assert not await world.store.revoke_key(key_id, by="ann")
        await world.store.use_key(key_id)
        assert await world.store.audits(limit=5, actor=key_id) == []

    async def test_first_revocation_of_a_key_stands(self, world: World) -> None:
        await world.store.add_key(key())
        assert await world.store.revoke_key(key().id, by="first")
        first = await the_key(world)
        await world.store.rewind(HOUR)

        assert await world.store.revoke_key(key().id, by="second")

        again = await the_key(world)
        assert first.revoked_at is not None
        assert (again.revoked_at, again.revoked_by) == (first.revoked_at - timedelta(seconds=HOUR), "first")
        assert not await world.store.revoke_key("9" * 12, by="ann")

    async def test_use_of_a_key_is_noted_once_a_minute(self, world: World) -> None:
        await world.store.add_key(key())
        assert (await the_key(world)).used_at is None
        await world.store.use_key(key().id)
        first = (await the_key(world)).used_at
        await world.store.use_key(key().id)
        same = (await the_key(world)).used_at
        await world.store.rewind(MINUTE)
        await world.store.use_key(key().id)
        later = (await the_key(world)).used_at
        await world.store.use_key("9" * 12)

        assert first is not None
        assert same == first
        assert later is not None
        assert later > first, "it was used now, not a minute ago"

    # the audit log

    @each_operation
    async def test_steering_that_names_somebody_writes_one_line(
        self, world: World, steer: Callable[[World, str], Awaitable[tuple[Action, object]]]
    ) -> None:
        action, target = await steer(world, "ann")

        found = await world.store.audits(limit=10)

        assert [(line.actor, line.action, line.targets, line.count) for line in found] == [("ann", action, (str(target),), 1)]
        assert abs(found[0].at - await world.store.now()) < timedelta(minutes=1)

    @each_operation
    async def test_steering_that_names_nobody_writes_no_line(
        self, world: World, steer: Callable[[World, str], Awaitable[tuple[Action, object]]]
    ) -> None:
        await steer(world, "")

        assert await lines(world) == []

    async def test_line_about_many_jobs_counts_them_and_what_was_not_done(self, world: World) -> None:
        done, waiting = await world.ended(State.FAILED), await world.create()
        unknown = [uuid7() for _ in range(150)]

        answers = await world.store.cancel([done, waiting, *unknown], by="ann", reason="too many")

        assert answers[:2] == [Answer.REFUSED, Answer.DONE]
        ((_, _, targets, count, detail),) = await lines(world)
        assert targets == tuple(str(one) for one in (done, waiting, *unknown[:98]))
        assert count == 152
        assert detail == "too many; 1 refused, 150 unknown"

    async def test_job_that_is_named_twice_counts_twice(self, world: World) -> None:
        job_id = await world.create()

        await world.store.cancel([job_id, job_id], by="ann")

        assert await lines(world) == [("ann", Action.CANCEL, (str(job_id),) * 2, 2, "1 refused")]

    async def test_cancel_of_what_was_asked_to_stop_before_changes_nothing_and_writes_no_line(self, world: World) -> None:
        first, second = await world.claimed(), await world.claimed()
        await world.store.cancel([first.job_id], by="ann", reason="enough")
        again = await world.store.cancel([first.job_id], by="bob", reason="me too")
        both = await world.store.cancel([first.job_id, second.job_id], by="bob")

        assert (again, both) == ([Answer.REQUESTED], [Answer.REQUESTED] * 2)
        assert await lines(world) == [
            ("ann", Action.CANCEL, (str(first.job_id),), 1, "enough"),
            ("bob", Action.CANCEL, (str(first.job_id), str(second.job_id)), 2, "1 asked before"),
        ]

    async def test_repetition_writes_its_own_line(self, world: World) -> None:
        for _ in range(2):
            await world.store.emit("arrived", "1", by="ann")
            await world.store.pause("mail", by="ann", reason="why")

        assert await lines(world) == [
            ("ann", Action.EMIT, ("arrived",), 1, ""),
            ("ann", Action.PAUSE, ("mail",), 1, "why"),
            ("ann", Action.EMIT, ("arrived",), 1, "emitted before"),
            ("ann", Action.PAUSE, ("mail",), 1, "why"),
        ]

    async def test_what_is_refused_as_a_whole_writes_no_line(self, world: World) -> None:
        chain_id = await world.chain()
        await world.waiter(chain_id)

        needed = await world.store.delete_chains([chain_id], by="ann")
        missing = await world.store.delete_chains([chain_id, uuid7()], by="ann")
        with pytest.raises(BadJob):
            await world.store.pause("", by="ann")
        with pytest.raises(BadJob):
            await world.store.emit("arrived", "\0", by="ann")

        assert (needed.answer, missing.answer) == (Answer.NEEDED, Answer.NOT_FOUND)
        assert await world.state(chain_id) is State.READY
        assert await lines(world) == []

    async def test_what_is_done_to_nothing_writes_no_line(self, world: World) -> None:
        nobody = uuid4()

        assert await world.store.cancel([], by="ann") == []
        assert await world.store.reopen([], by="ann") == []
        assert (await world.store.delete_chains([], by="ann")).answer is Answer.DONE
        assert not await world.store.disable(nobody, by="ann")
        assert not await world.store.enable(nobody, by="ann")
        assert not await world.store.drain(nobody, by="ann")
        assert await world.store.revoke(nobody, by="ann") is None
        assert not await world.store.expire_key("9" * 12, 1.0, by="ann")
        assert not await world.store.rotate_key("9" * 12, key(), 1.0, by="ann")
        assert not await world.store.revoke_key("9" * 12, by="ann")
        assert await lines(world) == []

    # enqueues

    @each_kind
    async def test_enqueue_that_names_somebody_writes_one_line_with_its_jobs(self, world: World, kind: str) -> None:
        jobs = KINDS[kind](world)

        answers = await world.store.enqueue(jobs, audit=ANN)

        assert [answer.status for answer in answers] == [Enqueue.CREATED] * len(jobs)
        assert all(view is not None for view in await world.store.get([job.id for job in jobs]))
        ids = tuple(str(job.id) for job in jobs)
        assert await lines(world) == [("ann", Action.ENQUEUE, ids, len(jobs), f"{len(jobs)} {jobs[0].task}")]
        assert abs((await world.store.audits(limit=1))[0].at - await world.store.now()) < timedelta(minutes=1)

    @each_kind
    async def test_enqueue_that_names_nobody_writes_no_line(self, world: World, kind: str) -> None:
        await world.store.enqueue(KINDS[kind](world))
        await world.store.enqueue(KINDS[kind](world), audit=Audit(by=""))

        assert await lines(world) == []

    async def test_line_about_an_enqueue_counts_tasks_names_the_first_jobs_and_never_their_args(self, world: World) -> None:
        mails = world.jobs(12, task="mail", args='{"to": "a secret"}')
        others = [world.job(task=f"task {number}") for number in range(15)]

        await world.store.enqueue([*others[:1], *mails, *others[1:]], audit=Audit(by="ann", detail="by hand"))

        ((_, _, targets, count, detail),) = await lines(world)
        assert targets == tuple(str(job.id) for job in (others[0], *mails[:9]))
        assert count == 27
        first = ", ".join(f"1 task {number}" for number in range(9))
        assert detail == f"by hand; 12 mail, {first}, and 6 more tasks"

    async def test_line_about_an_enqueue_may_be_of_another_kind_and_about_something_else(self, world: World) -> None:
        job = world.job()

        await world.store.enqueue([job], audit=Audit(by="ann", action=Action.FIRE, targets=("nightly",), detail="as it is"))

        assert await lines(world) == [("ann", Action.FIRE, ("nightly",), 1, f"as it is; 1 {job.task}")]

    async def test_enqueue_under_a_lease_and_below_a_cap_writes_its_line(self, world: World) -> None:
        await world.create()
        held = (await world.claim())[0].lease
        jobs = world.jobs(2)

        await world.store.enqueue(jobs, under=held, audit=ANN)
        await world.store.enqueue(world.jobs(1, queue="narrow"), caps={"narrow": 1}, audit=ANN)

        assert [(actor, count) for actor, _, _, count, _ in await lines(world)] == [("ann", 2), ("ann", 1)]

    @pytest.mark.parametrize("refuse", REFUSED, ids=lambda refuse: refuse.__name__.strip("_"))
    async def test_enqueue_that_is_refused_writes_neither_line_nor_jobs(
        self, world: World, refuse: Callable[[World], Awaitable[tuple[type[HoldfastError], dict[str, Any]]]]
    ) -> None:
        error, asked = await refuse(world)
        ids = [job.id for job in asked["jobs"]]

        with pytest.raises(error):
            await world.store.enqueue(**asked, audit=ANN)

        assert await world.store.get(ids) == [None] * len(ids)
        assert await lines(world) == []

    @each_kind
    async def test_enqueue_that_is_repeated_writes_one_line(self, world: World, kind: str) -> None:
        jobs = KINDS[kind](world)
        await world.store.enqueue(jobs, audit=ANN)
        await world.store.enqueue(jobs, audit=ANN)

        answers = await world.store.enqueue(jobs, audit=ANN)

        assert {answer.status for answer in answers} == {Enqueue.REPEATED}
        assert len(await lines(world)) == 1

    async def test_enqueue_that_creates_some_says_what_became_of_the_others(self, world: World) -> None:
        known, holder, new = world.job(), world.job(key="taken"), world.job()
        await world.store.enqueue([known, holder])

        await world.store.enqueue([known, new, world.job(key="taken"), new], audit=ANN)

        detail = f"1 {new.task}; 1 existing, 2 repeated"
        assert await lines(world) == [("ann", Action.ENQUEUE, (str(new.id),), 1, detail)]

    async def test_taken_key_writes_no_line_and_one_that_is_taken_over_does(self, world: World) -> None:
        await world.create(key="taken")
        await world.store.enqueue([world.job(key="taken")], audit=ANN)
        assert await lines(world) == []

        replacing = world.job(key="taken", on_conflict=OnConflict.REPLACE)
        await world.store.enqueue([replacing], audit=ANN)

        assert [targets for _, _, targets, _, _ in await lines(world)] == [(str(replacing.id),)]

    @each_kind
    async def test_line_about_an_enqueue_and_its_jobs_appear_at_once(self, world: World, kind: str) -> None:
        other = await world.handle()
        calls = [KINDS[kind](world) for _ in range(1 if kind == "keyed" else 10)]
        first = {str(jobs[0].id): jobs[0].id for jobs in calls}
        enqueuing = asyncio.gather(*(world.store.enqueue(jobs, audit=ANN) for jobs in calls))
        while not enqueuing.done():
            told = await _told(other)
            there = await _there(other, first.values())
            assert told <= there, "a line tells of a job that is not there"
            assert there <= await _told(other), "a job is there of which no line tells"
            await asyncio.sleep(0)
        await enqueuing

        assert await _told(other) == set(first)

    # what goes, and what stands

    async def test_old_lines_about_enqueues_go_and_all_others_stand(self, world: World) -> None:
        await world.store.pause("mail", by="ann")
        await world.store.enqueue([world.job()], audit=Audit(by="ann", action=Action.FIRE, targets=("nightly",)))
        await world.store.enqueue(world.jobs(1), audit=ANN)
        await world.store.rewind(HOUR)
        await world.store.enqueue(world.jobs(2), audit=ANN)
        before = [line.no for line in await world.store.audits(limit=10)]

        await world.store.prune(Retention(), limit=10)
        assert len(await lines(world)) == 4, "without a retention, everything is kept"
        await world.store.prune(Retention(enqueues=MINUTE), limit=0)

        assert [(action, count) for _, action, _, count, _ in await lines(world)] == [
            (Action.PAUSE, 1),
            (Action.FIRE, 1),
            (Action.ENQUEUE, 2),
        ]
        await world.store.rewind(HOUR)
        await world.store.prune(Retention(enqueues=MINUTE), limit=10)
        await world.store.enqueue(world.jobs(1), audit=ANN)
        newest = (await world.store.audits(limit=1))[0]
        assert newest.no > max(before), "a number is never given twice"

    async def test_prune_by_somebody_writes_a_line_where_it_deletes_anything(self, world: World) -> None:
        ended = [await world.ended(State.SUCCEEDED) for _ in range(2)]
        await world.store.emit("arrived", "1")
        await world.store.enqueue(world.jobs(1), audit=ANN)
        await world.store.rewind(HOUR)
        old = Retention(succeeded=MINUTE, signals=MINUTE, enqueues=MINUTE)

        assert (await world.store.prune(old, limit=10, by="bob")).count == 2
        assert (await world.store.prune(old, limit=10, by="bob")).count == 0

        assert await world.store.get(ended) == [None, None]
        assert await lines(world) == [("bob", Action.PRUNE, (), 2, "2 jobs, 1 signals, 1 lines about enqueues")]

    async def test_prune_by_nobody_writes_no_line(self, world: World) -> None:
        await world.ended(State.SUCCEEDED)
        await world.store.rewind(HOUR)

        assert (await world.store.prune(Retention(succeeded=MINUTE), limit=10)).count == 1
        assert await lines(world) == []

    # notes

    async def test_note_writes_what_is_no_operation_of_the_store(self, world: World) -> None:
        await world.store.note(Action.LOGIN, by="ann")
        await world.store.note(Action.FIRE, ["nightly", "hourly"], by="bob", detail="by hand")
        await world.store.note(Action.LOGIN_FAILED, by="")

        assert await lines(world) == [
            ("ann", Action.LOGIN, (), 0, ""),
            ("bob", Action.FIRE, ("nightly", "hourly"), 2, "by hand"),
            ("", Action.LOGIN_FAILED, (), 0, ""),
        ]

    async def test_hostile_words_in_the_audit_log_are_cleaned_and_cut(self, world: World) -> None:
        await world.store.note(Action.LOGIN, [HOSTILE, "plain"], by=HOSTILE, detail=HOSTILE)

        (line,) = await world.store.audits(limit=10)

        assert 0 < len(line.actor) <= TEXT_LIMIT
        assert 0 < len(line.detail) <= TEXT_LIMIT
        assert "\0" not in line.actor + line.detail + "".join(line.targets)
        assert line.targets[1] == "plain"

    async def test_lines_are_found_by_actor_action_and_cursor_newest_first(self, world: World) -> None:
        for actor, action in (("ann", Action.LOGIN), ("bob", Action.LOGIN), ("ann", Action.LOGOUT), ("ann", Action.LOGIN)):
            await world.store.note(action, by=actor)
        found = await world.store.audits(limit=2**40)
        numbers = [line.no for line in found]

        async def shown(**options: Any) -> list[int]:
            given: list[AuditView] = await world.store.audits(**{"limit": 10, **options})
            return [numbers.index(line.no) for line in given]

        assert numbers == sorted(numbers, reverse=True)
        assert await shown(limit=2) == [0, 1]
        assert await shown(before=numbers[1]) == [2, 3]
        assert await shown(actor="ann") == [0, 1, 3]
        assert await shown(action=Action.LOGIN) == [0, 2, 3]
        assert await shown(actor="ann", action=Action.LOGIN, before=numbers[0]) == [3]
        assert await shown(actor="nobody") == []
        assert await shown(limit=0) == []
        assert await shown(limit=-1) == []
        assert await shown(before=2**80) == [0, 1, 2, 3]
        assert await shown(before=-(2**80)) == []

    async def test_concurrent_lines_all_arrive_under_numbers_of_their_own(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]

        await asyncio.gather(*(handles[n % 4].pause("mail", by=f"{n}") for n in range(20)))

        found = await world.store.audits(limit=100)
        assert sorted(int(line.actor) for line in found) == list(range(20))
        assert len({line.no for line in found}) == 20
