"""What a job needs of the worker that runs it, and what it would rather have."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.core.limits import LimitKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SOFT: Final = "\x1e"
"""Stands between a capability that is preferred and for how many seconds, where needs are kept as texts."""
HEARD_WITHIN: Final = 60.0
"""Seconds: who was not heard of for longer is not waited for."""
FULL: Final = 2**31
"""More jobs than any worker has slots."""


class Needs(NamedTuple):
    """The capabilities that jobs of a lane require, and those that they prefer, with how many seconds they wait for one.

    And the key by which they share a limit, where they have one: then the lane is that key's alone.
    """

    required: frozenset[str]
    preferred: Mapping[str, float]
    limit: LimitKey | None = None


def needs_text(requires: tuple[str, ...], prefers: tuple[str, ...], prefer_for: float) -> tuple[str, ...]:
    """Return needs as they are kept."""
    return (*requires, *(f"{name}{SOFT}{prefer_for:g}" for name in prefers)) if prefers else requires


def limit_text(limit: LimitKey) -> str:
    """Return the key of a limit as it is kept among needs: it begins with what no capability has in its name."""
    return f"{SOFT}{limit.weight:g}{SOFT}{limit.scope}{SOFT}{limit.key}"


@lru_cache(maxsize=10_000)
def needs_of(texts: tuple[str, ...]) -> Needs:
    """Return the needs that `needs_text` and `limit_text` wrote."""
    limits = [text.split(SOFT, 3) for text in texts if text.startswith(SOFT)]
    soft = [text.partition(SOFT) for text in texts if text.find(SOFT) > 0]
    return Needs(
        frozenset(text for text in texts if SOFT not in text),
        {name: float(seconds) for name, _, seconds in soft},
        LimitKey(limits[0][2], limits[0][3], float(limits[0][1])) if limits else None,
    )


def required(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of needs that are required, in their order."""
    return tuple(text for text in texts if SOFT not in text)


def suits(needs: Needs, capabilities: frozenset[str], idle: frozenset[str], waited: float) -> bool:
    """Tell whether a worker with these capabilities may take a job that has waited so long.

    `idle` is what other workers have that were heard of just now and could do more: who prefers one of these is left to them,
    for as long as its own bound says.
    """
    if not needs.required <= capabilities:
        return False
    if not needs.preferred:
        return True
    return all(name in capabilities or name not in idle or waited >= bound for name, bound in needs.preferred.items())


def idle_besides(own: Iterable[str], workers: Iterable[tuple[Iterable[str], int, int]]) -> tuple[str, ...]:
    """Return what others (capabilities, slots, running jobs) have that run less than they could, and one worker has not."""
    idle: set[str] = set()
    for capabilities, slots, running in workers:
        if running < slots:
            idle.update(capabilities)
    return tuple(sorted(idle.difference(own)))


def running_said(counters: str) -> int | None:
    """Return how many jobs a worker runs by its own account; `None` where it does not say, or cannot be understood.

    One that says it drains has no slot for anybody: for whoever asks it runs more than any worker could.
    """
    try:
        said = msgspec.json.decode(counters, type=_Counted)
    except msgspec.MsgspecError:  # any program may register one
        return None
    return FULL if said.draining else said.concurrent_jobs


class _Counted(msgspec.Struct):
    """What is read of the counters of a worker."""

    concurrent_jobs: int | None = None
    draining: int = 0
