"""What creating jobs and ending attempts takes, as scripts without I/O: the same on the store's connections and on a caller's.

A script is a generator. It yields statements, `$1::…` for each parameter and each once and in order; it is sent the rows, and
returns the answer. All of it belongs into one transaction. What the server refuses ends it; `refusal` says what that means.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

from holdfast.errors import BadJob, BadSetting, HoldfastError, KeyBusy, QueueFull
from holdfast.store.port import CIRCLE, Enqueue, Enqueued, Settled
from holdfast.store.postgres import rendering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Settlement

CONTINUED: Final = "continued"
"""What `settle` answers, beside all else, for a step whose next one is to be created."""
BESIDES: Final = (CONTINUED, Settled.FREED)
WRITTEN: Final = (Settled.APPLIED, Settled.LATE)


class Statement(NamedTuple):
    """What is to be run next. `{schema}` stands for the quoted name of the schema."""

    sql: str
    parameters: Sequence[Any]


Rows = Sequence[Sequence[Any]]
T = TypeVar("T")
Script = Generator[Statement, Rows, T]


async def drive(script: Script[T], fetch: Callable[[str, Sequence[Any]], Awaitable[Rows]]) -> T:
    """Run a script by running each of its statements. Suspends only where `fetch` does."""
    try:
        statement = next(script)
        while True:
            statement = script.send(await fetch(statement.sql, statement.parameters))
    except StopIteration as ended:
        answer: T = ended.value
        return answer


class NextKeyTaken(HoldfastError):
    """Other jobs hold the unique keys of these next steps: the transaction is to be undone, and made again without them."""

    def __init__(self, steps: frozenset[UUID]) -> None:
        self.steps = steps
        super().__init__("the unique key of a next step is taken")


def enqueue(jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None, callers: bool = False) -> Script[list[Enqueued]]:
    """Create jobs. `callers`: in a caller's transaction, where nothing may be locked that others wait for."""
    answers = yield from _create(jobs, steps_of={}, doubt=callers)
    if caps:
        created = {job.queue for job, answer in zip(jobs, answers, strict=True) if answer.status is Enqueue.CREATED}
        parameters = rendering.render_cap(created, caps)
        if parameters is not None:
            yield Statement(rendering.CAP, [*parameters, not callers])
    return answers


def _create(jobs: Sequence[NewJob], *, steps_of: Mapping[UUID, UUID], doubt: bool) -> Script[list[Enqueued]]:
    batches = list(rendering.calls(jobs))
    if len(batches) > 1 and (turns := rendering.render_turns(batches, doubt=doubt)) is not None:
        yield Statement(rendering.TAKE_TURNS, turns)
    answers: list[Enqueued] = []
    stands_for: dict[UUID, UUID] = {}
    for batch in batches:
        given = [rendering.standing(job, stands_for) for job in batch]
        rows = yield Statement(rendering.ENQUEUE, rendering.render(given, steps_of=steps_of, doubt=doubt))
        said = {row[0]: Enqueued(Enqueue(row[1]), row[2]) for row in rows}
        stands_for |= {row[0]: row[3] for row in rows}
        answers.extend(said.get(job.id) or Enqueued(Enqueue.CREATED, job.id) for job in batch)
    return answers


def settle(settlements: Sequence[Settlement], *, reap: bool = False) -> Script[list[Settled]]:
    """End attempts, and create the next steps of chains. Raises `NextKeyTaken`, `BadJob`; then all is to be undone."""
    leases = [settlement.lease for settlement in settlements]
    answers = [Settled.STALE] * len(settlements)
    for keep in rendering.without_repeats(leases):
        batch = settlements if len(keep) == len(settlements) else [settlements[index] for index in keep]
        rows = yield Statement(rendering.SETTLE, rendering.render_settle(batch, reap=reap))
        if not rows and batch is settlements:  # nearly always
            return [Settled.APPLIED] * len(settlements)
        said = {row[0]: Settled(row[1]) for row in rows if row[1] not in BESIDES}
        for index in keep:
            answers[index] = said.get(leases[index].job_id, Settled.APPLIED)
        if any(row[1] == Settled.FREED for row in rows):
            # one that was canceled instead stays so: who commits its transaction must know
            for index in [index for index in keep if answers[index] in WRITTEN][:1]:
                answers[index] = Settled.FREED
        if chains := {row[0]: row[2] for row in rows if row[1] == CONTINUED}:
            yield from _continue(batch, chains)
    return answers


def _continue(settlements: Sequence[Settlement], chains: Mapping[UUID, UUID]) -> Script[None]:
    """Create the next steps of attempts that were ended a moment ago."""
    steps = [
        (settlement.then, chains[settlement.lease.job_id])
        for settlement in settlements
        if settlement.then is not None and settlement.lease.job_id in chains
    ]
    waits = {chain: then.after for then, chain in steps if then.after}
    for then, chain in steps:
        if then.after and (yield from _waits_for(chain, waits)):
            raise BadJob(CIRCLE, path="then.after", task=then.task)
    answers = yield from _create([then for then, _ in steps], steps_of={then.id: chain for then, chain in steps}, doubt=False)
    for (then, _), answer in zip(steps, answers, strict=True):
        if answer.status is Enqueue.REPEATED:
            raise BadJob(f"there is a job {then.id} already", path="then.id", task=then.task)
    taken = [then.id for (then, _), answer in zip(steps, answers, strict=True) if answer.status is Enqueue.EXISTING]
    if taken:
        raise NextKeyTaken(frozenset(taken))


def _waits_for(chain: UUID, waits: Mapping[UUID, Sequence[UUID]]) -> Script[bool]:
    """Tell whether a chain would wait for its own end, by itself or through others; `waits` is what this call adds to that."""
    seen: set[UUID] = set()
    front = set(waits[chain])
    while front:
        rows = yield Statement(rendering.AWAITED, [list(front)])
        reached = {row[0] for row in rows}
        if chain in reached:
            return True
        seen |= reached
        front = {one for link in reached for one in waits.get(link, ())} - seen
    return False


def prove(lease: Lease) -> Script[Settled]:
    """Hold a lease in place until the transaction ends."""
    rows = yield Statement(rendering.PROVE, rendering.columns([lease]))
    if not rows:
        return Settled.STALE
    return Settled.LATE if rows[0][0] else Settled.APPLIED


def refusal(state: str, message: str, jobs: Sequence[NewJob], caps: Mapping[str, int] | None = None) -> HoldfastError | None:
    """Return what the server's refusal to create these jobs means; `None`: nothing of ours."""
    match state:
        case "HF001":  # as open_waiters.sql raises it, and so on
            return _bad_blocker(f"there is no job {message} to wait for", UUID(message), jobs)
        case "HF004":
            step, chain = message.split()
            return _bad_blocker(f"job {step} is a step of chain {chain}: name the chain", UUID(step), jobs)
        case "HF003":
            depth, queue = message.split(" ", 1)
            return QueueFull(queue, int(depth), (caps or {})[queue])
        case "HF007":
            return wrong_level(message)
        case "HF008":
            return KeyBusy(list(dict.fromkeys(job.unique.key for job in jobs if job.unique is not None)))
        case "55P03" if jobs:
            return KeyBusy(ids=[job.id for job in jobs])
        case _:
            return None


def _bad_blocker(reason: str, blocker: UUID, jobs: Sequence[NewJob]) -> BadJob:
    for job in jobs:
        if blocker in job.after:
            return BadJob(reason, path=f"after[{job.after.index(blocker)}]", task=job.task)
    return BadJob(reason, path="after")


def wrong_level(level: str) -> BadSetting:
    """Return the refusal of what must see what others commit meanwhile, in a transaction that keeps its first view."""
    return BadSetting(
        f"this transaction runs at the isolation level {level}: jobs that have come to wait since it began, and signals that "
        "were given, are not seen in it, and would be lost. What ends an attempt is taken at READ COMMITTED only. Begin the "
        "transaction with that level, or write as its first statement: SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
    )
