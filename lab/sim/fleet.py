"""The fleet that is simulated: an app as users write one, its workers, and clients that carry out a plan."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from holdfast import Holdfast, Job, Retry
from holdfast.core.states import TERMINAL
from holdfast.errors import JobNotFound, KeyBusy, NotAllowed, StoreUnavailable
from holdfast.runtime.worker import RunningWorker
from holdfast.runtime.world import WorkerOptions
from lab.sim.history import Run
from lab.sim.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from holdfast import Handle
    from lab.sim.loop import NodeLoop
    from lab.sim.plan import Order
    from lab.sim.run import Simulation
    from lab.sim.world import Node

T = TypeVar("T")

LEASE: Final = 4.0
BUDGET: Final = 4
OUTSIDE: Final = "7"
"""What somebody completes a job with from outside, as it is stored."""
RETRY: Final = Retry(max_attempts=BUDGET, initial=0.3, factor=2.0, max=2.0)


class Here:
    """The environment of whatever node runs now, for an app that all nodes share."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_node().environment, name)


class HereAdapters:
    """The adapters of whatever node runs now."""

    url = "memory://"

    def store(self) -> Any:
        """Return a handle of that node on the simulated store."""
        return _simulation().store(_node())

    def notifier(self) -> Any:
        """Return the notifier of that node."""
        return _simulation().notifier(_node())


def _node() -> Node:
    return cast("NodeLoop", asyncio.get_running_loop()).node


def _simulation() -> Simulation:
    return cast("Simulation", _node().world.owner)


app = Holdfast("memory://", environment=cast("Any", Here()))
app._adapters = cast("Any", HereAdapters())  # the only seam at which every node has its own
app.queue("line", fifo=True)
app.queue("stopped")


@contextmanager
def _run_of(job: Job) -> Iterator[None]:
    """Write down from when until when a handler ran."""
    node = _node()
    runs = _simulation().history.runs
    run = Run(node.name, node.life, job.id, job.attempt, node.world.time)
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
    """Tell of progress, and go on where the last attempt was."""
    with _run_of(job):
        parts = 3 + int(2 * seconds)
        for part in range(parts):
            if not job.done(f"part-{part}"):
                await asyncio.sleep(seconds / parts)
                job.checkpoint(f"part-{part}", data={"attempt": job.attempt})
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
            _node().world.complaints.append(f"job {job.id}: attempt {job.attempt} has slept, and began with attempt {first}")
        return number


async def _attempt(attempt: int) -> int:
    return attempt


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
        app.world(),
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


async def order_all(simulation: Simulation, node: Node) -> None:
    """Be a client: carry out what was ordered of it and is not done yet, each order on its own."""
    left = [one for one in simulation.plan.orders if one.client == node.name and one.number not in simulation.carried_out]
    async with asyncio.TaskGroup() as group:
        for order in left:
            group.create_task(_carry_out(simulation, node, order))


async def _carry_out(simulation: Simulation, node: Node, order: Order) -> None:
    await asyncio.sleep(max(0.0, order.at - node.world.time))
    for handle in await _enqueue(simulation, order):
        simulation.history.acknowledged[handle.id] = order
    simulation.carried_out.add(order.number)


async def _enqueue(simulation: Simulation, order: Order) -> list[Handle[Any]]:
    number, seconds, failures = order.number, order.seconds, order.failures
    match order.kind:
        case Kind.DELETE:
            doomed = step.options(id=app.new_id())
            chain = await insist(lambda: doomed.start_chain(number, order.size, seconds, failures))
            simulation.history.acknowledged[chain.id] = order
            await asyncio.sleep(order.after)
            with suppress(JobNotFound):  # an answer was lost
                await insist(lambda: chain.delete(by="somebody"))
            return []
        case Kind.PAUSE:
            await insist(lambda: app.pause("stopped", reason="as was ordered"))
            calls = [work.options(queue="stopped").call(number, seconds / 4, failures) for _ in range(order.size)]
            held = await insist(lambda: app.enqueue_many(calls))
            await asyncio.sleep(order.after)
            await insist(lambda: app.resume("stopped"))
            return held
        case Kind.CHAIN:
            first = step.options(id=app.new_id())
            return [await insist(lambda: first.start_chain(number, order.size, seconds, failures))]
        case Kind.GATHER:
            calls = [work.call(number, seconds, min(failures, 2)) for _ in range(order.size)]
            parts = await insist(lambda: app.enqueue_many(calls))
            for handle in parts:
                simulation.history.acknowledged[handle.id] = order
            last = gather.options(after=parts, id=app.new_id())
            return [*parts, await insist(lambda: last.enqueue(number, min(seconds, 2.0)))]
        case Kind.KEYED:
            keyed = work.options(key=f"key-{number % 2}", id=app.new_id())
            return [await insist(lambda: keyed.enqueue(number, seconds, failures))]
        case Kind.REPLACE:
            newer = work.options(key=f"key-{number % 2}", on_conflict="replace", id=app.new_id())
            return [await insist(lambda: newer.enqueue(number, seconds, failures))]
        case Kind.ORDERED:
            calls = [ordered.call(number, seconds / 4) for _ in range(order.size)]
            return await insist(lambda: app.enqueue_many(calls))
        case Kind.EFFECT:
            call = effect.call(number, seconds, failures)
        case Kind.REPORT:
            call = report.call(number, seconds, failures)
        case Kind.LISTEN:
            call = listen.call(number, min(failures, 2))
        case Kind.NAP:
            call = nap.call(number, order.after + 0.1)
        case Kind.LATER:
            call = work.options(delay=order.after).call(number, seconds, failures)
        case Kind.OUTSIDE | Kind.CANCEL if number % 2:
            call = effect.call(number, seconds, failures)
        case Kind.RETRY:
            call = work.call(number, min(seconds, 1.0), 99)
        case _:
            call = work.call(number, seconds, failures)
    handles = await insist(lambda: app.enqueue_many([call]))
    for handle in handles:
        simulation.history.acknowledged[handle.id] = order
    if order.kind in AFTERWARDS:
        await asyncio.sleep(order.after)
        await AFTERWARDS[order.kind](handles[0], order)
    return handles


async def _cancel(handle: Handle[Any], _: Order) -> None:
    await insist(lambda: handle.cancel("as was ordered"))


async def _complete(handle: Handle[Any], _: Order) -> None:
    await insist(lambda: app.complete(handle, int(OUTSIDE), by="somebody"))


async def _signal(_: Handle[Any], order: Order) -> None:
    await insist(lambda: app.signal(f"signal-{order.number}", order.number))


async def _retry(handle: Handle[Any], _: Order) -> None:
    while (await insist(handle.state)) not in TERMINAL:  # noqa: ASYNC110  it is asked for from outside
        await asyncio.sleep(1.0)
    with suppress(NotAllowed):  # an answer was lost, and it is live again
        await insist(handle.retry)


AFTERWARDS: Final = {Kind.CANCEL: _cancel, Kind.OUTSIDE: _complete, Kind.RETRY: _retry, Kind.LISTEN: _signal}


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again and again, as a careful client does, until there is an answer."""
    while True:
        try:
            return await ask()
        except (StoreUnavailable, KeyBusy):
            await asyncio.sleep(0.2 + 0.3 * _node().environment.random())
