"""Who may do what, and who did: keys, and the audit log."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.numbers import check_seconds
from holdfast.core.text import clean, name_flaw
from holdfast.errors import BadJob
from holdfast.store.port.answers import Answer, Enqueue
from holdfast.store.port.requests import STEP_LIMIT, TEXT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.core.job import NewJob
    from holdfast.store.port.answers import Enqueued

KEY_ID: Final = re.compile(r"[a-z0-9]{12}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
MOST_TARGETS: Final = 100
"""How many ids or names a line of the audit log keeps."""
FIRST_JOBS: Final = 10
"""How many of the jobs that it created a line about an enqueue names: machines enqueue often."""
FIRST_TASKS: Final = 10
EMITTED_BEFORE: Final = "emitted before"
"""What the audit log says of a signal that stands as it was."""


def names_a_key(key_id: str) -> bool:
    """Tell whether this may be the id of a key: what came with a request may be anything."""
    return KEY_ID.fullmatch(key_id) is not None


class Role(StrEnum):
    """What the holder of a key is."""

    VIEWER = "viewer"
    """Looks."""
    OPERATOR = "operator"
    """Looks, and steers jobs, queues and workers."""
    ADMIN = "admin"
    """Does everything, keys included."""
    WORKER = "worker"
    """Runs jobs over HTTP."""
    CLIENT = "client"
    """Enqueues, gets and cancels jobs over HTTP."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is kept: of the secret only its SHA-256."""

    id: str
    """The public beginning of the key, by which it is found."""
    name: str
    """Whose it is: the actor in audit and event logs. Two live keys may have one name while one takes over from the other."""
    role: Role
    digest: str
    """SHA-256 of the whole key, as hex."""
    queues: tuple[str, ...] | None = None
    """The queues that it may work on; `None`: all."""
    actions: tuple[str, ...] | None = None
    """What it may do of what its role may; `None`: all of it."""
    created_by: str = ""
    created_at: datetime | None = None
    """Written by the store."""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""
    used_at: datetime | None = None
    """When it was last used, to the minute."""

    def __post_init__(self) -> None:
        """Refuse what no store could keep."""
        if not KEY_ID.fullmatch(self.id):
            raise BadJob("must be 12 small letters and digits", path="key.id")
        if not DIGEST.fullmatch(self.digest):
            raise BadJob("must be a SHA-256 in hex", path="key.digest")
        for field, names in (("name", (self.name,)), ("queues", self.queues or ()), ("actions", self.actions or ())):
            for name in names:
                if (reason := name_flaw(name)) is not None:
                    raise BadJob(reason, path=f"key.{field}")
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise BadJob("must have a time zone", path="key.expires_at")


class Action(StrEnum):
    """What is written into the audit log."""

    ENQUEUE = "enqueue"
    """Jobs were created, over HTTP or from a command line. The one kind of line that retention lets go."""
    CANCEL = "cancel"
    COMPLETE = "complete"
    FAIL = "fail"
    DELETE = "delete"
    DELETE_CHAINS = "delete_chains"
    RETRY = "retry"
    EMIT = "emit"
    PAUSE = "pause"
    RESUME = "resume"
    SET_LIMIT = "set_limit"
    DISABLE = "disable"
    ENABLE = "enable"
    DRAIN = "drain"
    REVOKE_WORKER = "revoke_worker"
    FIRE = "fire"
    """A schedule was run now."""
    SCALE = "scale"
    """A manager changed the number of its workers."""
    ADD_KEY = "add_key"
    EXPIRE_KEY = "expire_key"
    ROTATE_KEY = "rotate_key"
    """A key was made in the place of another one, which ends a while later."""
    REVOKE_KEY = "revoke_key"
    PRUNE = "prune"
    """Somebody had old jobs, signals or lines deleted, by hand."""
    EXTENSION = "extension"
    """A page of another package did something; the detail says what."""
    LOGIN = "login"
    LOGIN_FAILED = "login_failed"
    LOGOUT = "logout"


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log: who did what to what."""

    no: int
    """Grows with every line: the cursor of lists."""
    at: datetime
    actor: str
    action: Action
    targets: tuple[str, ...] = ()
    """The ids or names of what it was done to, at most a hundred of them."""
    count: int = 0
    """How many there were in all."""
    detail: str = ""
    """Why, or how many were refused."""


class AuditLine(msgspec.Struct, frozen=True):
    """What a store writes into the audit log; number and time are its own."""

    actor: str
    action: Action
    targets: tuple[str, ...]
    count: int
    detail: str


def audit_line(
    action: Action, targets: Collection[object], *, by: str, detail: str = "", answers: Sequence[Answer] = ()
) -> AuditLine:
    """Return the line about a call: who asked for what, to be done to what, and how much of it was not done."""
    kept = tuple(clean(str(target), STEP_LIMIT) for target in islice(targets, MOST_TARGETS))
    unknown = sum(answer is Answer.NOT_FOUND for answer in answers)
    refused = sum(answer not in _DONE for answer in answers) - unknown
    counts = ", ".join(f"{count} {word}" for count, word in ((refused, "refused"), (unknown, "unknown")) if count)
    told = "; ".join(part for part in (detail, counts) if part)
    return AuditLine(clean(by, TEXT_LIMIT), action, kept, len(targets), clean(told, TEXT_LIMIT))


def cancel_line(
    targets: Collection[object], *, by: str, reason: str, answers: Sequence[Answer], before: int
) -> AuditLine | None:
    """Return the line about a cancel; `None` where it changed nothing, for all of them had been asked to stop `before`."""
    if not by or before == len(targets):
        return None
    asked = f"{before} asked before" if before else ""
    return audit_line(
        Action.CANCEL, targets, by=by, detail="; ".join(part for part in (reason, asked) if part), answers=answers
    )


_DONE: Final = frozenset({Answer.DONE, Answer.REQUESTED})


def check_rotation(key_id: str, new: Key, within: float) -> None:
    """Refuse a rotation that makes no sense (`BadJob`)."""
    check_seconds(within, "within", least=0.0)
    if new.id == key_id:
        raise BadJob("a key cannot take over from itself", path="key.id")


def rotation_line(key_id: str, new: Key, within: float, *, by: str) -> AuditLine:
    """Return the line about a key that takes over from another one."""
    detail = f"{new.role} {new.name}: {new.id} takes over, this one ends within {within:g} s"
    return audit_line(Action.ROTATE_KEY, [key_id], by=by, detail=detail)


def prune_line(*, by: str, jobs: int, signals: int, lines: int) -> AuditLine | None:
    """Return the line about old things that were deleted; `None` where there was none, or where nobody is named."""
    counts = ((jobs, "jobs"), (signals, "signals"), (lines, "lines about enqueues"))
    detail = ", ".join(f"{count} {word}" for count, word in counts if count)
    return AuditLine(clean(by, TEXT_LIMIT), Action.PRUNE, (), jobs, detail) if by and detail else None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit log is to say of an enqueue: who asked for it, as what, and what else is to be known. Never the args."""

    by: str
    action: Action = Action.ENQUEUE
    targets: tuple[str, ...] = ()
    """What it was done to; empty: the jobs that were created, the first ten by their ids."""
    detail: str = ""

    def line(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> AuditLine | None:
        """Return the line about an enqueue that was answered so; `None` where nobody is named, or nothing was created."""
        created = [job for job, answer in zip(jobs, answers, strict=True) if answer.status is Enqueue.CREATED]
        if not created or not clean(self.by, TEXT_LIMIT):
            return None
        line = audit_line(
            self.action,
            self.targets or [job.id for job in created[:FIRST_JOBS]],
            by=self.by,
            detail="; ".join(part for part in (self.detail, _tasks(created), _not_created(answers)) if part),
        )
        return line if self.targets else msgspec.structs.replace(line, count=len(created))


def _tasks(jobs: Sequence[NewJob]) -> str:
    counts = Counter(job.task for job in jobs).most_common()
    more = len(counts) - FIRST_TASKS
    shown = [f"{count} {task}" for task, count in counts[:FIRST_TASKS]]
    return ", ".join([*shown, f"and {more} more tasks"] if more > 0 else shown)


def _not_created(answers: Sequence[Enqueued]) -> str:
    counts = Counter(answer.status for answer in answers)
    return ", ".join(f"{counts[status]} {status.value}" for status in (Enqueue.EXISTING, Enqueue.REPEATED) if counts[status])
