"""A jobs file becomes a PostgreSQL store: everything arrives, or nothing does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pytest
from uuid_utils.compat import uuid7

from holdfast.connect import connect
from holdfast.core.figures import EMPTY, Figure
from holdfast.core.job import BlockerPolicy, NewJob, Policy, Unique
from holdfast.core.outcome import Failed, Released, Stopped, Succeeded
from holdfast.core.retry import Retry
from holdfast.core.settle import Write, settle
from holdfast.core.states import Event, State
from holdfast.errors import SchemaMissing
from holdfast.store.port import (
    Action,
    Beat,
    Checkpoint,
    ClaimRequest,
    Grain,
    JobFilter,
    Key,
    LogLine,
    Part,
    PartState,
    Progress,
    Role,
    Schedule,
    Settlement,
    StageMark,
    Store,
    Worker,
)
from holdfast.store.postgres.load import Load
from tests.cli.conftest import BOOM, Shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome
    from tests.cli.conftest import Done

    Cli = Callable[..., Done]

TASKS = frozenset({"a", "b", "keyed", "blocker", "waiter"})
WORKER = Worker(id=uuid4(), name="w1", slots=4, capabilities=("gpu",), info='{"tasks":["a"]}', version="9")
RETRY = Retry(max_attempts=3, initial=0.0, jitter=0.0)


def new(task: str = "a", **fields: Any) -> NewJob:
    return NewJob(**{"id": uuid7(), "task": task, "policy": Policy(retry=RETRY), **fields})


async def claim(store: Store, limit: int = 1, **fields: Any) -> list[Claimed]:
    request = {"worker": WORKER.id, "tasks": TASKS, "capabilities": frozenset({"gpu"}), **fields}
    return await store.claim(ClaimRequest(limit=limit, look=True, **request))


async def end(store: Store, claimed: Claimed, outcome: Outcome) -> None:
    write = settle(outcome, claimed.policy.retry, claimed.failures, claimed.claimed_at, lambda: 0.5)
    await store.settle([Settlement(claimed.lease, write)])


async def fill(store: Store) -> None:
    """Put something of everything into a store."""
    await store.register(WORKER)
    await store.beat(Beat(worker=WORKER.id, counters='{"n":1}'))
    await store.register(Worker(id=uuid4(), name="silent"))
    args = '{"n":123456789012345678901234567890,"x":1.10,"s":"\u00e4\U0001f600\\u0000"}'
    # ended: succeeded with a story, failed, stopped, reopened and failed again
    await store.enqueue([new(args=args, tags=("vip", "x y"), trace="00-aa", priority=9)])
    claimed = (await claim(store))[0]
    await store.progress([Progress(claimed.lease, 40.0, "encode", "half")])
    await store.checkpoint([Checkpoint(claimed.lease, Part(name, PartState.COMPLETED, 1, 2, "{}")) for name in ("z", "y")])
    await store.log([LogLine(lease=claimed.lease, message=f"line {n}", fields='{"n":1}') for n in range(3)])
    await store.mark(
        [StageMark(lease=claimed.lease, name="clip", event=event) for event in (Event.STAGE_ENTER, Event.STAGE_LEAVE)]
    )
    await end(store, claimed, Succeeded(args))
    for outcome in (Failed(BOOM, fatal=True), Stopped("enough"), Succeeded("1")):
        await store.enqueue([new()])
        await end(store, (await claim(store))[0], outcome)
    reopened = (await store.find(JobFilter(states=frozenset({State.SUCCEEDED})), limit=1)).jobs[0]
    await store.reopen([reopened.id], by="ann")
    await end(store, (await claim(store))[0], Failed(BOOM))
    await end(store, (await claim(store))[0], Released("back"))
    # waiting: retries, fronts, several lanes, fifo, scheduled, expiring, keyed, blocked
    await store.enqueue([new(priority=priority, task=task) for priority in (1, 5, 5, 8) for task in ("a", "b")])
    await store.enqueue([new(queue="ledger", fifo=True, task=task) for task in ("a", "b", "a")])
    await store.enqueue([new(requires=("gpu",)), new(expires_in=3600.0), new(delay=600.0, expires_in=9000.0)])
    await store.enqueue([new(run_at=datetime.now(UTC) + timedelta(days=3))])
    await store.enqueue(
        [new("keyed", unique=Unique(key="k", scope="s")), new("keyed", unique=Unique(key="w", scope="s", window=900.0))]
    )
    await store.enqueue([new(delay=1.0)])
    blockers = [new("blocker", delay=60.0), new("blocker", delay=60.0)]
    await store.enqueue(blockers)
    policy = Policy(retry=RETRY, on_blocker_failure=BlockerPolicy.CANCEL)
    await store.enqueue([new("waiter", after=tuple(job.id for job in blockers), policy=policy)])
    await end(store, (await claim(store, queues=frozenset({"ledger"})))[0], Released("back"))
    await store.cancel([(await store.find(JobFilter(task="b"), limit=1)).jobs[0].id], by="ann", reason="no")
    await store.pause("ledger", by="ann", reason="audit")
    await store.pause("empty", by="ann")
    slot = datetime(2030, 1, 1, tzinfo=UTC)
    await store.schedule(
        [Schedule(name="nightly", task="a", cron="0 1 * * *", timezone="Europe/Berlin", next_at=slot, spec='{"a":1}')]
    )
    await store.disable(WORKER.id, by="ann")
    await store.drain(WORKER.id, by="bob")
    await store.add_key(
        Key(id="abc123abc123", name="ann", role=Role.WORKER, digest="0f" * 32, queues=("a", "b"), actions=()), by="root"
    )
    await store.expire_key("abc123abc123", 3600.0)
    await store.revoke_key("abc123abc123", by="bob")
    await store.use_key("abc123abc123")
    await store.add_key(Key(id="000123abc123", name="bob", role=Role.ADMIN, digest="1f" * 32))
    await store.measure(
        [
            Figure(queue="q", task=task, event=Event.SUCCEED, count=3, waited=0.5, ran=1.25, runs=(3, *EMPTY[1:]))
            for task in "ab"
        ]
    )
    await store.retire(WORKER.id)


async def picture(store: Store) -> dict[str, Any]:
    """Return everything that can be seen of a store, but for what its clock makes of it."""
    jobs = list((await store.find(JobFilter(), limit=1000)).jobs)
    return {
        "jobs": jobs,
        "attempts": {job.id: await store.attempts(job.id) for job in jobs},
        "events": {job.id: await store.events(job.id) for job in jobs},
        "parts": {job.id: await store.parts(job.id) for job in jobs},
        "logs": {job.id: await store.logs(job.id, limit=100) for job in jobs},
        "workers": await store.workers(),
        "queues": [msgspec.structs.replace(queue, oldest_waiting=None) for queue in await store.queues()],
        "schedules": [msgspec.structs.replace(view, due_in=0.0) for view in await store.schedules()],
        "keys": await store.keys(),
        "audit": await store.audits(limit=1000),
        "figures": {grain: await store.figures(grain) for grain in Grain},
        "failures": await store.failures(since=datetime(2000, 1, 1, tzinfo=UTC), limit=1000),
        "counts": {(row.queue, row.task): dict(row.counts) for row in (await store.stats()).tasks},
    }


async def order(store: Store) -> dict[tuple[object, ...], list[UUID]]:
    """Return the waiting jobs as they are claimed: strict is the order within a lane, which a fifo queue has one of."""
    await store.enable(WORKER.id)
    await store.register(WORKER)
    await store.resume("ledger")
    found: dict[tuple[object, ...], list[UUID]] = {}
    while claimed := await claim(store):
        for one in claimed:
            lane = (one.queue, one.priority) if one.queue == "ledger" else (one.queue, one.task, one.priority, one.failures > 0)
            found.setdefault(lane, []).append(one.job_id)
    return found


@pytest.fixture
def target(postgres_url: str) -> Shop:
    return Shop(f"{postgres_url}?schema=s{uuid4().hex[:12]}")


def test_everything_arrives_and_goes_on_as_before(cli: Cli, shop: Shop, target: Shop) -> None:
    shop.do(fill)
    before = shop.do(picture)
    done = cli("move", shop.url, target.url, "--json", "--force")
    assert (done.code, done.err) == (0, "")
    after = target.do(picture)
    for name, seen in before.items():
        assert after[name] == seen, name
    assert {job.state for job in before["jobs"]} == set(State) - {State.RUNNING}
    assert done.json["states"] == {state: sum(job.state == state for job in before["jobs"]) for state in done.json["states"]}
    assert shop.do(picture) == before
    # the order of claims is the same, keys are held, waiters wait, and new jobs come after the old ones
    later = [new("a"), new("b", queue="ledger", fifo=True)]
    for store in (shop, target):
        store.do(lambda opened: opened.enqueue(later))
        held = store.do(lambda opened: opened.enqueue([new("keyed", unique=Unique(key=key, scope="s")) for key in ("k", "w")]))
        assert {answer.status for answer in held} == {"existing"}
    assert target.do(order) == shop.do(order)
    # figures are added to those that came, and lines follow them
    for store in (shop, target):
        store.do(lambda opened: opened.measure([Figure(queue="q", task="a", event=Event.SUCCEED, count=4)]))
        assert [view.figure.count for view in store.do(lambda opened: opened.figures(Grain.ALL))] == [7, 3]
        store.do(lambda opened: opened.note(Action.LOGIN, by="eve"))
        last, newest = store.do(lambda opened: opened.audits(limit=2))[::-1]
        assert (newest.actor, newest.no > last.no) == ("eve", True)


async def link(store: Store) -> None:
    """Put chains, waiters and signals into a store: under way, ended, waiting."""
    await store.register(WORKER)
    first = uuid7()
    await store.enqueue([new(id=first, chain_id=first, unique=Unique(key="k", scope="s")), new(), new("blocker"), new("b")])
    begun, plain, blocker, sleeper = await claim(store, 4)
    for claimed in (begun, plain):
        step = new("keyed", unique=Unique(key=str(claimed.job_id), scope="s"))
        await store.settle([Settlement(claimed.lease, Write(Event.CONTINUE, 0), then=step)])
    (continued,) = [view for view in await store.chains([plain.job_id]) if view is not None]
    await store.complete({continued.step: "1"})
    await end(store, blocker, Succeeded('"kept"'))
    await store.settle([Settlement(sleeper.lease, Write(Event.SUSPEND, 0, delay=9000.0), signal="paid")])
    await store.enqueue([new("waiter", after=(blocker.job_id, first)), new("waiter", after=(plain.job_id,))])
    await store.emit("shipped", '{"n":1}', by="ann")


async def links(store: Store) -> dict[str, Any]:
    """Return what can be seen of chains, waiters and signals."""
    jobs = list((await store.find(JobFilter(), limit=100)).jobs)
    return {
        "jobs": jobs,
        "chains": (await store.find_chains(JobFilter(), limit=100)).chains,
        "blockers": {job.id: await store.blockers(job.id) for job in jobs},
        "signals": await store.signals(["paid", "shipped"]),
    }


def test_chains_waiters_and_signals_go_on_where_they_were(cli: Cli, shop: Shop, target: Shop) -> None:
    shop.do(link)
    before = shop.do(links)
    assert [chain.steps for chain in before["chains"]] == [2, 2]
    assert cli("move", shop.url, target.url, "--force").code == 0
    assert target.do(links) == before

    async def go_on(store: Store) -> list[object]:
        chain = next(view for view in (await store.find_chains(JobFilter(), limit=9)).chains if view.state is State.READY)
        held = [(await store.enqueue([new(unique=Unique(key=key, scope="s"))]))[0].status for key in ("k", str(chain.id))]
        woken = await store.emit("paid", "1")
        again = await store.emit("shipped", "2")
        running = [one for one in await claim(store, 10, tasks=frozenset({"keyed", "waiter"})) if one.blockers or one.chain_id]
        answers = await store.settle([Settlement(one.lease, Write(Event.SUCCEED, 0, result="2")) for one in running])
        free = (await store.enqueue([new(unique=Unique(key="k", scope="s"))]))[0].status
        waiter = (await claim(store, 10, tasks=frozenset({"waiter"})))[0]
        results = [view.result for view in await store.blockers(waiter.job_id)]
        return [held, len(woken.jobs), again.first, sorted(answers), free, waiter.blockers, results]

    lived = [store.do(go_on) for store in (shop, target)]
    assert lived == [[["existing", "existing"], 1, False, ["applied", "freed"], "created", 2, ['"kept"', "2"]]] * 2


def test_a_moved_store_lives_on(cli: Cli, shop: Shop, target: Shop) -> None:
    shop.do(fill)
    assert cli("move", shop.url, target.url, "--force").code == 0

    async def live(store: Store) -> None:
        waiter = (await store.find(JobFilter(task="waiter"), limit=1)).jobs[0]
        await store.complete(dict.fromkeys(waiter.waits_for, "null"))
        opened = (await store.get([waiter.id]))[0]
        assert opened is not None
        assert opened.state is State.READY
        page = await store.find(JobFilter(states=frozenset({State.READY})), limit=100)
        assert set(await store.cancel([job.id for job in page.jobs])) == {"done"}
        await store.rewind(86_400 * 5)
        assert (await store.promote(100)).count == (await store.stats()).count(State.READY)
        assert await store.drop_overdue(100) == 1
        every = [job.id for job in (await store.find(JobFilter(), limit=1000)).jobs]
        await store.cancel(every)
        assert set(await store.delete(every)) == {"done"}
        assert (await store.stats()).live == 0

    target.do(live)


def test_a_moved_waiter_still_acts_by_its_policy(cli: Cli, shop: Shop, target: Shop) -> None:
    shop.do(fill)
    cli("move", shop.url, target.url, "--force")

    async def fail_blocker(store: Store) -> State | None:
        waiter = (await store.find(JobFilter(task="waiter"), limit=1)).jobs[0]
        await store.fail({waiter.waits_for[1]: BOOM})
        view = (await store.get([waiter.id]))[0]
        return None if view is None else view.state

    assert target.do(fail_blocker) is State.CANCELED


def test_running_jobs_do_not_travel_unless_they_are_given_back(cli: Cli, shop: Shop, target: Shop) -> None:
    job_id = shop.enqueue()
    shop.claim()
    shop.do(lambda store: store.retire(shop.worker()))
    refused = cli("move", shop.url, target.url)
    assert (refused.code, "--abandon-running" in refused.err) == (1, True)
    assert cli("move", shop.url, target.url, "--abandon-running").code == 0
    view = target.do(lambda store: store.get([job_id]))[0]
    assert view is not None
    assert (view.state, view.attempt, view.failures) == (State.READY, 1, 0)


def test_a_file_in_use_is_refused_unless_forced(cli: Cli, shop: Shop, target: Shop) -> None:
    shop.worker("busy-one")
    refused = cli("move", shop.url, target.url)
    assert (refused.code, "busy-one" in refused.err) == (1, True)
    assert cli("move", shop.url, target.url, "--force").code == 0


def test_a_target_that_is_not_empty_is_refused(cli: Cli, shop: Shop, target: Shop) -> None:
    target.enqueue()
    shop.enqueue()
    refused = cli("move", shop.url, target.url)
    assert (refused.code, "is not empty" in refused.err) == (1, True)
    assert target.do(lambda store: store.stats()).live == 1


def test_a_loss_on_the_way_is_noticed_and_nothing_stays(
    cli: Cli, shop: Shop, target: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.enqueue()
    copy = Load.copy

    async def lossy(self: Load, table: str, columns: tuple[str, ...], rows: Any) -> None:
        changed = [(*row[:-1], '{"to":"bob"}') for row in rows] if table == "job" else rows
        await copy(self, table, columns, changed)

    monkeypatch.setattr(Load, "copy", lossy)
    refused = cli("move", shop.url, target.url)
    assert (refused.code, "differ from those that were sent" in refused.err) == (1, True)

    async def look() -> None:
        store = connect(target.url, create=False)
        try:
            with pytest.raises(SchemaMissing):
                await store.open()
        finally:
            await store.close()

    asyncio.run(look())


def test_only_from_a_file_to_postgres(cli: Cli, shop: Shop, target: Shop) -> None:
    assert cli("move", target.url, shop.url).code == 2
    assert cli("move", "sqlite:///nowhere.db", target.url).code == 1
