"""What is special to the memory store: handles that share data, nothing of it given away, one road for every state."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from uuid_utils.compat import uuid7

import holdfast.store.memory
from holdfast.core.job import NewJob, OnConflict, Policy, Unique
from holdfast.core.lease import Hold, Lease
from holdfast.core.outcome import Error, Failed, Succeeded
from holdfast.core.retry import Retry
from holdfast.core.settle import Write, settle
from holdfast.core.states import Event, State
from holdfast.errors import CENTURY, Aborted, BadJob, BadSetting, KeyBusy, QueueFull, StaleLease
from holdfast.store.memory import MemoryData, MemoryStore
from holdfast.store.port import (
    Answer,
    ClaimRequest,
    Firing,
    JobFilter,
    LogLine,
    Progress,
    Schedule,
    Settled,
    Settlement,
    Store,
    Worker,
)
from holdfast.store.replay import replay
from holdfast.system import SystemEnvironment

TASK = "mail.welcome"
BOOM = Error("BOOM", "it broke")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SystemEnvironment())


async def request(store: Store, limit: int = 1) -> ClaimRequest:
    worker = Worker(id=uuid4(), name="one")
    await store.register(worker)
    return ClaimRequest(worker=worker.id, tasks=frozenset({TASK}), limit=limit)


def job(**fields: object) -> NewJob:
    return NewJob(**{"id": uuid7(), "task": TASK, "policy": Policy(Retry(max_attempts=2, jitter=0)), **fields})  # type: ignore[arg-type]


async def test_a_job_lives_its_life_on_two_handles(store: MemoryStore) -> None:
    other: Store = MemoryStore(SystemEnvironment(), store.data)
    await store.open()
    await other.open()
    new = job(delay=60)
    await store.enqueue([new])
    asked = await request(other)
    assert await other.claim(asked) == []

    await store.rewind(61)
    assert (await other.promote(10)).count == 1
    (first,) = await other.claim(asked)
    assert await store.claim(asked) == []
    assert await store.progress([Progress(first.lease, 50, "rendering")]) == [Settled.APPLIED]
    write = settle(Failed(BOOM), first.policy.retry, first.failures, first.claimed_at, lambda: 0.5)
    assert await store.settle([Settlement(first.lease, write)]) == [Settled.APPLIED]
    assert await other.settle([Settlement(first.lease, write)]) == [Settled.REPEATED]

    await other.rewind(11)
    await store.promote(10)
    (second,) = await store.claim(asked)
    assert [held.hold for held in await other.extend([first.lease, second.lease])] == [Hold.TAKEN, Hold.HELD]
    write = settle(Succeeded('"sent"'), second.policy.retry, second.failures, second.claimed_at, lambda: 0.5)
    assert await other.settle([Settlement(first.lease, write), Settlement(second.lease, write)]) == [
        Settled.REPEATED,
        Settled.APPLIED,
    ]

    (view,) = await store.get([new.id])
    assert view is not None
    assert (view.state, view.attempt, view.failures, view.result) == (State.SUCCEEDED, 2, 1, '"sent"')
    assert (view.progress, view.step, view.worker_name) == (50, "rendering", "one")
    log = await store.events(new.id)
    assert [line.event for line in log] == [
        Event.ENQUEUE_LATER,
        Event.PROMOTE,
        Event.CLAIM,
        Event.RETRY_LATER,
        Event.PROMOTE,
        Event.CLAIM,
        Event.SUCCEED,
    ]
    assert replay(log) is State.SUCCEEDED
    await store.close()
    await other.close()


async def test_two_stores_without_shared_data_know_nothing_of_each_other(store: MemoryStore) -> None:
    new = job()
    await store.enqueue([new])
    assert await MemoryStore(SystemEnvironment()).get([new.id]) == [None]


async def test_each_handle_counts_its_own_claims() -> None:
    data = MemoryData()
    stores = [MemoryStore(SystemEnvironment(), data) for _ in range(2)]
    asked = await request(stores[0])
    for _ in range(9):
        await stores[0].claim(asked)
    await stores[0].enqueue([job(priority=0)])
    await stores[0].rewind(1)
    await stores[0].enqueue([job(priority=9)])
    assert [claim.priority for claim in await stores[1].claim(asked)] == [9]
    await stores[0].enqueue([job(priority=9)])
    assert [claim.priority for claim in await stores[0].claim(asked)] == [0]


async def test_what_was_given_out_does_not_change_afterwards(store: MemoryStore) -> None:
    new = job()
    await store.enqueue([new])
    view, log, stats, queues = await store.get([new.id]), await store.events(new.id), await store.stats(), await store.queues()
    await store.cancel([new.id])
    assert [one and one.state for one in view] == [State.READY]
    assert len(log) == 1
    assert stats.count(State.READY) == 1
    assert queues[0].counts == {State.READY: 1}
    log.clear()
    assert len(await store.events(new.id)) == 2


async def test_a_refused_enqueue_leaves_nothing_behind(store: MemoryStore) -> None:
    good, bad = job(), job(after=(uuid7(),))
    with pytest.raises(BadJob, match=r"after\[0\]"):
        await store.enqueue([good, bad])
    assert await store.get([good.id]) == [None]
    assert (await store.stats()).count() == 0


async def test_a_full_queue_leaves_nothing_behind(store: MemoryStore) -> None:
    held = job(unique=Unique(key="k", scope="s"))
    await store.enqueue([held])
    replacing = job(unique=Unique(key="k", scope="s", on_conflict=OnConflict.REPLACE))
    with pytest.raises(QueueFull):
        await store.enqueue([replacing, job()], caps={"default": 1})
    assert [view and view.state for view in await store.get([held.id, replacing.id])] == [State.READY, None]
    assert [line.event for line in await store.events(held.id)] == [Event.ENQUEUE]
    assert (await store.enqueue([replacing], caps={"default": 1}))[0].job_id == replacing.id


async def test_what_was_shown_of_workers_schedules_and_logs_does_not_change_afterwards(store: MemoryStore) -> None:
    asked = await request(store)
    at = await store.now()
    await store.schedule([Schedule(name="s", task=TASK, cron="* * * * *", timezone="UTC", next_at=at)])
    await store.enqueue([job()])
    (claim,) = await store.claim(asked)
    await store.log([LogLine(lease=claim.lease, message="one")])
    workers, schedules, log = await store.workers(), await store.schedules(), await store.logs(claim.job_id, limit=10)
    await store.retire(asked.worker)
    await store.fire(Firing(name="s", slot=at, next_at=at + timedelta(hours=1), job=None))
    await store.log([LogLine(lease=claim.lease, message="two")])
    await store.rewind(60)
    assert (workers[0].offline_at, schedules[0].schedule.next_at) == (None, at)
    assert [line.message for line in log] == ["one"]


async def test_a_write_that_settles_nothing_is_refused_before_anything_is_written(store: MemoryStore) -> None:
    await store.enqueue([job(), job()])
    claims = await store.claim(await request(store, 2))
    writes = [Write(Event.SUCCEED, 0, result="1"), Write(Event.DELETE, 0)]
    with pytest.raises(ValueError, match="does not settle"):
        await store.settle([Settlement(claim.lease, write) for claim, write in zip(claims, writes, strict=True)])
    assert (await store.stats()).count(State.RUNNING) == 2


async def test_ten_thousand_waiters_in_a_row_end_with_their_first_blocker(store: MemoryStore) -> None:
    jobs = [job()]
    for _ in range(10_000):
        jobs.append(job(after=(jobs[-1].id,)))
    await store.enqueue(jobs)
    assert await store.fail({jobs[0].id: BOOM}) == [Answer.DONE]
    assert (await store.stats()).count(State.FAILED) == len(jobs)
    assert not store.data.waiters


async def test_the_longest_rest_of_a_policy_does_not_leave_the_calendar(store: MemoryStore) -> None:
    await store.enqueue([job(policy=Policy(Retry(initial=CENTURY, max=CENTURY)))])
    (claim,) = await store.claim(await request(store))
    write = settle(Failed(BOOM), claim.policy.retry, 0, claim.claimed_at, lambda: 0.5)
    assert await store.settle([Settlement(claim.lease, write)]) == [Settled.APPLIED]
    assert [view and view.state for view in await store.get([claim.job_id])] == [State.SCHEDULED]


# -- transactions: what changed before the commit ----------------------------------------------------------------------------


async def test_a_transaction_has_no_sql(store: MemoryStore) -> None:
    transaction = await store.begin()
    assert transaction.connection is None
    with pytest.raises(BadSetting, match="no SQL"):
        await transaction.execute("SELECT 1", 42)


async def test_a_lease_lost_before_the_commit_refuses_all_of_it(store: MemoryStore) -> None:
    await store.enqueue([job(lease=1.0)])
    (claim,) = await store.claim(await request(store))
    child = job()
    for settles in (True, False):
        transaction = await store.begin()
        await transaction.enqueue([child])
        if settles:
            answer = await transaction.settle(Settlement(claim.lease, Write(Event.SUCCEED, 0, result="1")))
        else:
            answer = await transaction.prove(claim.lease)
        assert answer is Settled.APPLIED
        await store.complete({claim.job_id: "2"})
        with pytest.raises(StaleLease, match="nothing was committed"):
            await transaction.commit()
        assert await store.get([child.id]) == [None]
        await store.reopen([claim.job_id])
        (claim,) = await store.claim(await request(store))


@pytest.mark.parametrize("early", [True, False])
async def test_a_cancel_that_wins_before_the_commit_refuses_all_of_it(store: MemoryStore, *, early: bool) -> None:
    await store.enqueue([job()])
    (claim,) = await store.claim(await request(store))
    child, then = job(), job()
    if early:
        await store.cancel([claim.job_id])
    transaction = await store.begin()
    await transaction.enqueue([child])
    answer = await transaction.settle(Settlement(claim.lease, Write(Event.CONTINUE, 0), then=then))
    assert answer is (Settled.CANCELED if early else Settled.APPLIED)
    await store.cancel([claim.job_id])
    with pytest.raises(Aborted, match="canceled"):
        await transaction.commit()
    assert await store.get([child.id, then.id]) == [None, None]
    (view,) = await store.get([claim.job_id])
    assert view is not None
    assert view.state is State.RUNNING


async def test_a_stale_answer_keeps_the_transaction_from_committing(store: MemoryStore) -> None:
    child = job()
    transaction = await store.begin()
    await transaction.enqueue([child])
    assert await transaction.prove(Lease(child.id, uuid4())) is Settled.STALE
    with pytest.raises(StaleLease):
        await transaction.commit()
    assert await store.get([child.id]) == [None]


async def test_a_key_taken_before_the_commit_refuses_all_of_it(store: MemoryStore) -> None:
    await store.enqueue([job()])
    (claim,) = await store.claim(await request(store))
    unique = Unique(key="k", scope="s")
    enqueuing, continuing = await store.begin(), await store.begin()
    keyed, then = job(unique=unique), job(unique=unique)
    assert (await enqueuing.enqueue([job(), keyed]))[1].job_id == keyed.id
    continued = Settlement(claim.lease, Write(Event.CONTINUE, 0), then)
    assert await continuing.settle(continued) is Settled.APPLIED
    await store.enqueue([job(unique=unique)])
    for transaction in (enqueuing, continuing):
        with pytest.raises(KeyBusy, match="'k'"):
            await transaction.commit()
    assert (await store.stats()).count() == 2
    assert [view and view.state for view in await store.get([claim.job_id, then.id])] == [State.RUNNING, None]


async def test_a_blocker_deleted_before_the_commit_refuses_all_of_it(store: MemoryStore) -> None:
    blocker, first = job(), job()
    await store.enqueue([blocker])
    transaction = await store.begin()
    await transaction.enqueue([first])
    await transaction.enqueue([job(after=(blocker.id,))])
    await store.delete([blocker.id])
    with pytest.raises(BadJob, match="no job"):
        await transaction.commit()
    assert (await store.stats()).count() == 0


async def test_a_transaction_begun_again_remembers_nothing(store: MemoryStore) -> None:
    heard: list[str] = []
    transaction = await store.begin()
    await transaction.enqueue([dropped := job()])
    transaction.after_commit(lambda: heard.append("dropped"))
    await transaction.rollback()
    await transaction.begin()
    await transaction.enqueue([kept := job()])
    transaction.after_commit(lambda: heard.append("kept"))
    await transaction.commit()
    assert [view and view.state for view in await store.get([dropped.id, kept.id])] == [None, State.READY]
    assert heard == ["kept"]


async def test_what_others_did_in_the_meantime_stands_beside_what_is_committed(store: MemoryStore) -> None:
    other = MemoryStore(SystemEnvironment(), store.data)
    await store.enqueue([job(), mine := job()])
    transaction = await store.begin()
    await transaction.enqueue([child := job()])
    claims = await other.claim(await request(other))
    await other.progress([Progress(claims[0].lease, 50)])
    await transaction.commit()
    assert [line.progress for line in await other.get([claims[0].job_id]) if line] == [50]
    assert await other.settle([Settlement(claims[0].lease, Write(Event.SUCCEED, 0))]) == [Settled.APPLIED]
    assert [claim.job_id for claim in await other.claim(await request(other, 5))] == [mine.id, child.id]


async def test_a_copy_of_the_data_shares_nothing_that_changes(store: MemoryStore) -> None:
    first = job(unique=Unique(key="k", scope="s"), delay=60)
    await store.enqueue([first, job(), job(after=(first.id,))])
    asked = await request(store)
    (claim,) = await store.claim(asked)
    await store.settle([Settlement(claim.lease, Write(Event.CONTINUE, 0), then=job())])
    (claim,) = await store.claim(asked)
    await store.settle([Settlement(claim.lease, Write(Event.SUSPEND, 0, delay=60), signal="s")])
    seen = [view for page in [await store.find(JobFilter(), limit=10)] for view in page.jobs]
    tried = MemoryStore(SystemEnvironment(), store.data.copy())
    await tried.emit("s", "1")
    await tried.rewind(60)
    await tried.pause("default")
    for claim in await tried.claim(ClaimRequest(worker=asked.worker, tasks=frozenset({TASK}), limit=9)):
        await tried.settle([Settlement(claim.lease, Write(Event.FAIL, 1, error=BOOM))])
    await tried.cancel([view.id for view in seen])
    await tried.retire(asked.worker)
    assert list((await store.find(JobFilter(), limit=10)).jobs) == seen
    assert (await store.stats()).count(State.CANCELED, State.FAILED) == 0
    assert await store.signals(["s"]) == {}
    assert [view.offline_at for view in await store.workers()] == [None]
    assert (await store.enqueue([job(unique=Unique(key="k", scope="s"))]))[0].job_id == first.id


def test_the_state_of_a_record_is_assigned_in_one_place() -> None:
    places = []
    for path in Path(holdfast.store.memory.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else []
            places += [path.stem for target in targets if isinstance(target, ast.Attribute) and target.attr == "state"]
    assert places == ["model"]
