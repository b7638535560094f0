"""Tasks that behave badly, and tasks that suffer from those that do."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job, Retry, StaleLease
from tests.faults.tracing import TURN, URL, is_open, note, opened

if TYPE_CHECKING:
    from uuid import UUID

AT_ONCE = Retry(max_attempts=3, initial=0.0)
"""Failures are followed by the next attempt without a rest: what is measured is recovery, not patience."""
ENDLESS = Retry(max_attempts=None, initial=0.0)
"""For jobs that may be struck again and again, and should not rest after it."""

app = Holdfast(os.environ.get(URL, "memory://"))


@app.on_worker
def tell(event: str, worker: UUID) -> None:
    note(event, worker=str(worker))


def begin(job: Job) -> None:
    note("began", job=str(job.id), attempt=job.attempt, task=job.task)


def end(job: Job) -> None:
    note("ended", job=str(job.id), attempt=job.attempt, task=job.task)


# -- good ones -------------------------------------------------------------------------------------------------------------


@app.task(retry=AT_ONCE, lease=2)
async def nap(seconds: float, *, job: Job) -> int:
    """Works for so long."""
    begin(job)
    await asyncio.sleep(seconds)
    end(job)
    return job.attempt


@app.task(retry=AT_ONCE, lease=2)
async def echo(text: str, *, job: Job) -> str:
    """Says what it was told."""
    begin(job)
    return f"{text}!"


@app.task(retry=AT_ONCE, lease=2)
async def hand_on(one: str, other: str, *, job: Job) -> str:
    """Is followed by `echo`, which is told something that nobody else has in one piece."""
    begin(job)
    return job.continue_with(echo, f"{one} {other}")


@app.task(retry=AT_ONCE, lease=2)
async def report(how: str, one: str, other: str, *, job: Job) -> None:
    """Reports what nobody else has in one piece."""
    begin(job)
    if how == "progress":
        job.progress(50, f"{one} {other}")
    else:
        await job.checkpoint("part", data=f"{one} {other}")


@app.task(retry=AT_ONCE, lease=2)
def doze(seconds: float, *, job: Job) -> int:
    """Works for so long in a thread."""
    begin(job)
    time.sleep(seconds)
    end(job)
    return job.attempt


@app.task(retry=AT_ONCE, lease=10, executor="process")
def toil(seconds: float, *, job: Job) -> int:
    """Works for so long in a process of its own."""
    begin(job)
    time.sleep(seconds)
    end(job)
    return os.getpid()


@app.task(retry=AT_ONCE, lease=2)
async def wait_first(*, job: Job) -> int:
    """Waits for ever the first time it is run; ends at once every other time."""
    begin(job)
    if job.attempt == 1:
        await asyncio.get_running_loop().create_future()
    end(job)
    return job.attempt


@app.task(retry=AT_ONCE, lease=2)
async def wait_for(gate: str, *, job: Job) -> int:
    """Ends when the test opens the gate."""
    begin(job)
    await opened(gate)
    end(job)
    return job.attempt


# -- frozen ----------------------------------------------------------------------------------------------------------------


@app.task(retry=AT_ONCE, lease=1)
def outlive(*, job: Job) -> str:
    """Goes on after its lease was lost, as a handler does that was frozen: reports, and returns what must not count."""
    begin(job)
    if job.attempt > 1:
        job.progress(75, "the second")
        job.checkpoint("part", data="the second")
        while not is_open("end"):
            time.sleep(TURN)
        return "the second"
    if not job.abort.wait(60):
        note("not asked to stop", job=str(job.id))
    note("asked to stop", job=str(job.id), reason=job.abort.reason)
    job.progress(50, "the first")
    try:
        job.checkpoint("part", data="the first")
    except StaleLease:
        note("checkpoint refused", job=str(job.id))
    end(job)
    return "the first"


# -- endless ---------------------------------------------------------------------------------------------------------------


@app.task(retry=AT_ONCE, lease=2)
async def block(seconds: float, *, job: Job) -> int:
    """Blocks the event loop."""
    begin(job)
    time.sleep(seconds)  # noqa: ASYNC251  # the line that blocks
    end(job)
    return job.attempt


@app.task(retry=1, lease=15, timeout=1)
async def block_for_ever(gate: str, *, job: Job) -> None:
    """Blocks the event loop, and will not let it go."""
    begin(job)
    await opened(gate)
    while True:
        time.sleep(3600)  # noqa: ASYNC251  the fault itself


@app.task(retry=1, lease=15, timeout=1)
async def await_for_ever(*, job: Job) -> None:
    """Awaits what never comes."""
    begin(job)
    await asyncio.get_running_loop().create_future()


@app.task(retry=1, lease=15, timeout=1)
async def refuse_to_stop(gate: str, *, job: Job) -> str:
    """Swallows its cancellation, again and again."""
    begin(job)
    while not is_open(gate):
        try:
            await asyncio.sleep(TURN)
        except asyncio.CancelledError:
            note("cancelled in vain", job=str(job.id))
    end(job)
    return "too late"


@app.task(retry=1, lease=15, timeout=1)
def run_for_ever(gate: str, *, job: Job) -> str:
    """Never looks at `job.abort`, in a thread that nobody can kill."""
    begin(job)
    while not is_open(gate):
        time.sleep(TURN)
    end(job)
    return "too late"


@app.task(retry=Retry(max_attempts=2, initial=0.0), lease=15, timeout=1.5, executor="process")
def spin(*, job: Job) -> None:
    """Loops without end in a process of its own."""
    begin(job)
    while True:
        pass


@app.task(retry=AT_ONCE, lease=1)
async def hold_interpreter(gate: str, seconds: int, *, job: Job) -> int:
    """Makes a call that does not let go of the interpreter, so that no other thread of the process runs."""
    begin(job)
    await opened(gate)
    if job.attempt == 1:
        ctypes.PyDLL(None).sleep(seconds)
    end(job)
    return job.attempt


@app.task(retry=AT_ONCE, lease=1, executor="process")
def hold_other_interpreter(seconds: int, *, job: Job) -> int:
    """Makes such a call in a process of its own."""
    begin(job)
    ctypes.PyDLL(None).sleep(seconds)
    end(job)
    return job.attempt


# -- poison ----------------------------------------------------------------------------------------------------------------


@app.task(retry=AT_ONCE, lease=15, executor="process")
def crash(how: str, *, job: Job) -> None:
    """Takes its process down, or asks for more memory than there is."""
    begin(job)
    match how:
        case "a bad pointer":
            ctypes.string_at(0)
        case "the kernel":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            eaten = []
            while True:
                eaten.append(bytes(2**26))  # addresses only: they are never touched


@app.task(retry=Retry(max_attempts=2, initial=0.0), lease=1)
async def crash_worker(*, job: Job) -> None:
    """Takes the whole worker down, when the test opens the gate of its attempt."""
    begin(job)
    await opened(f"crash-{job.attempt}")
    ctypes.string_at(0)


@app.task(retry=AT_ONCE, lease=60, executor="process")
def linger(*, job: Job) -> None:
    """Stays in a process of its own until that is ended."""
    begin(job)
    time.sleep(3600)


# -- more than a store can keep --------------------------------------------------------------------------------------------


@app.task(retry=1, lease=60)
async def give(what: str, megabytes: int, *, job: Job) -> Any:
    """Returns what no store keeps."""
    begin(job)
    return _more_than_it_keeps(what, megabytes)


@app.task(retry=1, lease=60)
async def complain(what: str, megabytes: int, *, job: Job) -> None:
    """Raises what no store keeps."""
    begin(job)
    raise ValueError(_more_than_it_keeps(what, megabytes))


def _more_than_it_keeps(what: str, megabytes: int) -> Any:
    match what:
        case "object":
            return object()
        case "huge":
            return "too much" * (megabytes * 2**17)
        case "surrogate":
            return "a \ud800"
        case _:
            return "a \0"


# -- greedy ----------------------------------------------------------------------------------------------------------------


@app.task(retry=AT_ONCE, lease=2)
async def hammer(seconds: float, *, job: Job) -> int:
    """Uses the app's own connections without a break."""
    begin(job)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await app.stats()
    end(job)
    return job.attempt


@app.task(retry=AT_ONCE, lease=2)
async def hold_transaction(gate: str, *, job: Job) -> int:
    """Keeps a connection and an open transaction until the test opens the gate."""
    async with job.transaction() as tx:
        await tx.execute("SELECT 1")
        begin(job)
        await opened(gate)
        end(job)
        return tx.complete(job.attempt)
