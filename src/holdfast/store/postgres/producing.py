"""Enqueue, rendered as parameters of one statement without any I/O, so that it can run on anybody's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.job import NewJob, OnConflict, policy_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ENQUEUE: Final = "SELECT job_id, answer, holder FROM {schema}.enqueue(" + ", ".join(f"${n}" for n in range(1, 25)) + ")"

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
    firsts = {number: job for number, job in zip(reversed(index), reversed(jobs), strict=True)}
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
        [job.policy.on_blocker_failure.value for job in jobs] if edges else None,
        [edge[0] for edge in edges] or None,
        [edge[1] for edge in edges] or None,
        [edge[2] for edge in edges] or None,
    ]


def calls(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Split a batch, in order, so that no call holds an id twice, or a key that a later job of it would replace.

    The server takes the keys of a call before it creates its jobs: it could not cancel one that is not there yet.
    """
    call: list[NewJob] = []
    seen: set[object] = set()
    for job in jobs:
        key = (job.unique.scope, job.unique.key) if job.unique else None
        replaces = job.unique is not None and job.unique.on_conflict is not OnConflict.SKIP
        if job.id in seen or (replaces and key in seen):
            yield call
            call, seen = [], set()
        call.append(job)
        seen.update((job.id, key) if key else (job.id,))
    if call:
        yield call


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one."""
    return max(1, round(seconds * 1000))


def _column(jobs: Sequence[NewJob], value: Callable[[NewJob], Any]) -> list[Any] | None:
    values = [value(job) for job in jobs]
    return None if all(item is None for item in values) else values
