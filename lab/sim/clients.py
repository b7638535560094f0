"""The clients: they carry out what a plan orders, as careful clients do, whatever becomes of the answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.core.job import BlockerPolicy
from holdfast.core.states import TERMINAL
from holdfast.errors import JobNotFound, KeyBusy, NotAllowed, StoreUnavailable
from lab.sim import fleet
from lab.sim.fleet import app, work
from lab.sim.orders import Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast import Handle
    from lab.sim.orders import Order
    from lab.sim.run import Simulation
    from lab.sim.world import Node

T = TypeVar("T")

OUTSIDE: Final = "7"
"""What somebody completes a job with from outside, as it is stored."""
LONGEST_SWEEP: Final = 15.0
"""Seconds after which somebody must have ended what has expired."""
POLICIES: Final = tuple(BlockerPolicy)
REFUSED: Final = "REFUSED"
"""The code that somebody fails a job with from outside."""


async def order_all(simulation: Simulation, node: Node) -> None:
    """Be a client: carry out what was ordered of it and is not done yet, each order on its own."""
    left = [one for one in simulation.plan.orders if one.client == node.name and one.number not in simulation.carried_out]
    async with asyncio.TaskGroup() as group:
        for order in left:
            group.create_task(_carry_out(Errand(simulation, order), node))


async def _carry_out(errand: Errand, node: Node) -> None:
    order = errand.order
    await asyncio.sleep(max(0.0, order.at - node.world.time))
    await ERRANDS[order.kind](errand)
    errand.simulation.carried_out.add(order.number)


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again and again, as a careful client does, until there is an answer."""
    while True:
        try:
            return await ask()
        except (StoreUnavailable, KeyBusy):
            await asyncio.sleep(0.2 + 0.3 * fleet.this_node().environment.random())


class Errand:
    """One order that is being carried out."""

    def __init__(self, simulation: Simulation, order: Order) -> None:
        self.simulation = simulation
        self.order = order
        self.args = (order.number, order.seconds, order.failures)

    async def many(self, calls: Sequence[Any]) -> list[Handle[Any]]:
        """Enqueue jobs, each time under other ids: what an answer that was lost has created is run as well."""
        handles = await insist(lambda: app.enqueue_many(calls))
        for handle in handles:
            self.acknowledge(handle)
        return handles

    async def one(self, call: Any) -> Handle[Any]:
        """Enqueue a job."""
        (handle,) = await self.many([call])
        return handle

    async def same(self, enqueue: Callable[[], Awaitable[Any]]) -> Any:
        """Enqueue a job or a chain that has an id: however often that is asked for, there is one."""
        handle = await insist(enqueue)
        self.acknowledge(handle)
        return handle

    def acknowledge(self, handle: Any) -> None:
        """Note that an enqueue was answered."""
        self.simulation.history.acknowledged[handle.id] = self.order

    async def wait(self) -> None:
        """Let some time pass."""
        await asyncio.sleep(self.order.after)


async def _work(errand: Errand) -> None:
    await errand.one(work.call(*errand.args))


async def _later(errand: Errand) -> None:
    order = errand.order
    delays = (order.after, order.after / 2) if order.size % 2 else (order.after,)
    await errand.many([work.options(delay=delay).call(order.number, order.seconds / 2, order.failures) for delay in delays])


async def _chain(errand: Errand, **options: Any) -> Any:
    order = errand.order
    first = fleet.step.options(id=app.new_id(), **options)
    return await errand.same(lambda: first.start_chain(order.number, order.size, order.seconds, order.failures))


async def _keyed_chain(errand: Errand) -> None:
    await _chain(errand, key=f"key-{errand.order.number % 2}")


async def _delete(errand: Errand) -> None:
    chain = await _chain(errand)
    await errand.wait()
    with suppress(JobNotFound):  # an answer was lost
        await insist(lambda: chain.delete(by="somebody"))


async def _gather(errand: Errand) -> list[Handle[Any]]:
    order = errand.order
    parts = await errand.many([work.call(*errand.args) for _ in range(order.size)])
    last = fleet.gather.options(after=parts, id=app.new_id(), on_blocker_failure=POLICIES[order.number % 3])
    await errand.same(lambda: last.enqueue(order.number, min(order.seconds, 2.0)))
    return parts


async def _needed(errand: Errand) -> None:
    part, *_ = await _gather(errand)
    await errand.wait()
    with suppress(NotAllowed, JobNotFound):  # it is waited for, as a rule; an answer was lost
        await insist(lambda: app.chain(part.id).delete(by="somebody"))


async def _keyed(errand: Errand) -> None:
    keyed = work.options(key=f"key-{errand.order.number % 2}", id=app.new_id())
    await errand.same(lambda: keyed.enqueue(*errand.args))


async def _replace(errand: Errand) -> None:
    newer = work.options(key=f"key-{errand.order.number % 2}", on_conflict="replace", id=app.new_id())
    await errand.same(lambda: newer.enqueue(*errand.args))


async def _ordered(errand: Errand) -> None:
    order = errand.order
    await errand.many([fleet.ordered.call(order.number, order.seconds / 4) for _ in range(order.size)])


async def _ranked(errand: Errand) -> None:
    order = errand.order
    ranks = [(3 * (order.number + rank)) % 10 for rank in range(order.size)]
    await errand.many([work.options(priority=rank).call(order.number, order.seconds / 4, order.failures) for rank in ranks])


async def _expiring(errand: Errand) -> None:
    order = errand.order
    if order.size % 2:
        await errand.many([work.options(expires_in=0.1 + order.after).call(*errand.args) for _ in range(order.size)])
    else:  # where nobody may claim them, until long after
        await insist(lambda: app.pause("stopped", reason="as was ordered"))
        await errand.one(work.options(queue="stopped", expires_in=1.0).call(*errand.args))
        await asyncio.sleep(1.0 + LONGEST_SWEEP)
        await insist(lambda: app.resume("stopped"))


async def _pause(errand: Errand) -> None:
    order = errand.order
    await insist(lambda: app.pause("stopped", reason="as was ordered"))
    call = work.options(queue="stopped").call(order.number, order.seconds / 4, order.failures)
    await errand.many([call for _ in range(order.size)])
    await errand.wait()
    await insist(lambda: app.resume("stopped"))


async def _effect(errand: Errand) -> None:
    await errand.one(fleet.effect.call(*errand.args))


async def _report(errand: Errand) -> None:
    await errand.one(fleet.report.call(*errand.args))


async def _nap(errand: Errand) -> None:
    await errand.one(fleet.nap.call(errand.order.number, errand.order.after + 0.1))


async def _tarry(errand: Errand) -> None:
    await errand.one(fleet.tarry.call(*errand.args))


async def _stubborn(errand: Errand) -> None:
    order = errand.order
    if order.failures:  # by its time-out, and once: then it ends by itself
        call = fleet.stubborn.options(timeout=fleet.TIMEOUT).call(order.number, min(order.seconds, 0.5 * fleet.TIMEOUT), 1)
    else:  # for so long that a worker which stops does not wait for it
        call = fleet.stubborn.call(order.number, max(order.seconds, 2 * fleet.TIMEOUT), 0)
    handle = await errand.one(call)
    if order.size == 2:
        await errand.wait()
        await insist(lambda: handle.cancel("as was ordered"))


async def _again(errand: Errand) -> None:
    order = errand.order
    await errand.one(fleet.again.call(order.number, order.after, order.failures))


async def _listen(errand: Errand) -> None:
    order = errand.order
    await errand.one(fleet.listen.call(order.number, min(order.failures, 2)))
    await errand.wait()
    await insist(lambda: app.signal(f"signal-{order.number}", order.number))


async def _either(errand: Errand) -> Handle[Any]:
    """Enqueue a job that ends in a transaction of its own, or one that does not."""
    return await errand.one((fleet.effect if errand.order.number % 2 else work).call(*errand.args))


async def _cancel(errand: Errand) -> None:
    handle = await _either(errand)
    await errand.wait()
    await insist(lambda: handle.cancel("as was ordered"))


async def _outside(errand: Errand) -> None:
    handle = await _either(errand)
    await errand.wait()
    if errand.order.size % 2:
        await insist(lambda: app.fail(handle, "as was ordered", code=REFUSED, by="somebody"))
    else:
        await insist(lambda: app.complete(handle, int(OUTSIDE), by="somebody"))


async def _retry(errand: Errand) -> None:
    order = errand.order
    handle = await errand.one(work.call(order.number, min(order.seconds, 1.0), 99))
    while (await insist(handle.state)) not in TERMINAL:  # noqa: ASYNC110  it is asked for from outside
        await asyncio.sleep(1.0)
    with suppress(NotAllowed):  # an answer was lost, and it is live again
        await insist(handle.retry)


ERRANDS: Final[dict[Kind, Callable[[Errand], Awaitable[object]]]] = {
    Kind.WORK: _work,
    Kind.LATER: _later,
    Kind.CHAIN: _chain,
    Kind.GATHER: _gather,
    Kind.KEYED: _keyed,
    Kind.ORDERED: _ordered,
    Kind.EFFECT: _effect,
    Kind.REPORT: _report,
    Kind.CANCEL: _cancel,
    Kind.OUTSIDE: _outside,
    Kind.RETRY: _retry,
    Kind.REPLACE: _replace,
    Kind.LISTEN: _listen,
    Kind.NAP: _nap,
    Kind.PAUSE: _pause,
    Kind.DELETE: _delete,
    Kind.RANKED: _ranked,
    Kind.EXPIRING: _expiring,
    Kind.TARRY: _tarry,
    Kind.STUBBORN: _stubborn,
    Kind.AGAIN: _again,
    Kind.KEYED_CHAIN: _keyed_chain,
    Kind.NEEDED: _needed,
}
"""How each kind of order is carried out."""
