"""Durable jobs for Python."""

from holdfast.app import Holdfast
from holdfast.connect import connect
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
