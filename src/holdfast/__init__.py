"""Durable jobs for Python."""

from typing import TYPE_CHECKING, Any

from holdfast.connect import connect

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.core.abort import AbortReason
    from holdfast.core.classify import Verdict
    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.core.retry import Retry
    from holdfast.core.states import State
    from holdfast.errors import (
        Aborted,
        BadArgs,
        BadJob,
        BadResult,
        BadSetting,
        BadTask,
        BadUrl,
        Cancel,
        Fatal,
        HoldfastError,
        JobCanceled,
        JobFailed,
        JobNotFound,
        KeyBusy,
        MissingExtra,
        NotAllowed,
        QueueFull,
        Reschedule,
        Retryable,
        SchemaError,
        SchemaMissing,
        SchemaTooNew,
        SchemaTooOld,
        StaleLease,
        StoreUnavailable,
        TransactionTooLong,
        UnknownWorker,
    )
    from holdfast.store.port import Action, BlockerView, ChainPage, ChainView, EventView, JobView, LimitView, LogView, Retention
    from holdfast.tasks.bound import Call
    from holdfast.tasks.chain import Chain
    from holdfast.tasks.command import Command, CommandResult
    from holdfast.tasks.context import Job
    from holdfast.tasks.group import Group
    from holdfast.tasks.handle import Handle
    from holdfast.tasks.limiting import Limit
    from holdfast.tasks.report import Completion, Report
    from holdfast.tasks.task import Task
    from holdfast.tasks.transaction import BlockingTransaction, JobTransaction

__version__ = "0.1.0"

_HOMES = {
    "Holdfast": "app",
    "AbortReason": "core.abort",
    "Verdict": "core.classify",
    "LimitName": "core.limits",
    "LimitRule": "core.limits",
    "Retry": "core.retry",
    "State": "core.states",
    "Action": "store.port",
    "BlockerView": "store.port",
    "ChainPage": "store.port",
    "ChainView": "store.port",
    "EventView": "store.port",
    "JobView": "store.port",
    "LimitView": "store.port",
    "LogView": "store.port",
    "Retention": "store.port",
    "Call": "tasks.bound",
    "Chain": "tasks.chain",
    "Command": "tasks.command",
    "CommandResult": "tasks.command",
    "Job": "tasks.context",
    "Group": "tasks.group",
    "Handle": "tasks.handle",
    "Limit": "tasks.limiting",
    "Completion": "tasks.report",
    "Report": "tasks.report",
    "Task": "tasks.task",
    "BlockingTransaction": "tasks.transaction",
    "JobTransaction": "tasks.transaction",
}
"""Where the exported names live; errors are in `errors`. Each is loaded when it is first asked for: `import holdfast` alone, as
plugins and `--help` do it, costs next to nothing."""

__all__ = [
    "AbortReason",
    "Aborted",
    "Action",
    "BadArgs",
    "BadJob",
    "BadResult",
    "BadSetting",
    "BadTask",
    "BadUrl",
    "BlockerView",
    "BlockingTransaction",
    "Call",
    "Cancel",
    "Chain",
    "ChainPage",
    "ChainView",
    "Command",
    "CommandResult",
    "Completion",
    "EventView",
    "Fatal",
    "Group",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobNotFound",
    "JobTransaction",
    "JobView",
    "KeyBusy",
    "Limit",
    "LimitName",
    "LimitRule",
    "LimitView",
    "LogView",
    "MissingExtra",
    "NotAllowed",
    "QueueFull",
    "Report",
    "Reschedule",
    "Retention",
    "Retry",
    "Retryable",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "StaleLease",
    "State",
    "StoreUnavailable",
    "Task",
    "TransactionTooLong",
    "UnknownWorker",
    "Verdict",
    "__version__",
    "connect",
]


def __getattr__(name: str) -> Any:
    """Load an exported name."""
    from importlib import import_module  # noqa: PLC0415  only when something is loaded

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
