"""Durable jobs for Python."""

from holdfast.connect import connect
from holdfast.core.retry import Retry
from holdfast.core.states import State
from holdfast.errors import (
    BadArgs,
    BadJob,
    BadResult,
    BadTask,
    BadUrl,
    Cancel,
    Fatal,
    HoldfastError,
    MissingExtra,
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

__version__ = "0.1.0"

__all__ = [
    "BadArgs",
    "BadJob",
    "BadResult",
    "BadTask",
    "BadUrl",
    "Cancel",
    "Fatal",
    "HoldfastError",
    "MissingExtra",
    "Reschedule",
    "Retry",
    "Retryable",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "StaleLease",
    "State",
    "StoreUnavailable",
    "UnknownWorker",
    "__version__",
    "connect",
]
