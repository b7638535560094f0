"""A task with options, its calls, and what a job is made of when one is asked for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Coroutine, Iterable, Iterator
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from holdfast.core.job import BlockerPolicy, NewJob, OnConflict, Policy, Unique
from holdfast.core.limits import LimitKey
from holdfast.errors import BadArgs, BadJob, BadTask
from holdfast.tasks.group import Group
from holdfast.tasks.handle import Handle
from holdfast.tasks.options import JobOptions, Using, names_of, priority_of, retry_of, seconds
from holdfast.tasks.values import short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import StrEnum

    from holdfast.tasks.chain import Chain
    from holdfast.tasks.handle import Desk
    from holdfast.tasks.limiting import Limit
    from holdfast.tasks.options import QueueOptions
    from holdfast.tasks.sealing import Sealer
    from holdfast.tasks.task import Task  # noqa: TC004  a call is never decoded, so nobody evaluates what its fields are

    Choice = TypeVar("Choice", bound=StrEnum)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Producer(Protocol):
    """What a task asks of the app it was declared with."""

    def new_id(self) -> UUID:
        """Return a fresh job id."""
        ...

    def queue_options(self, name: str) -> QueueOptions | None:
        """Return what was said about a queue."""
        ...

    async def enqueue_many(self, calls: Sequence[Call[Any]]) -> list[Handle[Any]]:
        """Enqueue calls, all or none, in order; the handle of a call that starts a chain is a `Chain`."""
        ...

    @property
    def default_conn(self) -> Any:
        """The connection of what is enqueued without one; `None`: the app's own."""
        ...

    def blocking(self, coroutine: Coroutine[Any, Any, T], conn: Any = None) -> T:
        """Run a coroutine from blocking code: elsewhere, or with a blocking connection here; refused inside a running loop."""
        ...

    @property
    def sealer(self) -> Sealer | None:
        """What seals texts before they reach the store; `None`: nothing does."""
        ...

    @property
    def desk(self) -> Desk:
        """Return what handles talk to."""
        ...


class Call(msgspec.Struct, Generic[R_co], eq=False):
    """A task with its args, checked and ready to be enqueued. Enqueuing the same call twice makes one job."""

    task: Task[..., R_co]
    job: NewJob
    conn: Any = None
    """What `options(conn=…)` or `options(using=…)` gave: the transaction it belongs to."""

    def __repr__(self) -> str:
        return f"<Call of {self.job.task} {short(self.job.args)}>"


class BoundTask(Generic[P, R]):
    """A task with options for the jobs to come: what `task.options(…)` returns."""

    __slots__ = (
        *("_conn", "_cost", "_fixed", "_id", "_key", "_key_is_template", "_limit", "_models", "_producer", "_queue", "_unique"),
        "task",
    )

    def __init__(self, task: Task[P, R], changes: JobOptions, producer: Producer) -> None:
        declared = task.options_declared
        unknown = set(changes) - _JOB_OPTIONS
        if unknown:
            raise BadJob(f"there is no option {min(unknown)!r}; there are {', '.join(sorted(_JOB_OPTIONS))}", task=task.name)
        self.task = task
        self._producer = producer
        self._id = None if (own_id := changes.get("id")) is None else _id_of(own_id, "id")
        self._conn = _conn_of(changes)
        self._queue = changes.get("queue", declared.queue)
        self._key = changes.get("key", declared.key)
        if self._key is not None and not isinstance(self._key, str) and not callable(self._key):
            raise BadJob(f"must be a text or a function of the args, not {self._key!r}", path="unique.key", task=task.name)
        self._key_is_template = "key" not in changes and isinstance(declared.key, str)
        self._limit = declared.limit.keyed
        self._cost = declared.limit.cost
        fixed_cost = 1.0 if callable(self._cost) else self._cost
        retry = retry_of(changes["retry"]) if "retry" in changes else declared.retry
        timeout = _optional(changes["timeout"]) if "timeout" in changes else declared.timeout
        expires_in = changes.get("expires_in", declared.expires_in)
        window = changes.get("key_window", declared.key_window)
        self._unique: dict[str, Any] = {
            "scope": task.name if (scope := changes.get("key_scope", declared.key_scope)) is None else scope,
            "window": _optional(window),
            "on_conflict": _choice(OnConflict, changes.get("on_conflict", declared.on_conflict), "on_conflict"),
        }
        self._fixed: dict[str, Any] = {
            "task": task.name,
            "queue": self._queue,
            "priority": priority_of(changes.get("priority", declared.priority)),
            "delay": seconds(changes.get("delay", 0.0)),
            "run_at": changes.get("run_at"),
            "lease": seconds(changes.get("lease", declared.lease)),
            "policy": Policy(
                retry,
                timeout,
                _choice(BlockerPolicy, changes.get("on_blocker_failure", BlockerPolicy.FAIL), "on_blocker_failure"),
                fixed_cost,
            ),
            "tags": _texts(changes.get("tags", declared.tags), "tags"),
            "requires": names_of(_texts(changes.get("requires", declared.requires), "requires")),
            "prefers": names_of(_texts(changes.get("prefers", declared.prefers), "prefers")),
            "prefer_for": seconds(changes.get("prefer_for", declared.prefer_for)),
            "trace": changes.get("trace"),
            "expires_in": _optional(expires_in),
            "after": tuple(_blockers(changes["after"])) if "after" in changes else (),
        }
        self._models: dict[bool, NewJob] = {}
        """A checked job for others to be made like, by whether its queue is `fifo`: that may be said after the task."""
        if self._key is None and (about := sorted(_KEY_OPTIONS & set(changes))):
            raise BadJob("says something about a key, and there is none: give key= too", path=about[0], task=task.name)
        if "on_blocker_failure" in changes and "after" not in changes:
            reason = "says something about blockers, and there are none: give after= too"
            raise BadJob(reason, path="on_blocker_failure", task=task.name)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Ask for a run, as `Task.enqueue` does, with these options."""
        return (await self._producer.enqueue_many([self.call(*args, **kwargs)]))[0]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Do as `enqueue`, from blocking code."""
        return self._producer.blocking(self.enqueue(*args, **kwargs), self._blocking_conn())

    async def start_chain(self, *args: P.args, **kwargs: P.kwargs) -> Chain[R]:
        """Start a chain, as `Task.start_chain` does, with these options."""
        call = self.call_encoded(self.task.args.encode(*args, **kwargs), chain=True)
        return cast("Chain[R]", (await self._producer.enqueue_many([call]))[0])

    def start_chain_sync(self, *args: P.args, **kwargs: P.kwargs) -> Chain[R]:
        """Do as `start_chain`, from blocking code."""
        return self._producer.blocking(self.start_chain(*args, **kwargs), self._blocking_conn())

    def _blocking_conn(self) -> Any:
        return self._producer.default_conn if self._conn is None else self._conn

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the run that `enqueue` would ask for, for `app.enqueue_many`."""
        return self.call_encoded(self.task.args.encode(*args, **kwargs))

    def call_encoded(self, text: str, *, chain: bool = False) -> Call[R]:
        """Return a call whose args are JSON text from the codec; with `chain` it is the first step of one."""
        queue = self._producer.queue_options(self._queue)
        fifo = queue is not None and queue.fifo
        varies = self._key is not None or self._limit is not None or callable(self._cost)
        if not varies and self._id is None and not chain:
            model = self._models.get(fifo)
            if model is None:
                model = self._models[fifo] = NewJob(id=_ANY_ID, fifo=fifo, **self._fixed)
            return Call(self.task, model.like(self._producer.new_id(), text), self._conn)
        job_id = self._producer.new_id() if self._id is None else self._id
        job = NewJob(
            id=job_id,
            args=text,
            unique=None if self._key is None else self._unique_of(text),
            fifo=fifo,
            chain_id=job_id if chain else None,
            limit=None if self._limit is None else self._limit_of(self._limit, text),
            **self._fixed,
        )
        if callable(self._cost):
            cost = self._called(self._cost, text, "cost", float)
            job = msgspec.structs.replace(job, policy=msgspec.structs.replace(job.policy, cost=cost))
        return Call(self.task, job, self._conn)

    def _unique_of(self, text: str) -> Unique:
        return Unique(key=self._key_of(self._key, text, "unique.key", template=self._key_is_template), **self._unique)

    def _limit_of(self, limit: Limit, text: str) -> LimitKey:
        key = "" if limit.key is None else self._key_of(limit.key, text, "limit.key", template=True)
        weight = self._called(limit.weight, text, "limit.weight", float) if callable(limit.weight) else limit.weight
        return LimitKey(self.task.name if limit.scope is None else limit.scope, key, weight)

    def _key_of(self, key: Any, text: str, path: str, *, template: bool) -> str:
        """Return a key for args: what a function of them gives, or a text with its fields filled in; hashed where args are."""
        if callable(key):
            key = self._called(key, text, path, str)
        elif template and key is not None:
            key = self._filled_in(key, text, path)
        sealer = self.task.sealer
        return str(key) if sealer is None else sealer.hash(str(key))

    def _called(self, function: Callable[..., Any], text: str, path: str, kind: type[T]) -> T:
        args, kwargs = self.task.args.decode(text)
        given = function(*args, **kwargs)
        if kind is float and type(given) is int:
            given = float(given)
        if not isinstance(given, kind):
            what = "a string" if kind is str else "a number"
            raise BadJob(
                f"{path.rpartition('.')[2]}= must give {what}, not {type(given).__name__}", path=path, task=self.task.name
            )
        return given

    def check(self) -> None:
        """Refuse options that no job could have, when the task is declared and not when somebody enqueues."""
        unique = None if self._key is None else Unique(key="-", **self._unique)
        limit, weight = None, 1.0
        if self._limit is not None:
            weight = 1.0 if callable(self._limit.weight) else self._limit.weight
            limit = LimitKey(self.task.name if self._limit.scope is None else self._limit.scope, "", weight)
        NewJob(id=_ANY_ID, unique=unique, limit=limit, **self._fixed)
        if self._key_is_template and isinstance(self._key, str):
            self._check_fields(self._key, "key")
        if self._limit is not None and isinstance(self._limit.key, str):
            self._check_fields(self._limit.key, "limit key")

    def _check_fields(self, template: str, what: str) -> None:
        known = [name for name in inspect.signature(self.task.function).parameters if name != self.task.job_parameter]
        try:
            fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
        except ValueError as error:
            raise BadTask(f"task {self.task.name!r}: {what}={template!r} cannot be read: {error}") from None
        for field in fields:
            if re.split(r"[.\[]", field)[0] not in known:
                raise BadTask(
                    f"task {self.task.name!r}: {what}={template!r} names no parameter with {{{field}}}; "
                    f"there are {', '.join(known) or 'none'}"
                )

    if TYPE_CHECKING:

        def _takes(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Say what it takes and gives, to `tasks.typed`."""
            ...

    def _filled_in(self, template: str, text: str, path: str) -> str:
        bound = inspect.signature(self.task.function).bind_partial(*(parts := self.task.args.decode(text))[0], **parts[1])
        bound.apply_defaults()
        try:
            return template.format(**bound.arguments)
        except (LookupError, AttributeError, ValueError) as error:
            raise BadArgs(
                f"the key {template!r} cannot be filled in: {error}", path=path.rpartition(".")[2], task=self.task.name
            ) from error


_ANY_ID = UUID("01900000-0000-7000-8000-000000000000")
"""The id of a job that is made to be checked, and not to be enqueued."""

_KEY_OPTIONS = frozenset({"key_scope", "key_window", "on_conflict"})

_JOB_OPTIONS = frozenset(JobOptions.__annotations__)


def _id_of(value: UUID | str, path: str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (TypeError, ValueError, AttributeError):
        raise BadJob(f"{short(value)} is no job id: a job id is a UUID of version 7", path=path) from None


def _conn_of(changes: JobOptions) -> Any:
    if "using" not in changes:
        return changes.get("conn")
    if changes.get("conn") is not None:
        raise BadJob("give conn= or using=, not both: each names the transaction", path="using")
    if not isinstance(changes["using"], str):
        raise BadJob(f"must be the name of a Django database, not {short(changes['using'])}", path="using")
    return Using(changes["using"])


def _blockers(after: Any) -> Iterator[UUID]:
    """Go through the chains that are to end first, in the order in which they were named."""
    if isinstance(after, UUID):
        yield after
    elif isinstance(after, Handle):
        yield after.id
    elif isinstance(after, str):
        yield _id_of(after, "after")
    elif isinstance(after, Group):  # a key may have given it the same job twice
        yield from dict.fromkeys(handle.id for handle in after)
    elif isinstance(after, Iterable) and not isinstance(after, bytes):
        for one in after:
            yield from _blockers(one)
    else:
        hint = ""
        if isinstance(after, Coroutine):
            after.close()
            hint = ": await it first"
        elif isinstance(after, Call) or hasattr(after, "enqueue"):
            hint = ": enqueue it first, and name its handle"
        raise BadJob(f"must be handles, chains, groups or ids of jobs, not {short(repr(after))}{hint}", path="after")


def _texts(texts: Any, path: str) -> tuple[str, ...]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise BadJob(f"must be a list of texts, not {texts!r}", path=path)
    return tuple(texts)


def _choice(kind: type[Choice], value: str, path: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise BadJob(f"{value!r} is none of {', '.join(kind)}", path=path) from None


def _optional(value: Any) -> float | None:
    return None if value is None else seconds(value)
