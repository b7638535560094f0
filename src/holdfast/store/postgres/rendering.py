"""What statements take: jobs and settlements as arrays, without any I/O, so that they can be run on anybody's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.job import NewJob, OnConflict, policy_text
from holdfast.core.states import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from holdfast.core.lease import Lease
    from holdfast.core.settle import Write
    from holdfast.store.port import Settlement


def call(function: str, *types: str) -> str:
    """Return a call of a server function with a cast parameter for each type.

    Drivers guess types by the values they see, and an array of NULLs or of small numbers is guessed wrong: so each is said.
    """
    return f"{{schema}}.{function}({', '.join(f'${n}::{type_}' for n, type_ in enumerate(types, start=1))})"


ENQUEUE: Final = "SELECT job_id, answer, holder, chain FROM " + call(
    "enqueue",
    *("bigint[]", "bigint[]", "text[]", "text[]", "smallint[]", "text[]", "bigint[]", "text[]", "uuid[]", "int[]", "text[]"),
    *("float8[]", "timestamptz[]", "text[]", "text[]", "float8[]", "text[]", "uuid[]", "text[]", "text[]", "float8[]"),
    *("int[]", "uuid[]", "int[]", "uuid[]", "text[]", "boolean"),
)
_SHAPE: Final = ("bigint", "bigint", "text", "text", "smallint", "text", "bigint", "text")
ENQUEUE_PLAIN: Final = "SELECT " + call("enqueue_plain", *_SHAPE, "uuid[]", "text[]", "text[]", "text[]")
"""For jobs of which `alike` says so, in a transaction of the store's own."""
ENQUEUE_ONE: Final = "SELECT " + call("enqueue_one", *_SHAPE, "uuid", "text", "text", "text")
"""For one such job."""
AND_NOTIFY: Final = ", pg_notify($13, $14)"
"""Goes with either."""
WITH_LINE: Final = (
    "WITH line AS (INSERT INTO {schema}.audit (at, actor, action, targets, count, detail) "
    "VALUES (clock_timestamp(), $13, $14, $15, $16, $17)) "
)
"""Goes before either, instead: all of it is one statement, and one transaction."""
CAP: Final = f"SELECT {call('cap', 'text[]', 'bigint[]', 'boolean')}"
"""Follows the enqueues of a call, in their transaction, where queues are capped."""
TAKE_TURNS: Final = f"SELECT {call('take_turns', 'text[]', 'text[]')}"
"""Comes before the enqueues of a call, where there are several."""
SETTLE: Final = "SELECT job_id, answer, chain FROM " + call(
    "settle",
    *("boolean", "uuid[]", "uuid[]", "text[]", "text[]", "int[]", "boolean[]", "float8[]", "timestamptz[]", "text[]"),
    *("text[]", "text[]", "text[]", "uuid[]", "text[]"),
)
PROVE: Final = f"SELECT late FROM {call('prove', 'uuid[]', 'uuid[]')}"
AWAITED: Final = "SELECT chain FROM {schema}.awaited($1::uuid[])"
"""Precedes the creation of next steps that wait for chains."""
MOST_WAITING: Final = 2**63 - 1
MOST_TURNS: Final = 1000
"""Beyond this many keys one lock stands for all: the server has room for a limited number. In a caller's transaction none
does, for it would be held as long as that is open: two that want the same keys in a circle are told so by the server."""

_NULLS: Final = frozenset({None, "null"})

_encode = msgspec.json.Encoder().encode


def render(jobs: Sequence[NewJob], *, steps_of: Mapping[UUID, UUID], doubt: bool) -> list[Any]:
    """Return the parameters of one enqueue call.

    What jobs share is sent once, as a shape; what no job has is sent as NULL. `steps_of` says of which chain a job is the next
    step. `doubt`: the transaction is a caller's.
    """
    shapes: dict[tuple[Any, ...], int] = {}
    index: list[int] = []
    for job in jobs:
        shape = (job.queue, job.task, job.priority, job.entry_needs, job.fifo, job.lease, job.policy)
        index.append(shapes.setdefault(shape, len(shapes) + 1))
    firsts = dict(zip(reversed(index), reversed(jobs), strict=True))
    shared = [firsts[number] for number in range(1, len(shapes) + 1)]
    # a job that waits in the lane of its key is counted in another, which may be unknown yet: a shape of no job tells of it
    counted = {job.lane: job for job in shared if job.limit is not None}
    shared += [msgspec.structs.replace(job, limit=None) for job in counted.values()]
    edges = [
        (job.id, position, chain, job.policy.on_blocker_failure.value)
        for job in jobs
        for position, chain in enumerate(job.after)
    ]
    return [
        [job.lane for job in shared],
        [job.entry for job in shared],
        [job.queue for job in shared],
        [job.task for job in shared],
        [job.priority for job in shared],
        [_encode(sorted(job.entry_needs)).decode() for job in shared],
        [milliseconds(job.lease) for job in shared],
        [policy_text(job.policy) for job in shared],
        [job.id for job in jobs],
        index,
        [job.args for job in jobs],
        _column(jobs, lambda job: float(job.delay) if job.delay else None),
        _column(jobs, lambda job: job.run_at),
        _column(jobs, lambda job: job.unique and job.unique.scope),
        _column(jobs, lambda job: job.unique and job.unique.key),
        _column(jobs, lambda job: _float(job.unique.window) if job.unique else None),
        _column(jobs, lambda job: job.unique and job.unique.on_conflict.value),
        _column(jobs, lambda job: steps_of.get(job.id, job.chain_id)),
        _column(jobs, lambda job: _tags(job.tags)),
        _column(jobs, lambda job: job.trace),
        _column(jobs, lambda job: _float(job.expires_in)),
        [len(job.after) or None for job in jobs] if edges else None,
        [edge[0] for edge in edges] or None,
        [edge[1] for edge in edges] or None,
        [edge[2] for edge in edges] or None,
        [edge[3] for edge in edges] or None,
        doubt,
    ]


def alike(jobs: Sequence[NewJob]) -> bool:
    """Tell whether jobs are plain and of one shape: ready at once, and different in no more than args, tags and trace."""
    first = jobs[0]
    task, queue, policy, lease = first.task, first.queue, first.policy, first.lease
    priority, needs, fifo = first.priority, first.needs, first.fifo
    # a loop, and the shape compared field by field: this is done for every job of every batch
    for job in jobs:
        if job.unique is not None or job.delay or job.run_at is not None or job.chain_id is not None:
            return False
        if (
            job.after
            or job.expires_in is not None
            or job.limit is not None
            or job.task != task
            or job.queue != queue
            or job.lease != lease
        ):
            return False
        if job.priority != priority or job.fifo is not fifo or job.needs != needs:
            return False
        if job.policy is not policy and job.policy != policy:
            return False
    return True


def render_plain(jobs: Sequence[NewJob]) -> list[Any]:
    """Return the parameters of `ENQUEUE_PLAIN`, or of `ENQUEUE_ONE`. What no job has is sent as NULL."""
    shape = jobs[0]
    lane = shape.lane
    shared = [
        lane,
        shape.entry if shape.fifo else lane,
        shape.queue,
        shape.task,
        shape.priority,
        _encode(sorted(shape.needs)).decode() if shape.needs else "[]",
        milliseconds(shape.lease),
        policy_text(shape.policy),
    ]
    if len(jobs) == 1:
        return [*shared, shape.id, shape.args, _tags(shape.tags), shape.trace]
    return [
        *shared,
        [job.id for job in jobs],
        [job.args for job in jobs],
        _unless_none([_tags(job.tags) for job in jobs]),
        _unless_none([job.trace for job in jobs]),
    ]


def calls(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Split a batch, in order, where one statement could not do what the jobs say one after the other.

    The server takes the keys of a call before it creates its jobs. So a job that may replace another has a call of its
    own, and a job begins a new call when its id is there already, when its key belongs to a job of the call that may end
    at once (it has blockers), and when it waits for a job of the call that may turn out to exist, under another id.
    """
    batch: list[NewJob] = []
    ids: dict[UUID, NewJob] = {}
    keys: dict[tuple[str, str], NewJob] = {}
    alone = False
    for job in jobs:
        key = (job.unique.scope, job.unique.key) if job.unique else None
        contends = key in keys and bool(keys[key].after)
        waits = any(chain in ids and ids[chain].unique for chain in job.after)
        replaces = job.unique is not None and job.unique.on_conflict is not OnConflict.SKIP
        if batch and (alone or replaces or contends or waits or job.id in ids):
            yield batch
            batch, ids, keys = [], {}, {}
        alone = replaces
        batch.append(job)
        ids[job.id] = job
        if key:
            keys.setdefault(key, job)
    if batch:
        yield batch


def render_turns(batches: Sequence[Sequence[NewJob]], *, doubt: bool) -> tuple[list[str], list[str]] | None:
    """Return the parameters of `TAKE_TURNS`, scopes and keys of the jobs that have one; `None`: no turns are to be taken."""
    uniques = [job.unique for batch in batches for job in batch if job.unique is not None]
    if len(uniques) > MOST_TURNS:
        return None if doubt else ([""], [""])
    return [unique.scope for unique in uniques], [unique.key for unique in uniques]


def render_cap(queues: Iterable[str], caps: Mapping[str, int]) -> tuple[list[str], list[int]] | None:
    """Return the first parameters of `CAP` for the queues in which a call has created jobs; `None`: none of them is capped.

    In order of their names: those who create jobs in the same queues wait for each other in the same order.
    """
    capped = sorted(caps.keys() & set(queues))
    return (capped, [max(-1, min(caps[queue], MOST_WAITING)) for queue in capped]) if capped else None


def standing(job: NewJob, stands_for: Mapping[UUID, UUID]) -> NewJob:
    """Return a job that waits for the chains that hold keys, where it named jobs that were not created because of them."""
    if not stands_for or stands_for.keys().isdisjoint(job.after):
        return job
    return msgspec.structs.replace(job, after=tuple(dict.fromkeys(stands_for.get(chain, chain) for chain in job.after)))


def render_settle(settlements: Sequence[Settlement], *, reap: bool) -> list[Any]:
    """Return the parameters of one settle call. What all say is sent as NULL."""
    writes = [settlement.write for settlement in settlements]
    results = [write.result for write in writes]
    plain = all_succeeded(settlements)
    return [
        reap,
        *columns([settlement.lease for settlement in settlements]),
        *([None] * 6 if plain else _events(writes)),
        None if _NULLS.issuperset(results) else results,
        *([None] * 5 if plain else _reasons(settlements)),
    ]


def all_succeeded(settlements: Sequence[Settlement]) -> bool:
    """Tell whether a batch is what most are: nothing but successes."""
    succeed = Event.SUCCEED  # an enum takes its time to find a member
    return not [True for settlement in settlements if settlement.write.event is not succeed]


def _events(writes: Sequence[Write]) -> list[Any]:
    return [
        [write.event.value for write in writes],
        [write.state.value for write in writes],
        [write.failures for write in writes],
        [write.front for write in writes],
        [_float(write.delay) for write in writes],
        [write.run_at for write in writes],
    ]


def _reasons(settlements: Sequence[Settlement]) -> list[Any]:
    errors = [settlement.write.error for settlement in settlements]
    next_steps = [settlement.then and settlement.then.id for settlement in settlements]
    signals = [settlement.signal for settlement in settlements]
    return [
        [error and error.code for error in errors],
        [error and error.message for error in errors],
        [error and (error.traceback or None) for error in errors],
        next_steps if any(next_steps) else None,
        signals if any(signals) else None,
    ]


def columns(leases: Sequence[Lease]) -> tuple[list[UUID], list[UUID]]:
    """Return ids and tokens as the arrays that statements take."""
    return [lease.job_id for lease in leases], [lease.token for lease in leases]


def without_repeats(leases: Sequence[Lease]) -> list[list[int]]:
    """Split a batch, in order, into runs of indices in which no job appears twice."""
    if len({lease.job_id for lease in leases}) == len(leases):
        return [list(range(len(leases)))]
    rounds: list[list[int]] = [[]]
    seen: set[UUID] = set()
    for index, lease in enumerate(leases):
        if lease.job_id in seen:
            rounds.append([])
            seen.clear()
        rounds[-1].append(index)
        seen.add(lease.job_id)
    return rounds


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one."""
    return max(1, round(seconds * 1000))


def _column(jobs: Sequence[NewJob], value: Callable[[NewJob], Any]) -> list[Any] | None:
    return _unless_none([value(job) for job in jobs])


def _unless_none(values: list[Any]) -> list[Any] | None:
    """Return a column, or `None` where there is nothing in it."""
    return None if values.count(None) == len(values) else values


def _tags(tags: tuple[str, ...]) -> str | None:
    return _encode(tags).decode() if tags else None


def _float(number: float | None) -> float | None:
    """Return a float: some drivers refuse lists in which whole numbers and others are mixed."""
    return None if number is None else float(number)
