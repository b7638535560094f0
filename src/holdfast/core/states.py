"""The life of a job, once, as data.

`TRANSITIONS` is the only place that says which event may happen in which state. The memory store runs it directly, SQL takes
its origin states from it, the conformance suite tries every cell, and the diagram in the docs is drawn from it.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(StrEnum):
    """Where a job stands. Exactly one at any time."""

    BLOCKED = "blocked"
    """Waits for other chains to end."""
    SCHEDULED = "scheduled"
    """Waits for its `run_at`."""
    READY = "ready"
    """May be claimed."""
    RUNNING = "running"
    """Held by a worker under a lease."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


LIVE: Final = frozenset({State.BLOCKED, State.SCHEDULED, State.READY, State.RUNNING})
WAITING: Final = frozenset({State.BLOCKED, State.SCHEDULED, State.READY})
TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})
STATE_GROUPS: Final = {"live": LIVE, "waiting": WAITING, "ended": TERMINAL}
"""Words for several states."""


class Event(StrEnum):
    """What can happen to a job. The names are the ones the event log shows."""

    # a client
    ENQUEUE = "enqueued"
    ENQUEUE_LATER = "enqueued:later"
    ENQUEUE_BLOCKED = "enqueued:blocked"
    CANCEL = "cancel"
    COMPLETE_OUTSIDE = "completed:outside"
    FAIL_OUTSIDE = "failed:outside"
    DELETE = "deleted"
    REOPEN = "reopened"

    # the store's own housekeeping
    PROMOTE = "promoted"
    UNBLOCK = "unblocked"
    UNBLOCK_LATER = "unblocked:later"
    WAKE = "woken"
    """The signal it waited for was emitted."""
    BLOCKER_FAIL = "failed:blocker"
    BLOCKER_CANCEL = "canceled:blocker"
    EXPIRE = "requeued:stale"
    EXPIRE_LATER = "requeued:stale:later"
    EXPIRE_FAIL = "failed:stale"
    EXPIRE_CANCEL = "canceled:stale"
    OVERDUE = "canceled:expired"
    """Waited past its `start_by`."""
    PRUNE = "pruned"

    # a worker
    CLAIM = "claimed"

    # the holder of the lease, under its token
    EXTEND = "extended"
    PROGRESS = "progressed"
    CHECKPOINT = "checkpointed"
    LOG = "logged"
    STAGE_ENTER = "stage:entered"
    STAGE_LEAVE = "stage:left"
    STAGE_FAIL = "stage:failed"
    ENQUEUE_CHILD = "enqueued:child"
    SUCCEED = "succeeded"
    CONTINUE = "continued"
    """Succeeded, and its chain goes on with the next step."""
    SUSPEND = "suspended"
    """Gives its slot back while it sleeps, or waits for a signal."""
    FAIL = "failed"
    STOP = "canceled"
    RETRY = "retried"
    RETRY_LATER = "retried:later"
    RESCHEDULE = "rescheduled"
    RESCHEDULE_LATER = "rescheduled:later"
    RELEASE = "released"
    """Given back unrun."""
    ABORT = "aborted:shutdown"
    """Stopped and given back because its worker shuts down."""


HOLDER_EVENTS: Final = frozenset(
    {
        Event.EXTEND,
        Event.PROGRESS,
        Event.CHECKPOINT,
        Event.LOG,
        Event.STAGE_ENTER,
        Event.STAGE_LEAVE,
        Event.STAGE_FAIL,
        Event.ENQUEUE_CHILD,
        Event.SUCCEED,
        Event.CONTINUE,
        Event.SUSPEND,
        Event.FAIL,
        Event.STOP,
        Event.RETRY,
        Event.RETRY_LATER,
        Event.RESCHEDULE,
        Event.RESCHEDULE_LATER,
        Event.RELEASE,
        Event.ABORT,
    }
)
"""Allowed only in `running`, and only under the current token."""

STAGE_EVENTS: Final = frozenset({Event.STAGE_ENTER, Event.STAGE_LEAVE, Event.STAGE_FAIL})
"""What a holder tells of its stages: lines in the event log of a job that goes on running."""

_TABLE: dict[tuple[State | None, Event], State | None] = {
    (None, Event.ENQUEUE): State.READY,
    (None, Event.ENQUEUE_LATER): State.SCHEDULED,
    (None, Event.ENQUEUE_BLOCKED): State.BLOCKED,
    (State.BLOCKED, Event.UNBLOCK): State.READY,
    (State.BLOCKED, Event.UNBLOCK_LATER): State.SCHEDULED,
    (State.BLOCKED, Event.BLOCKER_FAIL): State.FAILED,
    (State.BLOCKED, Event.BLOCKER_CANCEL): State.CANCELED,
    (State.SCHEDULED, Event.PROMOTE): State.READY,
    (State.SCHEDULED, Event.WAKE): State.READY,
    (State.READY, Event.CLAIM): State.RUNNING,
    (State.RUNNING, Event.EXTEND): State.RUNNING,
    (State.RUNNING, Event.PROGRESS): State.RUNNING,
    (State.RUNNING, Event.CHECKPOINT): State.RUNNING,
    (State.RUNNING, Event.LOG): State.RUNNING,
    **{(State.RUNNING, event): State.RUNNING for event in STAGE_EVENTS},
    (State.RUNNING, Event.ENQUEUE_CHILD): State.RUNNING,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.CONTINUE): State.SUCCEEDED,
    (State.RUNNING, Event.SUSPEND): State.SCHEDULED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.STOP): State.CANCELED,
    (State.RUNNING, Event.RETRY): State.READY,
    (State.RUNNING, Event.RETRY_LATER): State.SCHEDULED,
    (State.RUNNING, Event.RESCHEDULE): State.READY,
    (State.RUNNING, Event.RESCHEDULE_LATER): State.SCHEDULED,
    (State.RUNNING, Event.RELEASE): State.READY,
    (State.RUNNING, Event.ABORT): State.READY,
    (State.RUNNING, Event.EXPIRE): State.READY,
    (State.RUNNING, Event.EXPIRE_LATER): State.SCHEDULED,
    (State.RUNNING, Event.EXPIRE_FAIL): State.FAILED,
    (State.RUNNING, Event.EXPIRE_CANCEL): State.CANCELED,
    # a running job is only asked to stop; its worker, or the reaper, ends it
    (State.RUNNING, Event.CANCEL): State.RUNNING,
    **{(state, Event.CANCEL): State.CANCELED for state in WAITING},
    **{(state, Event.OVERDUE): State.CANCELED for state in WAITING},
    **{(state, Event.COMPLETE_OUTSIDE): State.SUCCEEDED for state in LIVE},
    **{(state, Event.FAIL_OUTSIDE): State.FAILED for state in LIVE},
    **{(state, Event.REOPEN): State.READY for state in TERMINAL},
    **{(state, Event.PRUNE): None for state in TERMINAL},
    **{(state, Event.DELETE): None for state in State},
}

TRANSITIONS: Final[Mapping[tuple[State | None, Event], State | None]] = MappingProxyType(_TABLE)
"""(state, event) -> state. `None` on the left is a job not yet there, on the right one that is gone. The rest is illegal."""


def target(state: State | None, event: Event) -> State | None:
    """Return where `event` leads from `state`; KeyError when it is illegal there."""
    return TRANSITIONS[state, event]


def legal(state: State | None, event: Event) -> bool:
    """Tell whether `event` may happen in `state`."""
    return (state, event) in TRANSITIONS


def origins(event: Event) -> tuple[State, ...]:
    """Return the states in which `event` may happen, in the order a job passes through them."""
    return tuple(state for state in State if (state, event) in TRANSITIONS)
