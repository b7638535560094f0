"""The tasks of the soak, as a user would write them: of every kind that Holdfast offers, and some that misbehave.

Each one that returns gives the number of its attempt. If a worker that has lost its lease could write anything, the result of
a job would name another attempt than the store does.
"""

# ruff: noqa: ARG001, D401  what makes args of jobs differ need not be read; a handler is described, not commanded

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
from typing import Any, Final

from holdfast import Fatal, Holdfast, Job, Retry, Retryable, State

URL: Final = "SOAK_URL"
CRON: Final = "SOAK_CRON"
"""Set to `off` it leaves the schedule alone: for workers that only finish what is there."""
LEASE: Final = 3.0
EVERY: Final = 2
"""Seconds between two slots of the schedule."""
PATIENT: Final = Retry(max_attempts=25, initial=0.2, max=2.0)
"""A budget that no storm spends: what fails for good has failed for another reason."""
POISON_BUDGET: Final = 2
LINE: Final = "line"
"""The queue that keeps its order."""
HEAVY: Final = "heavy"
"""The queue of what needs a process of its own; few workers serve it."""
PARTS: Final = 4
RELAY: Final = "relay"
FIRST_LEG: Final = 0.8
NEXT_LEG: Final = FIRST_LEG if os.environ.get(CRON) == "off" else 2 * LEASE
"""Seconds that the first attempt of a relay takes, and each later one: when faults are over, nothing late can meet it."""
APPROVED_WITHIN: Final = 6.0
"""Seconds that a job waits for somebody to complete it."""

app = Holdfast(os.environ.get(URL, "memory://"))
app.queue(LINE, fifo=True)
INTO_LEDGER: Final = "INSERT INTO ledger (job, attempt, amount) VALUES " + (
    "(?, ?, ?)" if app.url.startswith("sqlite") else "($1, $2, $3)"
)


def returned(job: Job) -> str:
    """Return what every handler returns."""
    return f"attempt {job.attempt}"


def rest(seconds: float) -> None:
    """Block the thread for so long; unlike `time.sleep`, libfaketime leaves this alone."""
    threading.Event().wait(seconds)


# -- short ones ------------------------------------------------------------------------------------------------------------


@app.task(name="short", retry=PATIENT, lease=LEASE, timeout=30)
async def short(number: int, *, job: Job) -> str:
    """Hardly does anything; one in five takes a moment, so that there is always somebody at work."""
    if number % 5 == 0:
        await asyncio.sleep(0.5)
    return returned(job)


@app.task(name="flaky", retry=PATIENT, lease=LEASE, timeout=30)
async def flaky(number: int, fails: int, *, job: Job) -> str:
    """Fails so often before it succeeds."""
    if job.failures < fails:
        raise Retryable(f"not yet, {number}", code="NOT_YET")
    return returned(job)


@app.task(name="nap", retry=PATIENT, lease=LEASE, timeout=30)
async def nap(number: int, seconds: float, *, job: Job) -> str:
    """Takes its time: somebody cancels it, or completes it from outside, or neither."""
    await asyncio.sleep(seconds)
    return returned(job)


@app.task(name="approve", executor="outside", expires_in=APPROVED_WITHIN)
async def approve(number: int) -> str:
    """Waits for somebody to complete it; no worker runs it."""
    raise NotImplementedError


@app.task(name="line", queue=LINE, retry=PATIENT, lease=LEASE, timeout=30)
async def line(number: int, *, job: Job) -> str:
    """Is started in the order in which it was enqueued."""
    return returned(job)


@app.task(name="user", key="user:{user}", retry=PATIENT, lease=LEASE, timeout=30)
async def user(number: int, user: int, *, job: Job) -> str:
    """Is the only one of its user at a time, which would be seen best of those that take long."""
    await asyncio.sleep(1.5 if number % 4 == 0 else 0.2)
    return returned(job)


@app.task(name="report", retry=PATIENT, lease=LEASE, timeout=30)
async def report(number: int, stumbles: bool, *, job: Job) -> str:  # noqa: FBT001  an arg of a job, given by name
    """Does several parts, and says how far it is; goes on where the attempt before it was."""
    for part in range(PARTS):
        if job.done(f"part {part}"):
            continue
        await asyncio.sleep(0.05)
        if stumbles and part == PARTS // 2 and job.attempt == 1:
            raise ConnectionError("stumbled half way")
        await job.checkpoint(f"part {part}", data={"number": number, "attempt": job.attempt})
        job.progress(100 * (part + 1) / PARTS, f"part {part} by {job.attempt}")
    if not all(job.data(f"part {part}")["number"] == number for part in range(PARTS)):
        raise LookupError("a part is not as it was written")
    return returned(job)


@app.task(name="doze", retry=PATIENT, lease=LEASE, timeout=30)
def doze(number: int, *, job: Job) -> str:
    """Runs in a thread."""
    rest(0.05)
    return returned(job)


@app.task(name=RELAY, retry=PATIENT, lease=LEASE, timeout=30)
def relay(number: int, *, job: Job) -> str:
    """Is short the first time, and long the next: what the first sends too late meets the next one at work.

    Runs in a thread, which nobody can stop: it comes to its end, and sends what it gave, though its lease was lost meanwhile.
    """
    rest(FIRST_LEG if job.attempt == 1 else NEXT_LEG)
    return returned(job)


@app.task(name="toil", queue=HEAVY, executor="process", retry=PATIENT, lease=LEASE, timeout=30)
def toil(number: int, seconds: float, *, job: Job) -> str:
    """Runs in a process of its own."""
    rest(seconds)
    return returned(job)


BY_THE_CLOCK: dict[str, Any] = {} if os.environ.get(CRON) == "off" else {"cron": f"*/{EVERY} * * * * *", "missed": "all"}


@app.task(name="tick", retry=PATIENT, lease=LEASE, timeout=30, **BY_THE_CLOCK)
async def tick(*, job: Job) -> str:
    """Comes by the clock."""
    return returned(job)


# -- effects ---------------------------------------------------------------------------------------------------------------


@app.task(name="deposit", retry=PATIENT, lease=LEASE, timeout=30)
async def deposit(number: int, amount: int, stumbles: bool, *, job: Job) -> str:  # noqa: FBT001  as above
    """Writes a line into the ledger, in the transaction that completes it."""
    async with job.transaction() as tx:
        await tx.execute(INTO_LEDGER, str(job.id), job.attempt, amount)
        if stumbles and job.failures == 0:
            raise ConnectionError("stumbled with the line written")
        return tx.complete(returned(job))


@app.task(name="withdraw", atomic=True, retry=PATIENT, lease=LEASE, timeout=30)
def withdraw(number: int, amount: int, *, job: Job) -> str:
    """Does the same in a thread, all of it in one transaction."""
    job.tx_sync.execute(INTO_LEDGER, str(job.id), job.attempt, amount)
    return returned(job)


@app.task(name="confirm", retry=PATIENT, lease=LEASE, timeout=30)
async def confirm(number: int, *, job: Job) -> str:
    """Follows an order that was stored in the same transaction."""
    return returned(job)


# -- what follows from others ----------------------------------------------------------------------------------------------


@app.task(name="check", continues_with=["charge"], retry=PATIENT, lease=LEASE, timeout=30)
async def check(number: int, amount: int, *, job: Job) -> str:
    """The first step of a chain."""
    return job.continue_with(charge, number, amount)


@app.task(name="charge", continues_with=["ship"], retry=PATIENT, lease=LEASE, timeout=30)
async def charge(number: int, amount: int, *, job: Job) -> str:
    """The second step, with an effect in the transaction that ends it."""
    async with job.transaction() as tx:
        await tx.execute(INTO_LEDGER, str(job.id), job.attempt, amount)
        return tx.continue_with(ship, number)


@app.task(name="ship", retry=PATIENT, lease=LEASE, timeout=30)
async def ship(number: int, *, job: Job) -> str:
    """The last step."""
    return returned(job)


@app.task(name="part", retry=PATIENT, lease=LEASE, timeout=30)
async def part(number: int, *, job: Job) -> str:
    """One of several that somebody waits for."""
    return returned(job)


@app.task(name="total", retry=PATIENT, lease=LEASE, timeout=30)
async def total(number: int, parts: int, *, job: Job) -> str:
    """Begins when all its parts have ended, and is handed what they gave."""
    ended = [one for one in job.blockers if one.state == State.SUCCEEDED]
    if not len(ended) == len(job.results_of(part)) == parts:
        raise Fatal(f"{len(ended)} of {parts} parts have ended", code="BEGUN_TOO_EARLY")
    return returned(job)


@app.task(name="parent", retry=PATIENT, lease=LEASE, timeout=30)
async def parent(number: int, *, job: Job) -> str:
    """Enqueues a child by itself: one in each attempt that gets so far."""
    await child.enqueue(number, str(job.id))
    return returned(job)


@app.task(name="child", retry=PATIENT, lease=LEASE, timeout=30)
async def child(number: int, parent: str, *, job: Job) -> str:
    """Was enqueued by a handler."""
    return returned(job)


@app.task(name="mother", retry=PATIENT, lease=LEASE, timeout=30)
async def mother(number: int, *, job: Job) -> str:
    """Enqueues a child in the transaction that completes it: exactly one."""
    async with job.transaction() as tx:
        await son.options(conn=tx).enqueue(number, str(job.id))
        return tx.complete(returned(job))


@app.task(name="son", retry=PATIENT, lease=LEASE, timeout=30)
async def son(number: int, parent: str, *, job: Job) -> str:
    """Was enqueued in the transaction of a handler."""
    return returned(job)


# -- those that misbehave --------------------------------------------------------------------------------------------------


@app.task(name="poison", retry=Retry(max_attempts=POISON_BUDGET, initial=0.1), lease=LEASE, timeout=30)
async def poison(number: int) -> str:
    """Takes down whoever runs it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.task(name="block", retry=PATIENT, lease=LEASE, timeout=30)
async def block(number: int, seconds: float, *, job: Job) -> str:
    """Blocks the event loop of its worker, the first time."""
    if job.attempt == 1:
        rest(seconds)  # the fault itself
    return returned(job)


@app.task(name="hog", retry=PATIENT, lease=LEASE, timeout=30)
async def hog(number: int, seconds: int, *, job: Job) -> str:
    """Makes a call that does not let go of the interpreter, the first time: no thread of its worker runs."""
    if job.attempt == 1:
        ctypes.PyDLL(None).sleep(seconds)
    return returned(job)
