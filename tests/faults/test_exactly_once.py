"""What a handler writes in its job's transaction happens once, whatever dies on the way; what it writes elsewhere does not."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults import bank
from tests.faults.cutting import CuttingProxy
from tests.faults.support import chance, until

if TYPE_CHECKING:
    import random

    from holdfast import Task
    from tests.faults.support import Fleet, WorkerProcess

DEPOSITS = 500
CARELESS = 400
"""Fewer: each kill makes some of them twice, so it does not take many to show it."""
WORKERS = 2
FAULTS = 5
A_FEW = 3


@pytest.mark.row(2, 11)
async def test_a_deposit_in_the_jobs_transaction_counts_once_under_kills_and_cuts(fleet: Fleet) -> None:
    deposits = await struck_while_depositing(fleet, bank.deposit, DEPOSITS, FAULTS, commits=True)

    assert await bank.total(fleet.url) == deposits >= DEPOSITS


@pytest.mark.row(2)
@pytest.mark.slow  # what the test above must be measured against
async def test_a_deposit_in_a_transaction_of_its_own_counts_more_than_once_under_kills(fleet: Fleet) -> None:
    deposits = await struck_while_depositing(fleet, bank.careless_deposit, CARELESS, A_FEW, commits=False)

    assert await bank.total(fleet.url) > deposits, "the faults do no harm to anybody: the test above shows nothing"


async def struck_while_depositing(fleet: Fleet, task: Task[..., Any], count: int, faults: int, *, commits: bool) -> int:
    """Have deposits made while workers are killed, and the answers to `commits` lost, so often; returns how many there were.

    However quick the machine is, there are always some left to be struck.
    """
    rng = chance()
    await bank.open_accounts(fleet.url)
    handles = await fleet.enqueue(*[task.call(n % bank.ACCOUNTS) for n in range(count)])
    async with AsyncExitStack() as stack:
        proxy = None if bank.is_file(fleet.url) else await stack.enter_async_context(CuttingProxy(fleet.url))
        workers = [start(fleet, proxy) for _ in range(WORKERS)]
        await fleet.working(*workers)
        for _ in range(faults):
            live = (await fleet.store.stats()).live
            if live < count // 5:
                handles += await fleet.enqueue(*[task.call(n % bank.ACCOUNTS) for n in range(count // 5)])
                live += count // 5
            await until_left(fleet, live - rng.randrange(count // 40, count // 10))  # so that all are at work by then
            if proxy is not None and commits:
                await cut(proxy)
            await strike(fleet, workers, proxy, rng)
        await fleet.succeeded(handles)
    return len(handles)


async def cut(proxy: CuttingProxy) -> None:
    """Have the answer to a commit lost."""
    before = proxy.cuts
    proxy.cut_the_answer_to("COMMIT")
    await until(lambda: proxy.cuts > before, "somebody should commit")


def start(fleet: Fleet, proxy: CuttingProxy | None) -> WorkerProcess:
    name = f"teller-{len(fleet.workers)}"
    return fleet.start(name, module="tests.faults.bank", url=None if proxy is None else proxy.url, concurrency=10)


async def strike(fleet: Fleet, workers: list[WorkerProcess], proxy: CuttingProxy | None, rng: random.Random) -> None:
    """Kill one of the workers where it stands, and put another in its place."""
    place = rng.randrange(len(workers))
    await workers[place].kill()
    workers[place] = start(fleet, proxy)
    await fleet.working(workers[place])


async def until_left(fleet: Fleet, jobs: int) -> None:
    """Wait until no more than so many jobs are live."""

    async def look() -> bool:
        return (await fleet.store.stats()).live <= jobs

    await until(look, f"no more than {jobs} deposits should be left")
