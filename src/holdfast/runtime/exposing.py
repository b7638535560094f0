"""What workers count, as Prometheus reads it. Needs prometheus-client: imported only where figures are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from holdfast.core.breaker import BREAKER, TRANSITIONS
from holdfast.runtime import counters as count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

COUNTED: Final = {
    count.HEARTBEATS: ("", "Signs of life that a worker gave."),
    count.HEARTBEAT_FAILURES: ("", "Signs of life that found no answer."),
    count.RECOVERED: ("reason", "Jobs whose lease had lapsed and that this worker settled."),
    count.RETRIES: ("code", "Failures that another attempt follows."),
    count.CONFLICTS: ("", "Claims that came back empty although there had been a hint of work."),
    count.STALE: ("kind", "Writes that were refused because the lease was no longer this worker's."),
    count.CLAIMED: ("", "Jobs that a worker claimed."),
    count.SETTLED: ("event", "Attempts that a worker ended."),
}
"""What workers count, with the name of its label."""
THROUGH_REDIS: Final = {
    TRANSITIONS: ("to", "How often the breaker around Redis entered each phase."),
    "redis_sent": ("", "Hints that Redis took."),
    "redis_fell_back": ("", "Hints that Redis did not take."),
    "redis_received": ("", "Hints of work that a worker alone was given."),
    "redis_handed_on": ("", "Those of them after which the others had to be told too."),
    "redis_reclaimed": ("", "Hints of work that another worker had been given, and did not answer for."),
    "redis_healed": ("", "How often a stream or its group was found gone, and made again."),
    "redis_sweeps": ("", "Looks for work that Redis may have lost."),
}
"""The same of those who use Redis, workers and servers."""
LEVELS: Final = {
    count.CONCURRENT: "Jobs that a worker runs now.",
    count.HINTED: "Whether hints of other processes reach a worker; 0: it finds new jobs by polling alone.",
    count.DRAINS: "Whether a worker claims nothing more, because it is about to end.",
}

MANAGED: Final = {
    count.DESIRED: "Workers that a manager wants.",
    count.WORKERS: "Processes of a manager that work.",
    count.DRAINING: "Processes of a manager that end what they run.",
}
MANAGER_COUNTED: Final = {
    count.CHANGES: ("direction", "Decisions that changed the number of workers."),
    count.STAYS: ("obstacle", "Decisions that left the number as it was although jobs waited, or workers did not come up."),
    count.CRASHED: ("", "Workers that crashed and were started again."),
    count.RECYCLED: ("", "Workers that ended after as many jobs or with as much memory as they may, and were replaced."),
}


class Collected:
    """Metrics that are made already, as a collector."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        """Go through them."""
        yield from self._metrics


def told(metrics: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """Return metrics in the form that the caller accepts, and its content type."""
    registry = CollectorRegistry()
    registry.register(Collected(metrics))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class Who(NamedTuple):
    """Who counted. By its name alone those of one name would be summed, and the sum fall whenever one of them ends."""

    name: str
    id: str


def counted(counts: Mapping[Who, Mapping[str, int]], gone: Mapping[Who, Mapping[str, int]] | None = None) -> Iterator[Metric]:
    """Go through the metrics of workers, given what each of them counted; of those that are gone, without levels."""
    yield from _families("worker", COUNTED, LEVELS, counts, gone or {})
    if redis := {worker: own for worker, own in counts.items() if BREAKER in own}:
        yield from _through_redis(redis)


def managed(counts: Mapping[Who, Mapping[str, int]]) -> Iterator[Metric]:
    """Go through the metrics of managers, given what each of them counted."""
    yield from _families("manager", MANAGER_COUNTED, MANAGED, counts, {})


def _families(
    what: str,
    counted: Mapping[str, tuple[str, str]],
    levels: Mapping[str, str],
    counts: Mapping[Who, Mapping[str, int]],
    gone: Mapping[Who, Mapping[str, int]],
) -> Iterator[Metric]:
    for name, (label, text) in counted.items():
        family = CounterMetricFamily(f"holdfast_{what}_{name}", text, labels=[what, "id", label] if label else [what, "id"])
        for who, own in (*counts.items(), *gone.items()):
            _add(family, who, own, name, label)
        yield family
    for name, text in levels.items():
        level = GaugeMetricFamily(f"holdfast_{what}_{name}", text, labels=[what, "id"])
        for who, own in counts.items():
            if name in own:
                level.add_metric(who, own[name])
        yield level


def _through_redis(counts: Mapping[Who, Mapping[str, int]]) -> Iterator[Metric]:
    labels = ["worker", "id"]
    breaker = GaugeMetricFamily(
        f"holdfast_{BREAKER}", "The breaker around Redis: 0 is closed, 1 half-open, 2 open.", labels=labels
    )
    for who, own in counts.items():
        breaker.add_metric(who, own[BREAKER])
    yield breaker
    for name, (label, text) in THROUGH_REDIS.items():
        family = CounterMetricFamily(f"holdfast_{name}", text, labels=[*labels, label] if label else labels)
        for who, own in counts.items():
            _add(family, who, own, name, label)
        yield family


def _add(family: CounterMetricFamily, who: Who, counts: Mapping[str, int], name: str, label: str) -> None:
    """Add the counts of one name: under each of its labels, or all together where it has none."""
    some = {key.partition(":")[2]: value for key, value in counts.items() if key.partition(":")[0] == name}
    if not label:
        family.add_metric(who, sum(some.values()))
        return
    for what, value in sorted(some.items()):
        family.add_metric([*who, what], value)
