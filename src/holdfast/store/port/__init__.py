"""The port: what every store can do, and what it promises about each operation.

Words used in the promises:

- *atomic*: the whole call happens or none of it does, also when the process dies in the middle;
- *fenced*: carries the token of a lease and changes nothing unless that token is current at that moment;
- *repeatable*: when the outcome is unknown (the connection broke), the same call may be made again: no loss, no double.

Batches go in, answers come out in the same order, one for each item. Losing a race is an answer, not an exception.
Requests and answers are msgspec structs that survive JSON, so that a store may be spoken to over HTTP. A chain is known by its
first job: `NewJob.after` makes waiters, which every operation that ends a job settles. A job held back by a limit is `ready`; a
store may keep it apart, and a claim does not return it.

Any operation may raise `StoreUnavailable`; then its outcome is unknown. Every clock reading that decides anything is the
store's own.

A chain is one job, or several of which each but the last has ended with `Event.CONTINUE`, naming the next. It stands where its
last step stands: it is live while that is, and only its end lets waiters go on and frees the key its first step was enqueued
with. Steps share `chain_id`, the id of the first.
"""

from holdfast.store.port.access import (
    EMITTED_BEFORE,
    MOST_TARGETS,
    Action,
    Audit,
    AuditLine,
    AuditView,
    Key,
    Role,
    audit_line,
    cancel_line,
    check_rotation,
    names_a_key,
    prune_line,
    rotation_line,
)
from holdfast.store.port.answers import Answer, Enqueue, Enqueued, Settled, Signal, WorkerKind
from holdfast.store.port.caller import Caller, Transaction
from holdfast.store.port.patience import patience, patience_here, too_slow
from holdfast.store.port.requests import (
    CIRCLE,
    HEARD_EVERY,
    LOG_LIMIT,
    MOST_SLOTS,
    SEARCH_LIMIT,
    STEP_LIMIT,
    TEXT_LIMIT,
    WORKER_TEXT_LIMIT,
    Beat,
    Checkpoint,
    ClaimRequest,
    Firing,
    JobFilter,
    LogLine,
    Notice,
    Part,
    PartState,
    Progress,
    Retention,
    Schedule,
    Settlement,
    StageMark,
    Worker,
)
from holdfast.store.port.store import Store
from holdfast.store.port.views import (
    MOST_LIMITS,
    AttemptView,
    BlockerView,
    ChainPage,
    ChainsDeleted,
    ChainView,
    Emitted,
    EventView,
    FailureView,
    FigureView,
    Grain,
    JobView,
    LimitView,
    LogView,
    Page,
    Promoted,
    Pruned,
    QueueView,
    Reaped,
    RunningView,
    ScheduleView,
    Stats,
    Storage,
    TaskCounts,
    WorkerState,
    WorkerView,
    living_first,
)

__all__ = [
    "CIRCLE",
    "EMITTED_BEFORE",
    "HEARD_EVERY",
    "LOG_LIMIT",
    "MOST_LIMITS",
    "MOST_SLOTS",
    "MOST_TARGETS",
    "SEARCH_LIMIT",
    "STEP_LIMIT",
    "TEXT_LIMIT",
    "WORKER_TEXT_LIMIT",
    "Action",
    "Answer",
    "AttemptView",
    "Audit",
    "AuditLine",
    "AuditView",
    "Beat",
    "BlockerView",
    "Caller",
    "ChainPage",
    "ChainView",
    "ChainsDeleted",
    "Checkpoint",
    "ClaimRequest",
    "Emitted",
    "Enqueue",
    "Enqueued",
    "EventView",
    "FailureView",
    "FigureView",
    "Firing",
    "Grain",
    "JobFilter",
    "JobView",
    "Key",
    "LimitView",
    "LogLine",
    "LogView",
    "Notice",
    "Page",
    "Part",
    "PartState",
    "Progress",
    "Promoted",
    "Pruned",
    "QueueView",
    "Reaped",
    "Retention",
    "Role",
    "RunningView",
    "Schedule",
    "ScheduleView",
    "Settled",
    "Settlement",
    "Signal",
    "StageMark",
    "Stats",
    "Storage",
    "Store",
    "TaskCounts",
    "Transaction",
    "Worker",
    "WorkerKind",
    "WorkerState",
    "WorkerView",
    "audit_line",
    "cancel_line",
    "check_rotation",
    "living_first",
    "names_a_key",
    "patience",
    "patience_here",
    "prune_line",
    "rotation_line",
    "too_slow",
]
