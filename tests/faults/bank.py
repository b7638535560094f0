"""A bank whose deposits must count once each, and a careless one whose deposits need not."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import asyncpg

from holdfast import Holdfast, Job
from tests.faults.tasks import AT_ONCE, ENDLESS
from tests.faults.tracing import URL, note

if TYPE_CHECKING:
    from uuid import UUID

ACCOUNTS = 10
"""Deposits go to several accounts: they would wait for each other at one."""

app = Holdfast(os.environ.get(URL, "memory://"))


@app.on_worker
def tell(event: str, worker: UUID) -> None:
    note(event, worker=str(worker))


def is_file(url: str) -> bool:
    return url.startswith("sqlite")


def statement(url: str) -> str:
    return f"UPDATE balance SET amount = amount + 1 WHERE account = {'?' if is_file(url) else '$1'}"


@app.task(retry=ENDLESS, lease=2)
async def deposit(account: int, *, job: Job) -> str:
    """Adds 1 in the job's own transaction."""
    async with job.transaction() as tx:
        await tx.execute(statement(app.url), account)
        if not is_file(app.url):  # there an open transaction keeps everybody else waiting
            await asyncio.sleep(0.002)
        receipt = tx.complete(f"deposited to {account}")
    await asyncio.sleep(0.005)  # so that some die between their commit and their end
    return receipt


@app.task(retry=ENDLESS, lease=2)
async def careless_deposit(account: int) -> str:
    """Adds 1 in a transaction of its own, and is settled later."""
    if is_file(app.url):
        with closing(sqlite3.connect(app.url.removeprefix("sqlite:///"), timeout=30)) as connection, connection:
            connection.execute(statement(app.url), (account,))
    else:
        bank = await asyncpg.connect(app.url)
        try:
            await bank.execute(statement(app.url), account)
        finally:
            await bank.close()
    await asyncio.sleep(0.05)
    return f"deposited to {account}"


@app.task(retry=AT_ONCE, lease=2)
async def charge(amount: int, *, job: Job) -> int:
    """Does what no transaction can undo, and says under which fence."""
    note("charged", job=str(job.id), fence=job.fence)
    return amount


@app.task(retry=AT_ONCE, lease=2)
async def pack(*, job: Job) -> str:
    """Is followed by `ship`."""
    note("began", job=str(job.id), attempt=job.attempt)
    return job.continue_with(ship)


@app.task(retry=AT_ONCE, lease=2)
async def ship(*, job: Job) -> str:
    """Is the last step."""
    note("began", job=str(job.id), attempt=job.attempt)
    return "shipped"


async def open_accounts(url: str) -> None:
    """Create the accounts, all empty."""
    create = "CREATE TABLE balance (account int PRIMARY KEY, amount int NOT NULL)"
    rows = ", ".join(f"({account}, 0)" for account in range(ACCOUNTS))
    for text in (create, f"INSERT INTO balance VALUES {rows}"):
        await query(url, text)


async def total(url: str) -> int:
    """Return what is in all accounts together."""
    return int((await query(url, "SELECT sum(amount) FROM balance"))[0][0])


async def query(url: str, text: str) -> list[tuple[int, ...]]:
    """Run a statement on the database of the jobs, committed at once."""
    if is_file(url):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as connection, connection:
            return connection.execute(text).fetchall()
    bank = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await bank.fetch(text)]
    finally:
        await bank.close()
