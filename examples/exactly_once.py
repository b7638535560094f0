"""Effects that happen once: what a handler writes in its job's transaction commits with the end of the job, or not at all."""

import asyncio
import sqlite3

from holdfast import Holdfast, Job, Retry

app = Holdfast("sqlite:///jobs.db")


@app.task(retry=Retry(max_attempts=3, initial=0.1))
async def deposit(account: str, amount: int, *, job: Job) -> int:
    async with job.transaction() as tx:
        await tx.execute("UPDATE balance SET amount = amount + ? WHERE account = ?", amount, account)
        rows = await tx.execute("SELECT amount FROM balance WHERE account = ?", account)
        total = int(rows[0][0])
        await receipt.options(conn=tx).enqueue(account, total)
        if job.attempt == 1:
            raise ConnectionError("the first attempt dies here")
        return tx.complete(total)


@app.task(atomic=True)
async def close(account: str, *, job: Job) -> str:
    await job.tx.execute("DELETE FROM balance WHERE account = ?", account)
    return f"{account} is closed"


@app.task()
async def receipt(account: str, total: int) -> str:
    return f"{account} holds {total}"


async def main() -> None:
    async with app, app.worker():
        create_accounts()
        job = await deposit.enqueue("anna", 10)
        print("balance:", await job.result(timeout=60), "after attempt", (await job.view()).attempt)
        print("receipts:", sum((await app.stats())["tasks"]["exactly_once.receipt"].values()))
        closing = await close.enqueue("anna")
        print(await closing.result(timeout=60))


def create_accounts() -> None:
    with sqlite3.connect("jobs.db") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, amount INTEGER NOT NULL)")
        connection.execute("INSERT INTO balance VALUES ('anna', 0)")


if __name__ == "__main__":
    asyncio.run(main())
