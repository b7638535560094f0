"""What is worth telling people without being asked."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.outcome import RETRIES_EXHAUSTED
from holdfast.core.redact import redact
from holdfast.core.states import Event
from holdfast.server.alerts.kinds import Alert, AlertKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from holdfast.store.port import FailureView

PATTERN_SECONDS: Final = 600.0
PATTERN_COUNT: Final = 3
"""So many failures of a task, or of a unique key, in so many seconds are a pattern."""
NAMED: Final = 10
"""Jobs, tasks or workers that one alert names; of more it says how many."""

LAPSES: Final = frozenset({Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL, Event.EXPIRE_CANCEL})
FAILURES: Final = frozenset(
    {Event.FAIL, Event.RETRY, Event.RETRY_LATER, Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL, Event.FAIL_OUTSIDE}
)


def lapses(failures: Sequence[FailureView]) -> Alert | None:
    """Tell of jobs whose lease lapsed."""
    some = [one for one in failures if one.event in LAPSES]
    return _of_jobs(AlertKind.STALE_JOB_RECOVERED, some, "lost its worker and was taken care of")


def exhausted(failures: Sequence[FailureView]) -> Alert | None:
    """Tell of jobs that have spent their budget."""
    some = [one for one in failures if one.error.code == RETRIES_EXHAUSTED]
    return _of_jobs(AlertKind.JOB_MAX_RETRIES_EXCEEDED, some, "has failed for good, with its budget spent")


def pattern(failures: Sequence[FailureView], news: Sequence[FailureView] | None = None) -> Alert | None:
    """Tell of tasks and keys that failed often among these; `news`, some of them, are those that nobody was told of yet."""
    some = [one for one in failures if one.event in FAILURES]
    new = some if news is None else [one for one in news if one.event in FAILURES]
    tasks = _bursts(some, new, lambda one: one.task)
    groups: list[dict[str, Any]] = [{"task": task, "failures": count} for task, count in tasks]
    named = {group["task"] for group in groups}
    keys = _bursts(some, new, lambda one: None if one.task in named else one.key)  # over several tasks
    groups += [{"key": redact(key), "failures": count} for key, count in keys]
    if not groups:
        return None
    worst = groups[0]
    what = worst["task"] if "task" in worst else f"what has the key {worst['key']}"
    text = f"{what} failed {worst['failures']} times in {PATTERN_SECONDS / 60:g} minutes"
    if len(groups) > 1:
        text += f", and so did {len(groups) - 1} more"
    return Alert(kind=AlertKind.JOB_FAILED_PATTERN, text=text, count=len(groups), about=tuple(groups[:NAMED]))


def _bursts(
    some: Sequence[FailureView], news: Sequence[FailureView], group_of: Callable[[FailureView], str | None]
) -> list[tuple[str, int]]:
    """Return the groups in which some news is the last of many failures within the time of a pattern, worst first."""
    moments: defaultdict[str | None, list[datetime]] = defaultdict(list)
    for one in sorted(some, key=lambda one: one.at):
        moments[group_of(one)].append(one.at)
    worst: Counter[str] = Counter()
    for one in news:
        if (group := group_of(one)) is not None:
            times = moments[group]
            count = bisect_right(times, one.at) - bisect_left(times, one.at - timedelta(seconds=PATTERN_SECONDS))
            worst[group] = max(worst[group], count)
    return [(group, count) for group, count in worst.most_common() if count >= PATTERN_COUNT]


def of_workers(kind: AlertKind, workers: Sequence[dict[str, Any]]) -> Alert | None:
    """Tell of workers that have started, or stopped."""
    if not workers:
        return None
    verb = "started" if kind is AlertKind.WORKER_STARTUP else "stopped, or was not heard of any more"
    text = f"worker {workers[0]['name']} has {verb}"
    if len(workers) > 1:
        text += f", and so have {len(workers) - 1} more"
    return Alert(kind=kind, text=text, count=len(workers), about=tuple(workers[:NAMED]))


def _of_jobs(kind: AlertKind, some: Sequence[FailureView], what: str) -> Alert | None:
    if not some:
        return None
    first = some[0]
    text = f"job {first.job_id} ({first.task}) {what}"
    if len(some) > 1:
        text += f", and so have {len(some) - 1} more" if what.startswith("has") else f", and so were {len(some) - 1} more"
    about = tuple(
        {
            "job_id": str(one.job_id),
            "task": one.task,
            "queue": one.queue,
            "attempt": one.attempt,
            "at": one.at.isoformat(),
            "code": one.error.code,
            "message": redact(one.error.message),  # once more: the store may have it from elsewhere
        }
        for one in some[:NAMED]
    )
    return Alert(kind=kind, text=text, count=len(some), about=about)
