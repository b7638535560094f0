"""Figures for Prometheus, read from the store when they are asked for: every server on it tells the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from starlette.responses import Response
from starlette.routing import Route

from holdfast.backlog import shares
from holdfast.core.figures import BOUNDS, summed
from holdfast.core.limits import LimitKind
from holdfast.core.states import State
from holdfast.runtime import counters as count
from holdfast.runtime.exposing import Who, counted, managed, told
from holdfast.server.alerts.delivering import delivers
from holdfast.server.api import serving
from holdfast.server.api.table import forbidden, unauthorized
from holdfast.server.principal import Right
from holdfast.store.port import Grain, Stats, WorkerState, patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from prometheus_client.metrics_core import Metric
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from holdfast.backlog import Share
    from holdfast.core.figures import Figure
    from holdfast.server.context import Context
    from holdfast.server.principal import Principal
    from holdfast.store.port import LimitView, QueueView, Storage, Store, WorkerView


DRAINING: Final = "draining"
"""Beside the states of workers: those that claim nothing more and end are no capacity, whatever they still run."""
LINGERS: Final = 300.0
"""For how many seconds the counts of a worker that is gone are told: until whoever scrapes has read the last of them."""


def metrics_routes(context: Context) -> list[BaseRoute]:
    """Return `/metrics`, for whoever may look."""

    async def metrics(request: Request) -> Response:
        try:
            queues = _checked(await context.door.principal(request)).queues
            hinted = {count.HINTED: int(context.notifier.healthy)}
            counts = {**context.counters.snapshot(), **hinted, **context.notifier.figures()}
            own = {Who("server", str(context.id)): counts}
            timeout = context.settings.page_timeout
            text, kind = await exposition(context.store, request.headers.get("accept", ""), own, timeout, queues=queues)
        except Exception as error:  # noqa: BLE001  told in one shape, as everywhere
            return serving.told(error)
        return Response(text, headers={"content-type": kind})

    return [Route("/metrics", metrics, methods=["GET"], name="metrics")]


def _checked(principal: Principal | None) -> Principal:
    """Return who asks, or refuse who may not look."""
    if principal is None:
        raise unauthorized()
    if not principal.may(Right.LOOK):
        raise forbidden(principal, Right.LOOK)
    return principal


async def exposition(
    store: Store,
    accept: str = "",
    own: Mapping[Who, Mapping[str, int]] | None = None,
    timeout: float = 5.0,
    *,
    queues: frozenset[str] | None = None,
) -> tuple[bytes, str]:
    """Return all figures in the form that the caller accepts, and its content type.

    `own` is what this server counted; `timeout` bounds every statement that is made for it; `queues` are those that the caller
    may see, `None`: all.
    """
    with patience(timeout):
        stats, all_queues = await store.stats(), await store.queues()
        read = Read(
            now=await store.now(),
            stats=stats,
            queues=all_queues,
            backlog=await shares(store, stats.tasks, all_queues),
            workers=await store.workers(),
            figures=[view.figure for view in await store.figures(Grain.ALL)],
            storage=await store.storage(),
            limits=[view for view in await store.limits() if view.name.key is None],
            own=own or {},
        )
    return told((read if queues is None else read.within(queues)).collect(), accept)


@dataclass(kw_only=True)
class Read:
    """What was read at one moment."""

    now: datetime
    stats: Stats
    queues: Sequence[QueueView]
    backlog: Sequence[Share]
    workers: Sequence[WorkerView]
    figures: Sequence[Figure]
    storage: Storage
    limits: Sequence[LimitView]
    """Those of queues, tasks and scopes: of single keys there may be any number."""
    own: Mapping[Who, Mapping[str, int]]

    def within(self, queues: frozenset[str]) -> Read:
        """Return what of it is about these queues; workers are everybody's."""
        oldest = {queue: age for queue, age in self.stats.oldest_waiting.items() if queue in queues}
        return replace(
            self,
            stats=Stats(tasks=[row for row in self.stats.tasks if row.queue in queues], oldest_waiting=oldest),
            queues=[view for view in self.queues if view.name in queues],
            backlog=[share for share in self.backlog if share.queue in queues],
            figures=[figure for figure in self.figures if figure.queue in queues],
            limits=[view for view in self.limits if view.name.kind is LimitKind.QUEUE and view.name.name in queues],
        )

    def collect(self) -> Iterator[Metric]:
        """Go through all metrics."""
        yield from self._jobs()
        yield from self._of_queues()
        yield from self._of_limits()
        yield from self._attempts()
        yield from self._of_workers()
        yield from self._of_storage()

    def _jobs(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("holdfast_jobs", "Jobs in each state.", labels=["queue", "task", "state"])
        for row in self.stats.tasks:
            for state, number in row.counts.items():
                jobs.add_metric([row.queue, row.task, state], number)
        yield jobs
        labels = ["queue", "task"]
        ready = GaugeMetricFamily(
            "holdfast_backlog_ready",
            "Ready jobs that a free slot would start: not paused, not held back by a limit.",
            labels=labels,
        )
        throttled = GaugeMetricFamily(
            "holdfast_backlog_throttled", "Ready jobs that a limit of their queue or task holds back.", labels=labels
        )
        for share in self.backlog:
            ready.add_metric([share.queue, share.task], share.ready)
            throttled.add_metric([share.queue, share.task], share.throttled)
        yield from (ready, throttled)

    def _of_queues(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("holdfast_queue_depth", "Jobs that are ready and wait for a worker.", labels=["queue"])
        oldest = GaugeMetricFamily(
            "holdfast_queue_oldest_seconds", "For how long the oldest ready job has waited.", labels=["queue"]
        )
        paused = GaugeMetricFamily("holdfast_queue_paused", "Whether nothing is claimed from a queue.", labels=["queue"])
        for queue in self.queues:
            depth.add_metric([queue.name], queue.counts.get(State.READY, 0))
            oldest.add_metric([queue.name], queue.oldest_waiting or 0.0)
            paused.add_metric([queue.name], float(queue.paused_at is not None))
        yield from (depth, oldest, paused)

    def _of_limits(self) -> Iterator[Metric]:
        labels = ["kind", "name"]
        running = GaugeMetricFamily(
            "holdfast_limit_running", "Jobs that run under a limit; of a scope, those of all its keys.", labels=labels
        )
        most = GaugeMetricFamily(
            "holdfast_limit_most", "How many may run at once; of a scope, with each of its keys.", labels=labels
        )
        rate = GaugeMetricFamily(
            "holdfast_limit_rate", "How many may start in a second, or how much of their cost.", labels=labels
        )
        for view in self.limits:
            if (rule := view.rule) is None:
                continue
            own = ["scope" if view.name.kind is LimitKind.KEY else str(view.name.kind), view.name.name]
            running.add_metric(own, view.running)
            if rule.most is not None:
                most.add_metric(own, rule.most)
            if rule.rate is not None:
                rate.add_metric(own, rule.rate)
        yield from (running, most, rate)

    def _attempts(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "holdfast_attempts", "Attempts that ended, by how and with which code.", labels=["queue", "task", "event", "code"]
        )
        for one in self.figures:
            attempts.add_metric([one.queue, one.task, one.event, one.code], one.count)
        yield attempts
        waits = HistogramMetricFamily("holdfast_wait_seconds", "From when a job was due until it was claimed.", labels=["task"])
        runs = HistogramMetricFamily("holdfast_run_seconds", "From the claim of an attempt to its end.", labels=["task"])
        for task in sorted({one.task for one in self.figures}):
            some = [one for one in self.figures if one.task == task]
            waits.add_metric([task], _buckets(summed(one.waits for one in some)), sum(one.waited for one in some))
            runs.add_metric([task], _buckets(summed(one.runs for one in some)), sum(one.ran for one in some))
        yield from (waits, runs)

    def _of_workers(self) -> Iterator[Metric]:
        there = [view for view in self.workers if view.offline_at is None]
        online = [view for view in there if not view.manages]
        states = Counter(DRAINING if view.drains else view.state for view in online if not delivers(view))
        known = GaugeMetricFamily("holdfast_workers", "Workers that are there, by what they do.", labels=["state"])
        for state in (*WorkerState, DRAINING):
            if state is not WorkerState.OFFLINE:
                known.add_metric([state], states[state])
        yield known
        gone = [view for view in self.workers if not view.manages and view.offline_at is not None]
        lately = [view for view in gone if view.offline_at and (self.now - view.offline_at).total_seconds() < LINGERS]
        yield from counted({**self.own, **_counts(online, running=True)}, _counts(lately))
        yield from managed(_counts([view for view in there if view.manages]))

    def _of_storage(self) -> Iterator[Metric]:
        if self.storage.bytes_used is not None:
            yield GaugeMetricFamily("holdfast_storage_used_bytes", "What the store takes up.", value=self.storage.bytes_used)
        if self.storage.bytes_free is not None:
            yield GaugeMetricFamily(
                "holdfast_storage_free_bytes",
                "What is left on its disk; of a server of its own that is not known.",
                value=self.storage.bytes_free,
            )


def _counts(views: Sequence[WorkerView], *, running: bool = False) -> dict[Who, dict[str, int]]:
    """Return what each of these counted, in the order of their names; `running`: one that does not say runs what it holds."""
    found = {
        Who(view.worker.name, str(view.worker.id)): ({count.CONCURRENT: view.running} if running else {})
        | _numbers(view.counters)
        for view in views
    }
    return dict(sorted(found.items()))


def _numbers(text: str) -> dict[str, int]:
    """Return the counts of a worker. They are written by whoever has a worker's key: what is no number is left out."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if type(value) is int and value >= 0}


def _buckets(histogram: Sequence[int]) -> list[tuple[str, float]]:
    """Return a histogram as Prometheus wants it: each bucket with all that are below it."""
    total, buckets = 0, []
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), histogram, strict=True):
        total += number
        buckets.append((bound, float(total)))
    return buckets
