"""What a handler writes in its job's transaction happens once, whatever dies on the way; what it writes elsewhere does not."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tests.faults import bank
from tests.faults.cutting import CuttingProxy
from tests.faults.support import chance, until

if TYPE_CHECKING:
    import random

    from holdfast import Task
    from tests.faults.support import Fleet, WorkerProcess

DEPOSITS = 2_000
CARELESS = 400
"""Fewer: each kill makes some of them twice, so it does not take many to show it."""
WORKERS = 2
LEAST_FAULTS = 5
MOST_KILLS = 6
A_FEW = 3


async def test_a_deposit_in_the_jobs_transaction_counts_once_under_kills_and_cuts(fleet: Fleet) -> None:
    kills, cuts = await struck_while_depositing(fleet, bank.deposit, DEPOSITS, MOST_KILLS)

    assert await bank.total(fleet.url) == DEPOSITS
    assert kills >= LEAST_FAULTS
    assert cuts >= LEAST_FAULTS or bank.is_file(fleet.url)


async def test_a_deposit_in_a_transaction_of_its_own_counts_more_than_once_under_kills(fleet: Fleet) -> None:
    await struck_while_depositing(fleet, bank.careless_deposit, CARELESS, A_FEW)

    assert await bank.total(fleet.url) > CARELESS, "the faults do no harm to anybody: the test above shows nothing"


async def struck_while_depositing(fleet: Fleet, task: Task[..., Any], count: int, most: int) -> tuple[int, int]:
    """Have so many deposits made while workers are killed, and answers to commits are lost; returns how often each happened."""
    rng = chance()
    await bank.open_accounts(fleet.url)
    handles = await fleet.enqueue(*[task.call(n % bank.ACCOUNTS) for n in range(count)])
    async with AsyncExitStack() as stack:
        proxy = None if bank.is_file(fleet.url) else await stack.enter_async_context(CuttingProxy(fleet.url))
        workers = [start(fleet, proxy) for _ in range(WORKERS)]
        await fleet.working(*workers)
        kills = 0
        while (live := (await fleet.store.stats()).live) > 0:
            if kills < most:
                # so that all are at work by then
                await until_left(fleet, max(0, live - rng.randrange(count // 40, count // 10)))
                await strike(fleet, workers, proxy, rng)
                kills += 1
            if proxy is not None and live > count // 10:  # the last ones would be cut off every time
                proxy.cut_the_answer_to("COMMIT")
            await asyncio.sleep(rng.uniform(0.0, 0.2))
        await fleet.succeeded(handles)
        return kills, 0 if proxy is None else proxy.cuts


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
