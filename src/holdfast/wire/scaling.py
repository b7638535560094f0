"""What an autoscaler asks and is told: flat, so that a path of one word finds each number."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from holdfast.store.port import MOST_SLOTS

MOST_NAMES: Final = 100
USUAL_SLOTS: Final = 20
"""Those of a worker that is told nothing else."""


class ScaleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant, and what one replica does at a time."""

    queue: Annotated[list[str], msgspec.Meta(max_length=MOST_NAMES)] = []
    """Only these queues; none: all that the key reaches."""
    task: Annotated[list[str], msgspec.Meta(max_length=MOST_NAMES)] = []
    """Only these tasks; none: all."""
    slots: Annotated[int, msgspec.Meta(ge=1, le=MOST_SLOTS)] = USUAL_SLOTS
    """Slots of one replica: the `--concurrency` of its worker."""
    target: Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)] = 1.0
    """Jobs that may wait or run for each slot."""


class ScaleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is to do, who does it, and how many replicas it asks for."""

    desired: int
    """Replicas with so many slots; at least those that what runs now fills."""
    backlog: int
    """Ready and running."""
    ready: int
    """Jobs that wait for a worker, without those of paused queues and those that a limit of their queue or task holds back."""
    running: int
    paused: int
    """Jobs that are ready in paused queues: no worker would help them."""
    throttled: int
    """Jobs that a limit of their queue or task holds back: no worker would help them either."""
    oldest_waiting_ms: float
    """For how long the oldest ready job of these queues has waited, of queues where any may start; 0 where none may."""
    workers: int
    """Live workers that serve one of these queues: not offline, not disabled, not draining."""
    slots: int
    """Their slots."""
