"""Durable jobs for Python."""

from typing import TYPE_CHECKING, Any

from holdfast.connect import connect

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.core.abort import AbortReason
    from holdfast.core.classify import Verdict
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
        UnknownWorker,
    )
    from holdfast.store.port import Retention
    from holdfast.tasks.command import Command, CommandResult
    from holdfast.tasks.context import Job
    from holdfast.tasks.handle import Handle
    from holdfast.tasks.task import Task

__version__ = "0.1.0"

_HOMES = {
    "Holdfast": "app",
    "AbortReason": "core.abort",
    "Verdict": "core.classify",
    "Retry": "core.retry",
    "State": "core.states",
    "Retention": "store.port",
    "Command": "tasks.command",
    "CommandResult": "tasks.command",
    "Job": "tasks.context",
    "Handle": "tasks.handle",
    "Task": "tasks.task",
}
"""Where the exported names live; errors are in `errors`. Each is loaded when it is first asked for: `import holdfast` alone, as
plugins and `--help` do it, costs next to nothing."""

__all__ = [
    "AbortReason",
    "Aborted",
    "BadArgs",
    "BadJob",
    "BadResult",
    "BadSetting",
    "BadTask",
    "BadUrl",
    "Cancel",
    "Command",
    "CommandResult",
    "Fatal",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobNotFound",
    "MissingExtra",
    "NotAllowed",
    "QueueFull",
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
