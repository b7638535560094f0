"""What people are told of, and how it is put."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class AlertKind(StrEnum):
    """The five things that are told."""

    STALE_JOB_RECOVERED = "stale_job_recovered"
    """A lease lapsed, and its job was settled by its policy."""
    JOB_MAX_RETRIES_EXCEEDED = "job_max_retries_exceeded"
    """A job has spent its budget, and failed."""
    JOB_FAILED_PATTERN = "job_failed_pattern"
    """A task, or a unique key, fails again and again."""
    WORKER_STARTUP = "worker_startup"
    WORKER_SHUTDOWN = "worker_shutdown"
    """A worker has stopped, or was not heard of for too long."""


class Form(StrEnum):
    """How an alert is put."""

    STANDARD = "standard"
    """JSON as Standard Webhooks has it, signed."""
    SLACK = "slack"
    """`{"text": …}`, as Slack and those like it read it."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something worth telling."""

    kind: AlertKind
    text: str
    """One sentence for people."""
    count: int
    """How many jobs, groups or workers it is about."""
    about: tuple[dict[str, Any], ...] = ()
    """The first of them."""
    newest: str = ""
    """The identity of the newest thing that was seen when it was told: the next one begins after it. Kept, never sent."""
