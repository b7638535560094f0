"""Workers that die at the worst points: between a claim and a handler, an effect and its outcome, a step and the next."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.states import Event, State
from tests.faults import bank, tasks
from tests.faults.support import chance, until

if TYPE_CHECKING:
    import random

    from holdfast import Task
    from tests.faults.support import Fleet, WorkerProcess

LEASE = 10.0
EACH = 4
"""Jobs that a worker holds when it dies."""
AT_ONCE = 3
"""Workers that die inside a settlement, in one round of several where there is time."""
MORE_ROUNDS = 10
BANK = "tests.faults.bank"


@pytest.mark.row(1)
async def test_jobs_that_were_claimed_and_not_begun_are_run_elsewhere(fleet: Fleet) -> None:
    handles = await fleet.enqueue(*[tasks.nap.options(lease=LEASE).call(0.0) for _ in range(EACH)])
    victim = fleet.start("victim", program="tests.faults.points", point="claimed", concurrency=EACH)
    assert await victim.exited() == -signal.SIGKILL
    assert fleet.runs(handles) == {str(handle.id): 0 for handle in handles}, "it died too late: a handler has begun"
    claimed = [view for view in await fleet.views(handles) if view.state is State.RUNNING]
    assert claimed, "it died too early: no claim was committed"

    await survive(fleet)

    for view in await fleet.succeeded(handles):
        again = view.id in {one.id for one in claimed}
        assert (view.attempt, view.failures) == ((2, 1) if again else (1, 0)), f"{view.id}: what was claimed costs an attempt"
        events = [event.event for event in await fleet.store.events(view.id)]
        assert events.count(Event.EXPIRE) == int(again), f"a lease is ended once: {events}"
    assert set(fleet.runs(handles).values()) == {1}


@pytest.mark.row(2)
async def test_an_effect_outside_is_repeated_under_a_higher_fence_and_one_in_the_transaction_counts_once(fleet: Fleet) -> None:
    rng = chance()
    await bank.open_accounts(fleet.url)
    points: dict[str, tuple[Task[..., Any], float]] = {
        "done": (bank.charge, 0.0),
        "written": (bank.deposit, 0.0),
        "committing": (bank.deposit, soon(rng)),
        "committed": (bank.deposit, 0.0),
    }
    jobs = {
        point: await fleet.enqueue(*[task.options(queue=point, lease=LEASE).call(account) for account in range(EACH)])
        for point, (task, _) in points.items()
    }
    for victim in [start(fleet, point, queue=point, after=after, module=BANK) for point, (_, after) in points.items()]:
        assert await victim.exited() in {-signal.SIGKILL, -signal.SIGALRM}, victim.log

    async def counted() -> dict[str, int]:
        """Return how many have ended at each point, when it is what the accounts say: a server may end a commit of the dead."""
        total = await bank.total(fleet.url)
        done = {point: sum(view.state is State.SUCCEEDED for view in await fleet.views(jobs[point])) for point in points}
        return done if sum(done.values()) == total else {}

    done = await until(counted, "the accounts and the jobs should say the same")
    assert (done["done"], done["written"]) == (0, 0), "a worker died too late: an outcome was written"
    assert done["committed"] >= 1, "a worker died too early: nothing was committed"

    await survive(fleet, module=BANK)

    views = await fleet.succeeded([handle for handles in jobs.values() for handle in handles])
    assert await bank.total(fleet.url) == 3 * EACH, "a deposit counts once, whenever its worker died"
    for view in views:
        assert (view.attempt, view.failures) in {(1, 0), (2, 1)}, f"{view.task} took {view.attempt} attempts"
    fences = [[note.fields["fence"] for note in fleet.notes("charged", [handle])] for handle in jobs["done"]]
    assert [1, 2] in fences, f"what was charged and not settled is charged again: {fences}"
    assert all(numbers in ([1], [2], [1, 2]) for numbers in fences), f"a charge under a fence that is not higher: {fences}"


@pytest.mark.row(2)
async def test_a_chain_whose_worker_dies_between_two_steps_goes_on_at_no_cost(fleet: Fleet) -> None:
    (first,) = await fleet.enqueue(bank.pack.options(lease=LEASE).call())
    victim = fleet.start("victim", program="tests.faults.points", point="continued", module=BANK, concurrency=1)
    assert await victim.exited() == -signal.SIGKILL
    (chain,) = await fleet.store.chains([first.id])
    assert chain is not None
    assert chain.steps == 2, "the end of a step and the next step are one write"

    await survive(fleet, module=BANK)

    assert await first.result(timeout=60) == "shipped"
    steps = await fleet.app.chain(first.id).steps()
    assert [step.task for step in steps] == [bank.pack.name, bank.ship.name]
    for step in await fleet.store.get([step.id for step in steps]):
        assert step is not None
        assert (step.state, step.attempt, step.failures) == (State.SUCCEEDED, 1, 0), f"{step.task} was not spared"
        assert len([note for note in fleet.notes("began") if note.job == str(step.id)]) == 1, f"{step.task} was run twice"


@pytest.mark.row(2, 3)
async def test_a_death_inside_a_settlement_writes_all_of_its_batch_or_nothing(
    fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    rng = chance()
    rounds = MORE_ROUNDS if request.config.getoption("--rows") else 1
    for number in range(rounds):
        queues = [f"settling-{number}-{one}" for one in range(AT_ONCE)]
        for queue in queues:
            await fleet.enqueue(*[tasks.nap.options(lease=LEASE, queue=queue).call(0.0) for _ in range(EACH)])
        for victim in [start(fleet, "settling", queue=queue, after=soon(rng)) for queue in queues]:
            assert await victim.exited() == -signal.SIGALRM, victim.log
    ended = {str(view.id) for view in await fleet.views() if view.state is State.SUCCEEDED}
    batches = [set(note.fields["jobs"]) for note in fleet.notes("settling")]
    assert len(batches) >= rounds * AT_ONCE, "somebody died before it settled anything"
    assert all(batch <= ended or batch.isdisjoint(ended) for batch in batches), "a batch was written in part"
    print(f"{sum(batch <= ended for batch in batches)} of {len(batches)} batches were written")  # noqa: T201

    await survive(fleet)

    handles = [fleet.app.job(job_id) for job_id in fleet.jobs]
    runs = fleet.runs(handles)
    for view in await fleet.succeeded(handles):
        lost = runs[str(view.id)] - 1
        assert lost in ({0} if str(view.id) in ended else {0, 1}), f"{view.id} was run {lost + 1} times"
        assert view.attempt - 1 == view.failures <= 1, f"a death costs what was held one failure: {view}"


def soon(rng: random.Random) -> float:
    """Return how many seconds the dying live on: less than an operation takes, or more, whatever the store and the machine."""
    return math.exp(rng.uniform(math.log(0.000_1), math.log(0.03)))


def start(fleet: Fleet, point: str, *, queue: str, **options: Any) -> WorkerProcess:
    """Start a worker that serves one queue and dies at a point."""
    name = f"victim-{queue}"
    return fleet.start(name, program="tests.faults.points", point=point, queues=[queue], concurrency=EACH, **options)


async def survive(fleet: Fleet, module: str = "tests.faults.tasks") -> None:
    """Have a worker that lives find every lease of the dead lapsed."""
    await fleet.store.rewind(LEASE + 1)
    await fleet.started("survivor", module=module, concurrency=2 * EACH)
