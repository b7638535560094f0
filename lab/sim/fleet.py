"""The fleet that is simulated: an app as users write one, and its workers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast import Holdfast, Job, Reschedule, Retry
from holdfast.errors import StoreUnavailable
from holdfast.runtime.worker import RunningWorker
from holdfast.runtime.world import WorkerOptions
from holdfast.store.port import Retention
from lab.sim.history import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.sim.loop import NodeLoop
    from lab.sim.run import Simulation
    from lab.sim.world import Node

LOG: Final = logging.getLogger("sim.fleet")
"""What handlers say is kept with their jobs; Holdfast's own loggers are not heard while a fleet is simulated."""
LEASE: Final = 4.0
BUDGET: Final = 4
TIMEOUT: Final = 3.0
"""Seconds after which a handler is stopped that tarries."""
STUBBORN: Final = 8.0
"""Seconds for which a stubborn handler goes on after it was asked to stop: longer than anybody waits for it."""
RETRY: Final = Retry(max_attempts=BUDGET, initial=0.3, factor=2.0, max=2.0)


class Here:
    """The environment of whatever node runs now, for an app that all nodes share."""

    def __getattr__(self, name: str) -> Any:
        return getattr(this_node().environment, name)


class HereAdapters:
    """The adapters of whatever node runs now."""

    url = "memory://"
    remote = False

    def store(self) -> Any:
        """Return a handle of that node on the simulated store."""
        return _simulation().store(this_node())

    def notifier(self) -> Any:
        """Return the notifier of that node."""
        return _simulation().notifier(this_node())


def this_node() -> Node:
    """Return the node that runs now."""
    return cast("NodeLoop", asyncio.get_running_loop()).node


def _simulation() -> Simulation:
    return cast("Simulation", this_node().world.owner)


app = Holdfast("memory://", environment=cast("Any", Here()))
app._adapters = cast("Any", HereAdapters())  # the only seam at which every node has its own
app.queue("line", fifo=True)
app.queue("stopped")


@contextmanager
def _run_of(job: Job) -> Iterator[None]:
    """Write down from when until when a handler ran."""
    node = this_node()
    runs = _simulation().history.runs
    run = Run(node.name, node.life, job.id, job.attempt, node.world.time, parts=frozenset(job.parts))
    runs.append(run)
    try:
        yield
    finally:
        run.ended = node.world.time


@app.task(name="work", lease=LEASE, retry=RETRY, timeout=60)
async def work(number: int, seconds: float, failures: int, job: Job) -> int:
    """Take some time, and fail some times first."""
    with _run_of(job):
        await asyncio.sleep(seconds)
        if job.failures < failures:
            raise ValueError("as was ordered")
        return number


@app.task(name="ordered", queue="line", lease=LEASE, retry=RETRY, timeout=60)
async def ordered(number: int, seconds: float, job: Job) -> int:
    """Do one thing after the other."""
    with _run_of(job):
        await asyncio.sleep(seconds)
        return number


@app.task(name="step", lease=LEASE, retry=RETRY, timeout=60)
async def step(number: int, left: int, seconds: float, failures: int, job: Job) -> int:
    """Be one step of several."""
    with _run_of(job):
        await asyncio.sleep(seconds)
        if job.failures < failures:
            raise ValueError("as was ordered")
        if left > 1:
            return job.continue_with(step, number, left - 1, seconds, 0)
        return number


@app.task(name="gather", lease=LEASE, retry=RETRY, timeout=60)
async def gather(number: int, seconds: float, job: Job) -> int:
    """Begin when others have ended."""
    with _run_of(job):
        await asyncio.sleep(seconds)
        return number


@app.task(name="child", lease=LEASE, retry=RETRY, timeout=60)
async def child(number: int, job: Job) -> int:
    """Be the effect of another job."""
    with _run_of(job):
        return number


@app.task(name="effect", lease=LEASE, retry=RETRY, timeout=60)
async def effect(number: int, seconds: float, failures: int, job: Job) -> int:
    """Have an effect in the transaction that completes the job."""
    with _run_of(job):
        if job.failures < failures:
            raise ValueError("as was ordered")
        async with job.transaction() as tx:
            # on a file it keeps every other writer waiting, and is undone after five seconds: not in the first attempt alone
            await asyncio.sleep(min(seconds, 0.3) if tx.caller.exclusive and job.attempt > 1 else seconds)
            await child.options(conn=tx).enqueue(number)
            if _simulation().plan.store == "sqlite":
                await tx.execute("INSERT INTO ledger (job) VALUES (?)", str(job.id))
            return tx.complete(number)


@app.task(name="report", lease=LEASE, retry=RETRY, timeout=60)
async def report(number: int, seconds: float, failures: int, job: Job) -> int:
    """Tell of progress and of what it meets, and go on where the last attempt was."""
    with _run_of(job), job.stage("parts"):
        parts = 3 + int(2 * seconds)
        for part in range(parts):
            if not job.done(f"part-{part}"):
                await asyncio.sleep(seconds / parts)
                job.checkpoint(f"part-{part}", data={"attempt": job.attempt})
                LOG.warning("part %d of attempt %d", part, job.attempt)
                job.progress(100 * (part + 1) / parts)
        if job.failures < failures:
            raise ValueError("as was ordered")
        return number


@app.task(name="listen", lease=LEASE, retry=RETRY, timeout=60)
async def listen(number: int, failures: int, job: Job) -> int:
    """Wait for a signal without a slot."""
    with _run_of(job):
        heard = await job.wait_for(f"signal-{number}", type=int)
        if job.failures < failures:
            raise ValueError("as was ordered")
        return heard


@app.task(name="nap", lease=LEASE, retry=RETRY, timeout=60)
async def nap(number: int, seconds: float, job: Job) -> int:
    """Sleep without a slot, between two things that are done once."""
    with _run_of(job):
        first = await job.step("first", _attempt, job.attempt)
        await job.sleep(seconds)
        await job.step("second", _attempt, job.attempt)
        if job.attempt <= first:
            this_node().world.complaints.append(
                f"job {job.id}: attempt {job.attempt} has slept, and began with attempt {first}"
            )
        return number


async def _attempt(attempt: int) -> int:
    return attempt


@app.task(name="tarry", lease=LEASE, retry=RETRY, timeout=TIMEOUT)
async def tarry(number: int, seconds: float, failures: int, job: Job) -> int:
    """Run into the time-out some times first."""
    with _run_of(job):
        await asyncio.sleep(100.0 if job.failures < failures else min(seconds, 0.5 * TIMEOUT))
        return number


@app.task(name="stubborn", lease=LEASE, retry=RETRY, timeout=60)
async def stubborn(number: int, seconds: float, failures: int, job: Job) -> int:
    """Go on for a while when asked to stop."""
    with _run_of(job):
        try:
            await asyncio.sleep(100.0 if job.failures < failures else seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(STUBBORN)
            raise
        return number


@app.task(name="again", lease=LEASE, retry=RETRY, timeout=60)
async def again(number: int, after: float, failures: int, job: Job) -> int:
    """Put itself off, which costs nothing."""
    with _run_of(job):
        if job.attempt <= failures:
            raise Reschedule(after=after)
        return number


@app.task(name="tick", lease=LEASE, retry=RETRY, cron="* * * * *", missed="all")
async def tick(job: Job) -> None:
    """Run every minute."""
    with _run_of(job):
        await asyncio.sleep(0)


async def serve(simulation: Simulation, node: Node) -> None:
    """Be a worker until asked to stop."""
    plan = simulation.plan
    options = WorkerOptions(
        name=node.name,
        version="0",
        concurrency=plan.slots,
        prefetch=plan.prefetch,
        poll=10.0,
        poll_unhinted=1.0,
        shutdown_timeout=3.0,
    )
    world = replace(
        app.world(Retention(succeeded=plan.kept)),
        environment=node.environment,
        make_store=lambda: simulation.store(node),
        make_notifier=lambda: simulation.notifier(node),
    )
    while True:
        try:
            async with RunningWorker(world, options):
                await node.asked_to_stop()
        except StoreUnavailable:  # it could not even start: somebody starts it again
            await asyncio.sleep(0.5)
        else:
            return
