"""The tasks of the demonstration: one of each kind that a real application has, in small.

Leases and rests are short, so that one can watch them lapse. Budgets are generous where a job is meant to succeed: a lapse
spends one attempt, and here workers are killed on purpose.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from zlib import crc32

from holdfast import Fatal, Holdfast, Job, Retry, Retryable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

URL_VARIABLE: Final = "HOLDFAST_DEMO_URL"
LIFELINE_VARIABLE: Final = "HOLDFAST_DEMO_LIFELINE"
"""The descriptor of a pipe that ends when the demonstration does."""

LEASE: Final = 2.0
PATIENT: Final = Retry(max_attempts=12, initial=0.2, factor=1.5, max=1.0)
IMPATIENT: Final = Retry(max_attempts=3, initial=0.2, factor=1.5, max=1.0)
FAILURES: Final = 2
"""How often `flaky` fails before it succeeds."""
STEP: Final = 0.25
"""Seconds that a step of `slow` and of `report` takes."""
PART: Final = 0.35
"""Seconds that a part of `render` takes."""
DECLINED: Final = "CARD_DECLINED"

app = Holdfast(os.environ.get(URL_VARIABLE, "memory://"))


@app.lifespan
@asynccontextmanager
async def lifeline() -> AsyncIterator[None]:
    """Stop this worker when the demonstration that started it is gone, however it went."""
    descriptor = os.environ.get(LIFELINE_VARIABLE)
    if descriptor is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(int(descriptor))
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(int(descriptor), gone)
    yield
    loop.remove_reader(int(descriptor))


@app.task(name="quick", lease=LEASE, retry=PATIENT, timeout=30)
async def quick(number: int) -> int:
    """Take a few milliseconds."""
    await asyncio.sleep(0.005)
    return number * number


@app.task(name="slow", lease=LEASE, retry=PATIENT, timeout=30)
async def slow(steps: int, *, job: Job) -> str:
    """Take two or three seconds, and say how far it is."""
    for step in range(1, steps + 1):
        await asyncio.sleep(STEP)
        job.progress(100 * step / steps, f"step {step} of {steps}")
    return f"{steps} steps"


@app.task(name="flaky", lease=LEASE, retry=PATIENT, timeout=30)
async def flaky(number: int, *, job: Job) -> int:
    """Fail twice, then succeed."""
    await asyncio.sleep(0.02)
    if job.failures < FAILURES:
        raise Retryable(f"no answer to call {job.failures + 1}", code="UPSTREAM_DOWN")
    return number


@app.task(name="fatal", lease=LEASE, retry=PATIENT, timeout=30)
async def fatal(number: int) -> None:
    """Fail at once, for another attempt cannot help."""
    await asyncio.sleep(0.01)
    raise Fatal(f"card {number} is declined", code=DECLINED)


@app.task(name="doomed", lease=LEASE, retry=IMPATIENT, timeout=30)
async def doomed(number: int) -> None:
    """Fail until the budget is spent."""
    await asyncio.sleep(0.01)
    raise Retryable(f"host {number} does not answer", code="UPSTREAM_DOWN")


@app.task(name="report", lease=LEASE, retry=PATIENT, timeout=30)
def report(pages: int, *, job: Job) -> str:
    """Block a thread for a while, and log."""
    for page in range(1, pages + 1):
        job.abort.wait(STEP)
        job.abort.check()
        job.log.info("page %d of %d", page, pages)
    return f"{pages} pages"


@app.task(name="crunch", lease=LEASE, retry=PATIENT, timeout=30, executor="process")
def crunch(most: int) -> int:
    """Compute in a process of its own: how many primes there are up to a number."""
    return primes(most)


@app.task(name="render", lease=LEASE, retry=PATIENT, timeout=60)
async def render(scene: int, parts: int, *, job: Job) -> int:
    """Make a picture of many parts, each written down when it is done: a later attempt makes only what is missing."""
    for number in range(1, parts + 1):
        name = part_name(number)
        if job.done(name):
            continue
        # the stage in the event log is what the account goes by: a part that was left must never be entered again
        with job.stage(name):
            await asyncio.sleep(PART)
            await job.checkpoint(name, data={"attempt": job.attempt, "pixels": pixels(scene, number)})
        job.progress(100 * number / parts, f"part {number} of {parts}")
    return sum(job.data(part_name(number))["pixels"] for number in range(1, parts + 1))


def part_name(number: int) -> str:
    """Return what a part of a picture is called."""
    return f"part {number}"


def pixels(scene: int, number: int) -> int:
    """Return what a part of a picture looks like."""
    return crc32(f"{scene}/{number}".encode())


def primes(most: int) -> int:
    """Count primes, the slow way."""
    return sum(all(number % divisor for divisor in range(2, int(number**0.5) + 1)) for number in range(2, most + 1))
