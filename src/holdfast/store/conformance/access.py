"""Keys, and the audit log: every steering operation that names somebody leaves one line, and nothing takes it away."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.states import State
from holdfast.errors import BadJob
from holdfast.store.conformance.bounds import HOSTILE
from holdfast.store.conformance.world import BOOM, HOUR, Subject, World
from holdfast.store.port import TEXT_LIMIT, Action, Answer, Key, Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.store.port import AuditView

MINUTE: Final = 60.0


def key(number: int = 1, **fields: Any) -> Key:
    """Return a key to be kept."""
    return Key(**{"id": f"{number:012d}", "name": "ann", "role": Role.OPERATOR, "digest": f"{number:064x}", **fields})


async def the_key(world: World, number: int = 1) -> Key:
    """Return a key that is there."""
    found = await world.store.key(f"{number:012d}")
    assert found is not None
    return found


async def lines(world: World, **options: Any) -> list[tuple[str, Action, tuple[str, ...], int, str]]:
    """Return the audit log, oldest first, without numbers and times."""
    found = await world.store.audits(**{"limit": 1000, **options})
    return [(line.actor, line.action, line.targets, line.count, line.detail) for line in reversed(found)]


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


async def _revoke_key(world: World, by: str) -> tuple[Action, object]:
    await world.store.add_key(key())
    await world.store.revoke_key(key().id, by=by)
    return Action.REVOKE_KEY, key().id


STEERING: Final = [
    *(_cancel, _complete, _fail, _delete, _delete_chains, _retry, _emit, _pause, _resume),
    *(_disable, _enable, _drain, _revoke, _add_key, _expire_key, _revoke_key),
]
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
        assert await world.store.key("9" * 12) is None

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

        assert await lines(world) == []

    @pytest.mark.parametrize("key_id", ["", "nul \0", "\ud800", "x" * 10_000])
    async def test_what_cannot_be_the_id_of_a_key_is_that_of_none(self, world: World, key_id: str) -> None:
        assert await world.store.key(key_id) is None
        assert not await world.store.expire_key(key_id, 1.0, by="ann")
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
        assert not await world.store.revoke_key("9" * 12, by="ann")
        assert await lines(world) == []

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
