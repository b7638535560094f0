"""The account of the demonstration, on cooked books: it must not add up when anything is amiss."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from rich.console import Console

from holdfast import State, connect
from holdfast.cli.commands import run
from holdfast.core.outcome import Error, Succeeded
from holdfast.core.settle import settle
from holdfast.core.states import Event
from holdfast.demo.account import Account, Blow, take_account
from holdfast.demo.plan import FEWEST, make_plan
from holdfast.demo.view import print_account
from holdfast.store.port import Beat, Checkpoint, ClaimRequest, Part, PartState, Settlement, StageMark, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.lease import Claimed
    from holdfast.demo.plan import Planned
    from holdfast.store.port import Store

NOTHING_HELD = {"killed": Blow("worker-1", {}), "frozen": Blow("worker-2", {})}
WORKER = Worker(id=uuid4(), name="worker-2")


@pytest.fixture
def plan() -> list[Planned]:
    return make_plan(FEWEST, seed=1)


@pytest.fixture
async def store(plan: list[Planned]) -> AsyncIterator[Store]:
    """A store that knows the plan, and a worker some of whose writes were refused."""
    store = connect("memory://")
    await store.open()
    await store.register(WORKER)
    await store.beat(Beat(worker=WORKER.id, counters='{"stale_writes:settle":3,"stale_writes:stage":2,"claimed_jobs":9}'))
    await store.enqueue([planned.call.job for planned in plan])
    yield store
    await store.close()


async def end_as_intended(store: Store, plan: list[Planned]) -> None:
    good = [planned for planned in plan if planned.state is State.SUCCEEDED]
    await store.complete({planned.id: planned.result or "null" for planned in good})
    await store.fail({planned.id: Error(planned.code or "") for planned in plan if planned not in good})


async def test_an_account_of_intended_ends_adds_up(store: Store, plan: list[Planned]) -> None:
    await end_as_intended(store, plan)
    account = await take_account(store, plan, **NOTHING_HELD)
    assert account.adds_up
    assert account.problems == []
    assert account.succeeded + account.failed_as_intended == account.enqueued == len(plan)
    assert account.failed_as_intended == sum(planned.state is State.FAILED for planned in plan) > 0
    assert (account.stale_writes_refused, account.stale_writes) == (5, {"settle": 3, "stage": 2})


async def test_a_job_that_the_store_does_not_know_is_lost(store: Store, plan: list[Planned]) -> None:
    await end_as_intended(store, plan)
    await store.delete([plan[7].id])
    account = await take_account(store, plan, **NOTHING_HELD)
    assert (account.adds_up, account.lost, account.wrong) == (False, 1, 0)
    assert [problem.job for problem in account.problems] == [plan[7].id]


async def test_a_job_that_has_not_ended_is_lost(store: Store, plan: list[Planned]) -> None:
    await end_as_intended(store, plan[1:])
    account = await take_account(store, plan, **NOTHING_HELD)
    assert (account.adds_up, account.lost, account.wrong) == (False, 1, 0)
    assert [(problem.job, problem.what) for problem in account.problems] == [
        (plan[0].id, f"{plan[0].task}: lost, it is still ready")
    ]


async def test_an_end_that_was_not_intended_is_wrong(store: Store, plan: list[Planned]) -> None:
    failing = next(planned for planned in plan if planned.state is State.FAILED)
    other_code = next(planned for planned in plan if planned.state is State.FAILED and planned is not failing)
    other_result, canceled = [planned for planned in plan if planned.state is State.SUCCEEDED][:2]
    await store.complete({failing.id: "null", other_result.id: '"something else"'})
    await store.fail({other_code.id: Error("ANOTHER_CODE")})
    await store.cancel([canceled.id])
    await end_as_intended(store, plan)
    account = await take_account(store, plan, **NOTHING_HELD)
    assert (account.adds_up, account.lost, account.wrong, account.canceled) == (False, 0, 4, 1)
    assert {problem.job for problem in account.problems} == {failing.id, other_code.id, other_result.id, canceled.id}
    assert account.succeeded + account.failed_as_intended == len(plan) - 4


async def test_a_job_that_ended_twice_is_wrong(store: Store, plan: list[Planned]) -> None:
    await end_as_intended(store, plan)
    await store.reopen([plan[0].id])
    await end_as_intended(store, plan)
    account = await take_account(store, plan, **NOTHING_HELD)
    assert (account.adds_up, account.wrong) == (False, 1)
    assert "ended 2 times" in account.problems[0].what


async def test_a_broken_lease_that_nobody_recovered_does_not_add_up(store: Store, plan: list[Planned]) -> None:
    await end_as_intended(store, plan)
    account = await take_account(store, plan, killed=Blow("worker-1", {plan[3].id: 1}), frozen=NOTHING_HELD["frozen"])
    assert not account.adds_up
    assert [problem.job for problem in account.problems] == [plan[3].id]


@pytest.mark.parametrize("late", [False, True])
async def test_a_lease_was_not_broken_where_its_outcome_was_on_its_way(
    store: Store, plan: list[Planned], *, late: bool
) -> None:
    ended = next(planned for planned in plan if planned.task == "quick")
    await end_as_intended(store, [planned for planned in plan if planned is not ended])
    claimed = await claim(store, ended)
    if late:
        await store.rewind(60)
    write = settle(Succeeded(ended.result or ""), claimed.policy.retry, claimed.failures, claimed.claimed_at, lambda: 0.5)
    await store.settle([Settlement(claimed.lease, write)])
    account = await take_account(store, plan, killed=NOTHING_HELD["killed"], frozen=Blow("worker-2", {ended.id: 1}))
    assert account.frozen_holding == int(late)
    assert [problem.job for problem in account.problems] == ([ended.id] if late else [])


async def test_a_part_that_was_done_twice_does_not_add_up(store: Store, plan: list[Planned]) -> None:
    picture = next(planned for planned in plan if planned.task == "render")
    kept, redone = "part 1", "part 2"
    await end_as_intended(store, [planned for planned in plan if planned is not picture])
    first = await claim(store, picture)
    for name in (kept, redone):
        await make_part(store, first, name)
    await store.rewind(60)
    assert [reaped.job_id for reaped in await store.reap(10)] == [picture.id]
    await store.rewind(60)
    await store.promote(10)
    second = await claim(store, picture)
    await make_part(store, second, redone)
    write = settle(Succeeded(picture.result or ""), second.policy.retry, second.failures, second.claimed_at, lambda: 0.5)
    await store.settle([Settlement(second.lease, write)])
    killed = Blow("worker-1", {picture.id: 1})
    account = await take_account(store, plan, killed=killed, frozen=NOTHING_HELD["frozen"])
    assert (account.recovered, account.killed_holding, account.wrong, account.lost) == (1, 1, 0, 0)
    assert (account.parts_kept, account.parts_redone) == (1, 1)
    assert [(problem.job, problem.what) for problem in account.problems] == [(picture.id, "render: done twice: part 2")]
    assert not account.adds_up


async def test_without_a_blow_or_a_refusal_nothing_was_shown(store: Store, plan: list[Planned]) -> None:
    await end_as_intended(store, plan)
    assert not (await take_account(store, plan, killed=None, frozen=None)).adds_up
    await store.beat(Beat(worker=WORKER.id, counters="{}"))
    assert not (await take_account(store, plan, **NOTHING_HELD)).adds_up


@pytest.mark.parametrize("options", [[], ["--json"]])
async def test_an_account_that_does_not_add_up_ends_with_1_and_names_the_job(
    store: Store, plan: list[Planned], options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await end_as_intended(store, plan)
    good = await take_account(store, plan, **NOTHING_HELD)
    await store.delete([plan[7].id])
    cooked = await take_account(store, plan, **NOTHING_HELD)
    assert (exit_code(good, options, monkeypatch), exit_code(cooked, options, monkeypatch)) == (0, 1)
    assert str(plan[7].id) in capsys.readouterr().out


def exit_code(account: Account, options: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command as if the demonstration had given this account."""
    monkeypatch.setattr("holdfast.cli.demo._run", lambda **_options: account)
    return run(["demo", *options])


async def test_the_printed_account_says_whether_it_adds_up(store: Store, plan: list[Planned]) -> None:
    await end_as_intended(store, plan)
    good, bad = StringIO(), StringIO()
    print_account(await take_account(store, plan, **NOTHING_HELD), Console(file=good, width=120))
    await store.delete([plan[7].id])
    print_account(await take_account(store, plan, **NOTHING_HELD), Console(file=bad, width=120))
    assert "It adds up." in good.getvalue()
    assert "It does not add up." in bad.getvalue()
    assert f"{plan[7].id}  {plan[7].task}: lost" in bad.getvalue()


def test_a_seed_gives_the_same_plan_again() -> None:
    def shape(seed: int) -> list[tuple[str, str, str | None]]:
        return [(planned.task, planned.call.job.args, planned.result) for planned in make_plan(100, seed)]

    assert shape(1) == shape(1) != shape(2)
    assert len(shape(1)) == 100


async def claim(store: Store, planned: Planned) -> Claimed:
    (claimed,) = await store.claim(ClaimRequest(worker=WORKER.id, tasks=frozenset({planned.task}), limit=1, look=True))
    assert claimed.job_id == planned.id
    return claimed


async def make_part(store: Store, claimed: Claimed, name: str) -> None:
    data = f'{{"attempt":{claimed.attempt},"pixels":0}}'
    await store.mark([StageMark(lease=claimed.lease, name=name, event=Event.STAGE_ENTER)])
    await store.checkpoint([Checkpoint(claimed.lease, Part(name, PartState.COMPLETED, data=data))])
    await store.mark([StageMark(lease=claimed.lease, name=name, event=Event.STAGE_LEAVE)])
