"""Enqueue, rendered as parameters of one statement without any I/O, so that it can run on anybody's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.job import NewJob, OnConflict, policy_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

ENQUEUE: Final = f"SELECT job_id, answer, holder FROM {{schema}}.enqueue({', '.join(f'${n}' for n in range(1, 26))})"
CAP: Final = "SELECT {schema}.cap($1, $2)"
"""Follows the enqueues of a call, in their transaction, where queues are capped."""
MOST_WAITING: Final = 2**63 - 1

_encode = msgspec.json.Encoder().encode


def render(jobs: Sequence[NewJob]) -> list[Any]:
    """Return the parameters of one enqueue call.

    What jobs share is sent once, as a shape; what no job has is sent as NULL.
    """
    shapes: dict[tuple[Any, ...], int] = {}
    index: list[int] = []
    for job in jobs:
        shape = (job.queue, job.task, job.priority, job.requires, job.fifo, job.lease, job.policy)
        index.append(shapes.setdefault(shape, len(shapes) + 1))
    firsts = dict(zip(reversed(index), reversed(jobs), strict=True))
    shared = [firsts[number] for number in range(1, len(shapes) + 1)]
    edges = [(job.id, position, chain) for job in jobs for position, chain in enumerate(job.after)]
    return [
        [job.lane for job in shared],
        [job.entry for job in shared],
        [job.queue for job in shared],
        [job.task for job in shared],
        [job.priority for job in shared],
        [_encode(sorted(job.requires)).decode() for job in shared],
        [milliseconds(job.lease) for job in shared],
        [policy_text(job.policy) for job in shared],
        [job.id for job in jobs],
        index,
        [job.args for job in jobs],
        _column(jobs, lambda job: job.delay or None),
        _column(jobs, lambda job: job.run_at),
        _column(jobs, lambda job: job.unique and job.unique.scope),
        _column(jobs, lambda job: job.unique and job.unique.key),
        _column(jobs, lambda job: job.unique and job.unique.window),
        _column(jobs, lambda job: job.unique and job.unique.on_conflict.value),
        _column(jobs, lambda job: job.chain_id),
        _column(jobs, lambda job: _encode(job.tags).decode() if job.tags else None),
        _column(jobs, lambda job: job.trace),
        _column(jobs, lambda job: job.expires_in),
        [job.policy.on_blocker_failure.value for job in jobs] if edges else None,
        [edge[0] for edge in edges] or None,
        [edge[1] for edge in edges] or None,
        [edge[2] for edge in edges] or None,
    ]


def calls(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Split a batch, in order, where one statement could not do what the jobs say one after the other.

    The server takes the keys of a call before it creates its jobs. So a job that may replace another has a call of its
    own, and a job begins a new call when its id is there already, when its key belongs to a job of the call that may end
    at once (it has blockers), and when it waits for a job of the call that may turn out to exist, under another id.
    """
    call: list[NewJob] = []
    ids: dict[UUID, NewJob] = {}
    keys: dict[tuple[str, str], NewJob] = {}
    alone = False
    for job in jobs:
        key = (job.unique.scope, job.unique.key) if job.unique else None
        contends = key in keys and bool(keys[key].after)
        waits = any(chain in ids and ids[chain].unique for chain in job.after)
        replaces = job.unique is not None and job.unique.on_conflict is not OnConflict.SKIP
        if call and (alone or replaces or contends or waits or job.id in ids):
            yield call
            call, ids, keys = [], {}, {}
        alone = replaces
        call.append(job)
        ids[job.id] = job
        if key:
            keys.setdefault(key, job)
    if call:
        yield call


def render_cap(queues: Iterable[str], caps: Mapping[str, int]) -> tuple[list[str], list[int]] | None:
    """Return the parameters of `CAP` for the queues in which a call has created jobs; `None`: none of them is capped.

    In order of their names: those who create jobs in the same queues wait for each other in the same order.
    """
    capped = sorted(caps.keys() & set(queues))
    return (capped, [max(-1, min(caps[queue], MOST_WAITING)) for queue in capped]) if capped else None


def standing(job: NewJob, stands_for: Mapping[UUID, UUID]) -> NewJob:
    """Return a job that waits for the holders of keys where it named jobs that were not created because of them."""
    if not stands_for or stands_for.keys().isdisjoint(job.after):
        return job
    return msgspec.structs.replace(job, after=tuple(dict.fromkeys(stands_for.get(chain, chain) for chain in job.after)))


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one."""
    return max(1, round(seconds * 1000))


def _column(jobs: Sequence[NewJob], value: Callable[[NewJob], Any]) -> list[Any] | None:
    values = [value(job) for job in jobs]
    return None if all(item is None for item in values) else values
