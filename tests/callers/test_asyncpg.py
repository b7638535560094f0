"""Jobs on an asyncpg connection in somebody's own transaction, and in those that the store begins, on each major version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy, OnConflict, Policy, Unique
from holdfast.core.outcome import BLOCKER_FAILED, Continued, Error, Failed, Rescheduled, Stopped, Succeeded, Suspended
from holdfast.core.states import Event, State
from holdfast.errors import BadJob, BadSetting, HoldfastError, KeyBusy, QueueFull, SchemaMissing, StoreUnavailable
from holdfast.store.port import Answer, ClaimRequest, Enqueue, Settled
from holdfast.store.postgres import connection as connections
from holdfast.store.postgres.asyncpg_line import AsyncpgLine
from holdfast.store.postgres.caller import PostgresCaller
from tests.callers.asyncpg_world import CHANNEL, SOON, World, keyed, new, on, opened, settlement
from tests.notify.ear import eventually
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.outcome import Outcome


@pytest_asyncio.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    async with opened(postgres_url) as world:
        yield world


# -- the transaction decides -----------------------------------------------------------------------------------------------


async def test_a_thousand_jobs_exist_in_order_once_it_has_committed(world: World) -> None:
    task = f"t{uuid4().hex}"
    jobs = [new(task=task) for _ in range(1000)]
    async with world.caller() as caller:
        answers = await caller.enqueue(jobs)
        assert {answer.status for answer in answers} == {Enqueue.CREATED}
        assert await world.states(*jobs) == [None] * 1000
        await caller.commit()
    request = ClaimRequest(worker=world.worker, tasks=frozenset({task}), limit=1000, look=True)
    assert [claim.job_id for claim in await world.store.claim(request)] == [job.id for job in jobs]


async def test_listeners_are_told_once_and_after_the_commit(world: World) -> None:
    heard: list[str] = []
    async with world.connection() as listener, world.caller() as caller:
        await listener.add_listener(CHANNEL, lambda *said: heard.append(said[-1]))
        for _ in range(3):
            await caller.enqueue([new()])
            await caller.tell("hint")
        await listener.execute("SELECT pg_notify($1, 'before')", CHANNEL)
        await eventually(lambda: "before" in heard)
        await caller.commit()
        await listener.execute("SELECT pg_notify($1, 'after')", CHANNEL)
        await eventually(lambda: "after" in heard)
    assert heard == ["before", "hint", "after"]


@pytest.mark.parametrize("end", ["rollback", "savepoint", "exception", "cut"])
async def test_jobs_never_were_when_it_is_undone(world: World, end: str) -> None:
    job, kept = keyed(f"{uuid4()}"), new()
    async with world.connection() as connection:
        match end:
            case "rollback":
                transaction = connection.transaction()
                await transaction.start()
                await on(connection).enqueue([job])
                await transaction.rollback()
            case "savepoint":
                async with connection.transaction():
                    await on(connection).enqueue([kept])
                    inner = connection.transaction()
                    await inner.start()
                    await on(connection).enqueue([job])
                    await inner.rollback()
            case "exception":
                with pytest.raises(ZeroDivisionError):  # noqa: PT012  where it is raised is the point
                    async with connection.transaction():
                        await on(connection).enqueue([job])
                        _ = 1 / 0
            case _:
                await connection.execute("BEGIN")
                await on(connection).enqueue([job])
                connection.terminate()
    assert await world.states(job, kept) == [None, State.READY if end == "savepoint" else None]
    again = keyed(job.unique.key if job.unique else "")
    async with asyncio.timeout(SOON):
        while True:  # the server notices a cut connection a moment later
            try:
                assert (await world.store.enqueue([again]))[0].status is Enqueue.CREATED
                break
            except KeyBusy:
                continue


async def test_a_connection_without_a_transaction_is_refused_with_the_line_to_write(world: World) -> None:
    async with world.connection() as connection:
        with pytest.raises(BadSetting, match=r"async with connection\.transaction\(\):"):
            await on(connection).enqueue([new()])
        with pytest.raises(BadSetting):
            await on(connection).tell("hint")


async def test_a_missing_schema_names_the_command_and_leaves_it_usable(world: World) -> None:
    async with world.connection() as connection, connection.transaction():
        caller = PostgresCaller(AsyncpgLine(connection), "nowhere", CHANNEL)
        with pytest.raises(SchemaMissing, match="holdfast migrate"):
            await caller.enqueue([new()])
        assert await connection.fetchval("SELECT 1") == 1


async def test_refused_jobs_leave_it_usable(world: World) -> None:
    kept, queue = new(), f"q{uuid4().hex}"
    chain = await world.running()
    step = new()
    await world.settle(chain, Continued(step))
    async with world.caller() as caller:
        with pytest.raises(BadJob, match="there is no job"):
            await caller.enqueue([new(), new(after=(uuid7(),))])
        with pytest.raises(BadJob, match=f"is a step of chain {chain.job_id}"):
            await caller.enqueue([new(after=(step.id,))])
        with pytest.raises(QueueFull) as full:
            await caller.enqueue([new(queue=queue) for _ in range(3)], caps={queue: 2})
        await caller.enqueue([kept], caps={"default": 1_000_000})
        await caller.commit()
    assert (full.value.queue, full.value.depth, full.value.max_depth) == (queue, 3, 2)
    assert await world.states(kept) == [State.READY]


async def test_what_has_failed_before_is_the_drivers_to_tell(world: World) -> None:
    async with world.caller() as caller:
        with pytest.raises(asyncpg.DivisionByZeroError):
            await caller.connection.execute("SELECT 1 / 0")
        with pytest.raises(asyncpg.InFailedSQLTransactionError):
            await caller.enqueue([new()])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_it_works_at_stricter_levels_where_conflicts_are_the_databases(world: World, level: str) -> None:
    blocker, free, taken = await world.running(), new(), f"{uuid4()}"
    waiter = new(after=(blocker.job_id,))
    async with world.connection() as connection:
        await connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        assert await connection.fetchval("SELECT 1") == 1
        await connection.fetchval("SELECT count(*) FROM holdfast.job")  # its view of the world is from now on this one
        await world.store.enqueue([keyed(taken)])
        await world.settle(blocker, Succeeded())
        with pytest.raises(asyncpg.SerializationError):
            await on(connection).enqueue([keyed(taken)])
        await on(connection).enqueue([free, waiter])
        await connection.execute("COMMIT")
    assert await world.states(free, waiter) == [State.READY, State.BLOCKED]
    assert await world.store.unblock(10) == 1
    assert await world.states(waiter) == [State.READY]


# -- unique keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("conflict", list(OnConflict))
async def test_a_key_it_holds_is_busy_for_everybody_until_it_ends(world: World, conflict: OnConflict, end: str) -> None:
    key = f"{uuid4()}"
    first = keyed(key)
    async with world.caller() as holding, world.caller() as other:
        await holding.enqueue([first])
        async with asyncio.timeout(SOON):
            with pytest.raises(KeyBusy) as busy:
                await world.store.enqueue([keyed(key, conflict), new()])
            with pytest.raises(KeyBusy):
                await other.enqueue([keyed(key, conflict)])
        assert busy.value.keys == (key,)
        await other.enqueue([new()])
        await (holding.commit() if end == "commit" else holding.rollback())
    answer = (await world.store.enqueue([keyed(key)]))[0]
    assert (answer.job_id == first.id) is (end == "commit")


async def test_jobs_that_may_replace_others_do_not_wait_for_its_end_either(world: World) -> None:
    keys = [f"{uuid4()}" for _ in range(2)]
    async with world.caller() as holding:
        await holding.enqueue([keyed(key, OnConflict.REPLACE) for key in keys])
        async with asyncio.timeout(SOON):
            with pytest.raises(KeyBusy):
                await world.store.enqueue([keyed(key, OnConflict.REPLACE) for key in keys])


@pytest.mark.parametrize("conflict", list(OnConflict))
async def test_asking_for_a_taken_key_does_not_hold_up_its_holder(world: World, conflict: OnConflict) -> None:
    key = f"{uuid4()}"
    holder = await world.running(unique=Unique(key=key, scope="s"))
    async with world.caller() as asking:
        [answer] = await asking.enqueue([keyed(key, conflict)])
        assert (answer.status, answer.job_id) == (Enqueue.EXISTING, holder.job_id)
        async with asyncio.timeout(SOON):
            assert await world.settle(holder, Succeeded()) is Settled.APPLIED
        await asking.commit()


async def test_a_full_queue_is_not_closed_to_others_by_it(world: World) -> None:
    queue = f"q{uuid4().hex}"
    async with world.caller() as caller:
        await caller.enqueue([new(queue=queue)], caps={queue: 5})
        async with asyncio.timeout(SOON):
            await world.store.enqueue([new(queue=queue)], caps={queue: 5})


# -- waiters ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the enqueue", "before the commit", "after the commit"])
@pytest.mark.parametrize("well", [True, False])
async def test_a_waiter_follows_its_blocker_whenever_that_ends(world: World, when: str, *, well: bool) -> None:
    blocker = await world.running()
    waiter = new(after=(blocker.job_id,))
    outcome = Succeeded("1") if well else Failed(Error("BOOM"), fatal=True)
    if when == "before the enqueue":
        await world.settle(blocker, outcome)
    async with world.caller() as caller:
        await caller.enqueue([waiter])
        if when == "before the commit":
            async with asyncio.timeout(SOON):  # nothing is locked by who waits
                await world.settle(blocker, outcome)
        await caller.commit()
    await world.store.unblock(10)
    if when == "after the commit":
        assert await world.states(waiter) == [State.BLOCKED]
        await world.settle(blocker, outcome)
    assert await world.states(waiter) == [State.READY if well else State.FAILED]
    assert await world.doubts() == 0


async def test_a_waiter_waits_on_when_the_chain_continued_before_the_commit(world: World) -> None:
    blocker = await world.running()
    waiter, step = new(after=(blocker.job_id,)), new(task=f"t{uuid4().hex}")
    async with world.caller() as caller:
        await caller.enqueue([waiter])
        await world.settle(blocker, Continued(step))
        await caller.commit()
    assert await world.store.unblock(10) == 0
    [claimed] = await world.claim(step, task=step.task)
    assert await world.settle(claimed, Succeeded()) is Settled.FREED
    assert await world.states(waiter) == [State.READY]


@pytest.mark.parametrize("policy", list(BlockerPolicy))
async def test_a_waiter_whose_blocker_was_deleted_before_the_commit_goes_by_its_policy(
    world: World, policy: BlockerPolicy
) -> None:
    blocker = new()
    await world.store.enqueue([blocker])
    waiter = new(after=(blocker.id,), policy=Policy(on_blocker_failure=policy))
    async with world.caller() as caller:
        await caller.enqueue([waiter])
        async with asyncio.timeout(SOON):
            assert await world.store.delete([blocker.id]) == [Answer.DONE]
        await caller.commit()
    await world.store.unblock(10)
    [view] = await world.store.get([waiter.id])
    assert view is not None
    expected = {BlockerPolicy.FAIL: State.FAILED, BlockerPolicy.CANCEL: State.CANCELED, BlockerPolicy.RUN: State.READY}
    assert view.state is expected[policy]
    if policy is BlockerPolicy.FAIL:
        assert view.error is not None
        assert (view.error.code, str(blocker.id) in view.error.message) == (BLOCKER_FAILED, True)


async def test_a_waiter_in_doubt_that_has_left_is_not_brought_back(world: World) -> None:
    blocker = await world.running()
    waiter = new(after=(blocker.job_id,))
    async with world.caller() as caller:
        await caller.enqueue([waiter])
        await world.settle(blocker, Succeeded())
        await caller.commit()
    await world.store.cancel([waiter.id])
    assert await world.store.unblock(10) == 0
    assert await world.states(waiter) == [State.CANCELED]
    assert await world.doubts() == 0


async def test_a_settlement_under_way_that_has_not_seen_the_waiter_is_waited_for(world: World) -> None:
    blocker = await world.running()
    waiter = new(after=(blocker.job_id,))
    async with world.caller() as settling, world.caller() as caller:
        await caller.enqueue([waiter])
        assert await settling.settle(settlement(blocker, Succeeded())) is Settled.APPLIED, "it has seen nobody who waits"
        await caller.commit()
        sweep = asyncio.create_task(world.store.unblock(10))
        await until(world.anybody_waits)
        await settling.commit()
        assert await sweep or await world.store.unblock(10), "the waiter was left behind"
    assert await world.states(waiter) == [State.READY]


async def test_no_waiter_is_stranded_whose_commit_and_blocker_come_at_the_same_moment(world: World) -> None:
    blockers = [new(task="blocker") for _ in range(100)]
    await world.store.enqueue(blockers)
    waiters = [new(after=(blocker.id,)) for blocker in blockers]
    async with world.connection() as connection:
        caller = on(connection)
        for claimed, waiter in zip(await world.claim(*blockers, task="blocker"), waiters, strict=True):
            await caller.begin()
            await caller.enqueue([waiter])
            await asyncio.gather(caller.commit(), world.settle(claimed, Succeeded()), world.store.unblock(10))
    await world.store.unblock(1000)
    assert await world.states(*waiters) == [State.READY] * 100
    assert await world.doubts() == 0


async def test_sweeping_goes_on_past_a_blocker_that_an_open_transaction_holds(world: World) -> None:
    replaced, free = keyed(f"{uuid4()}"), await world.running()
    await world.store.enqueue([replaced])
    held_up, freed = new(after=(replaced.id,)), new(after=(free.job_id,))
    async with world.caller() as holding, world.caller() as caller:
        await caller.enqueue([held_up, freed])
        await caller.commit()
        key = replaced.unique.key if replaced.unique else ""
        await holding.enqueue([keyed(key, OnConflict.REPLACE)])
        async with asyncio.timeout(SOON):
            assert await world.store.unblock(10) == 0
        assert await world.doubts() == 1
        await holding.commit()
    await world.store.unblock(10)
    assert await world.states(held_up, freed) == [State.FAILED, State.BLOCKED]
    assert await world.doubts() == 0


# -- ending attempts -------------------------------------------------------------------------------------------------------


async def test_a_settlement_stands_or_falls_with_it(world: World) -> None:
    claimed, step = await world.running(), new()
    async with world.caller() as caller:
        assert await caller.prove(claimed.lease) is Settled.APPLIED
        assert await caller.settle(settlement(claimed, Continued(step))) is Settled.APPLIED
        await caller.rollback()
    assert await world.states(step) == [None]
    async with world.caller() as caller:
        assert await caller.settle(settlement(claimed, Continued(step))) is Settled.APPLIED
        await caller.commit()
    assert await world.states(step) == [State.READY]
    async with world.caller() as caller:
        assert await caller.prove(claimed.lease) is Settled.STALE


async def test_a_next_step_whose_key_is_taken_undoes_the_settlement_alone(world: World) -> None:
    key, other = f"{uuid4()}", new()
    await world.store.enqueue([keyed(key)])
    claimed = await world.running()
    async with world.caller() as caller:
        await caller.enqueue([other])
        assert await caller.settle(settlement(claimed, Continued(keyed(key)))) is Settled.KEY_TAKEN
        assert await caller.prove(claimed.lease) is Settled.APPLIED
        await caller.commit()
    assert await world.states(other) == [State.READY]


async def test_a_batch_goes_on_without_the_step_whose_key_an_open_transaction_holds(world: World) -> None:
    key, step = f"{uuid4()}", new()
    claims = [await world.running() for _ in range(3)]
    outcomes: list[Outcome] = [Continued(keyed(key)), Continued(step), Succeeded()]
    async with world.caller() as holding:
        await holding.enqueue([keyed(key)])
        async with asyncio.timeout(SOON):
            answers = await world.store.settle([settlement(*pair) for pair in zip(claims, outcomes, strict=True)])
    assert answers == [Settled.KEY_TAKEN, Settled.APPLIED, Settled.APPLIED]
    assert await world.states(step) == [State.READY]


# -- transactions that the store begins ------------------------------------------------------------------------------------


async def test_the_stores_own_work_does_not_wait_for_open_transactions(world: World) -> None:
    transactions = [await world.store.begin() for _ in range(20)]
    try:
        claimed = await world.running()
        await transactions[0].settle(settlement(claimed, Succeeded()))
        await asyncio.gather(*(world.running() for _ in range(10)))
    finally:
        for transaction in transactions:
            await transaction.rollback()
    assert await world.settle(claimed, Succeeded()) is Settled.APPLIED


async def test_whether_it_was_settled_is_told_once_the_transaction_in_doubt_has_ended(world: World) -> None:
    for end, expected in (("commit", Event.SUCCEED), ("rollback", None)):
        claimed = await world.running()
        transaction = await world.store.begin()
        await transaction.settle(settlement(claimed, Succeeded()))
        asked = asyncio.create_task(world.store.settled(claimed.lease))
        await until(world.anybody_waits)
        assert not asked.done()
        await getattr(transaction, end)()
        assert await asked is expected


async def test_a_commit_whose_answer_is_lost_is_said_to_be_unknown(world: World) -> None:
    claimed = await world.running()
    transaction = await world.store.begin()
    await transaction.settle(settlement(claimed, Succeeded()))
    pid = transaction.connection.get_server_pid()
    await world.store._db.fetch_value("SELECT pg_terminate_backend($1, 10000)", pid)
    with pytest.raises(StoreUnavailable):
        await transaction.commit()
    assert await world.store.settled(claimed.lease) is None
    assert await world.settle(claimed, Succeeded()) is Settled.APPLIED


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_transaction_whose_connection_was_lost_is_given_back_whatever_ends_it(world: World, end: str) -> None:
    for _ in range(25):  # more often than there are connections
        transaction = await world.store.begin()
        pid = transaction.connection.get_server_pid()
        await world.store._db.fetch_value("SELECT pg_terminate_backend($1, 10000)", pid)
        with pytest.raises(StoreUnavailable):
            await transaction.execute("SELECT 1")
        if end == "commit":
            with pytest.raises(StoreUnavailable):
                await transaction.commit()
        await transaction.rollback()


async def test_the_commit_of_a_failed_transaction_is_not_taken_for_one(world: World) -> None:
    transaction = await world.store.begin()
    with pytest.raises(asyncpg.UndefinedTableError):
        await transaction.execute("SELECT * FROM nowhere")
    with pytest.raises(HoldfastError, match="nothing was committed"):
        await transaction.commit()
    job = new()
    again = await world.store.begin()
    assert await again.execute("SELECT $1::int + 1", 1) == [(2,)]
    await again.enqueue([job])
    await again.commit()
    assert await world.states(job) == [State.READY]


async def test_a_cancel_that_was_asked_for_is_told_apart_from_what_was_to_be_settled(world: World) -> None:
    claims = [await world.running(policy=Policy(on_blocker_failure=BlockerPolicy.RUN)) for _ in range(4)]
    step, waiter = new(), new(after=(claims[0].job_id,), policy=Policy(on_blocker_failure=BlockerPolicy.RUN))
    await world.store.enqueue([waiter])
    assert await world.store.cancel([claim.job_id for claim in claims[:3]]) == [Answer.REQUESTED] * 3
    outcomes: list[Outcome] = [Continued(step), Suspended(signal="paid"), Succeeded()]
    async with world.caller() as caller:
        answers = [await caller.settle(settlement(*pair)) for pair in zip(claims[:3], outcomes, strict=True)]
        assert answers == [Settled.CANCELED, Settled.CANCELED, Settled.APPLIED]
    outcomes = [Continued(step), Rescheduled(), Failed(Error("BOOM")), Succeeded()]
    answers = await world.store.settle([settlement(*pair) for pair in zip(claims, outcomes, strict=True)])
    assert answers == [Settled.CANCELED] * 3 + [Settled.FREED]
    assert await world.states(step, waiter) == [None, State.READY]


@pytest.mark.parametrize(
    "statement", ["COMMIT", "commit and chain", "-- now\n/* or never */ END", "ROLLBACK", "ABORT", "BEGIN"]
)
async def test_a_statement_that_would_end_the_transaction_is_not_taken(world: World, statement: str) -> None:
    claimed = await world.running()
    transaction = await world.store.begin()
    job = new()
    await transaction.enqueue([job])
    with pytest.raises(BadSetting, match="begun and ended by its block"):
        await transaction.execute(statement)
    await transaction.execute("SAVEPOINT mine")
    await transaction.execute("ROLLBACK TO SAVEPOINT mine")
    assert await transaction.settle(settlement(claimed, Succeeded())) is Settled.APPLIED
    assert await world.states(job) == [None]
    await transaction.commit()
    assert await world.states(job) == [State.READY]


async def test_a_transaction_that_was_ended_behind_its_back_completes_nothing(world: World) -> None:
    claimed = await world.running()
    transaction = await world.store.begin()
    await transaction.connection.execute("COMMIT")
    for refused in (
        transaction.settle(settlement(claimed, Succeeded())),
        transaction.prove(claimed.lease),
        transaction.enqueue([new()]),
        transaction.execute("SELECT 1"),
        transaction.commit(),
    ):
        with pytest.raises(BadSetting, match="begun and ended by its block"):
            await refused
    await transaction.rollback()
    assert await world.settle(claimed, Succeeded()) is Settled.APPLIED


async def test_a_connection_that_was_brought_and_committed_inside_the_block_completes_nothing(world: World) -> None:
    claimed = await world.running()
    async with world.caller() as caller:
        await caller.connection.execute("COMMIT")
        for refused in (caller.settle(settlement(claimed, Succeeded())), caller.prove(claimed.lease)):
            with pytest.raises(BadSetting, match="begun and ended by its block"):
                await refused
    assert await world.settle(claimed, Succeeded()) is Settled.APPLIED


async def test_no_session_state_passes_from_one_handler_to_the_next(world: World) -> None:
    role = f"r{uuid4().hex}"
    first = await world.store.begin()
    pid = first.connection.get_server_pid()
    await first.execute("SELECT pg_advisory_lock(4242)")
    await first.execute("CREATE TEMP TABLE mine (n int)")
    await first.execute(f"CREATE ROLE {role}")
    for setting in ("search_path TO nowhere", "statement_timeout TO 4242", "app.tenant TO one", f"ROLE {role}"):
        await first.execute(f"SET {setting}")
    await first.commit()
    second = await world.store.begin()
    assert second.connection.get_server_pid() == pid
    assert await second.execute(
        "SELECT current_setting('search_path'), current_setting('statement_timeout'), "
        "coalesce(current_setting('app.tenant', true), ''), current_user = session_user, to_regclass('pg_temp.mine')"
    ) == [('"$user", public', "0", "", True, None)]
    assert await world.store._db.fetch_value("SELECT pg_try_advisory_lock(4242)")
    await second.execute(f"DROP ROLE {role}")
    await second.commit()


async def test_a_commit_stands_whose_connection_cannot_be_given_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = new()
    transaction = await world.store.begin()
    await transaction.enqueue([job])
    monkeypatch.setattr(connections, "RESET", "SELECT 1 / 0")
    await transaction.commit()
    assert await world.states(job) == [State.READY]
    monkeypatch.undo()
    again = await world.store.begin()
    assert await again.execute("SELECT 1") == [(1,)]
    await again.rollback()


# -- words -----------------------------------------------------------------------------------------------------------------


async def test_what_cannot_be_waited_for_is_named_with_task_and_place(world: World) -> None:
    blocker, missing = await world.running(), uuid7()
    step = new()
    await world.settle(blocker, Continued(step))
    for wrong in (missing, step.id):
        with pytest.raises(BadJob) as refused:
            await world.store.enqueue([new(task="first"), new(task="second", after=(blocker.job_id, wrong))])
        assert (refused.value.path, refused.value.task) == ("after[1]", "second")


@pytest.mark.parametrize("policy", [BlockerPolicy.FAIL, BlockerPolicy.CANCEL])
@pytest.mark.parametrize("end", ["failed", "was canceled"])
async def test_the_error_of_a_waiter_says_how_its_blocker_ended(world: World, policy: BlockerPolicy, end: str) -> None:
    blocker = await world.running()
    waiter = new(after=(blocker.job_id,), policy=Policy(on_blocker_failure=policy))
    await world.store.enqueue([waiter])
    await world.settle(blocker, Failed(Error("BOOM"), fatal=True) if end == "failed" else Stopped())
    [view] = await world.store.get([waiter.id])
    assert view is not None
    assert view.error is not None
    assert view.error.message == f"it waited for job {blocker.job_id}, which {end}"
