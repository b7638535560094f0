"""A declared function, and the ways to ask for a run of it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, get_args
from uuid import UUID

from holdfast.core.classify import Classification
from holdfast.core.job import NewJob, OnConflict, Policy, Unique
from holdfast.core.text import checked_name
from holdfast.errors import BadArgs, BadJob, BadTask
from holdfast.tasks.codec import ArgsCodec, ResultCodec
from holdfast.tasks.command import Command, CommandResult
from holdfast.tasks.context import Job
from holdfast.tasks.options import Executor, priority_of, retry_of, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Unpack

    from holdfast.tasks.handle import Desk, Handle
    from holdfast.tasks.options import JobOptions, QueueOptions, TaskOptions

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
        """Enqueue calls, all or none, in order."""
        ...

    def blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from blocking code; refused inside a running event loop."""
        ...

    @property
    def desk(self) -> Desk:
        """Return what handles talk to."""
        ...


class Call(Generic[R_co]):
    """A task with its args, checked and ready to be enqueued. Enqueuing the same call twice makes one job."""

    __slots__ = ("job", "task")

    def __init__(self, task: Task[..., R_co], job: NewJob) -> None:
        self.task = task
        self.job = job


class Task(Generic[P, R]):
    """A declared function. Calling it runs the function itself, with nothing in between."""

    def __init__(
        self, function: Callable[..., Any], name: str, options: TaskOptions, producer: Producer, *, max_bytes: int
    ) -> None:
        self.name = checked_name(name, "task")
        self.function = function
        self.options_declared = options
        self.job_parameter = _job_parameter(function, name)
        injected = frozenset({self.job_parameter}) if self.job_parameter else frozenset[str]()
        self.args = ArgsCodec.of(function, task=name, max_bytes=max_bytes, injected=injected)
        if options.executor is Executor.COMMAND:
            self.results = ResultCodec.of(_command_result, task=name, max_bytes=max_bytes)
        else:
            self.results = ResultCodec.of(function, task=name, max_bytes=max_bytes)
        self.classification = Classification(options.codes, options.classify)
        self._producer = producer
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__wrapped__ = function
        self._plain = self._make({})
        self._plain.check()

    @property
    def executor(self) -> Executor:
        """How it is run."""
        return self.options_declared.executor

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Ask for a run. Returned means stored: from then on the job is live or terminal, whatever happens.

        Raises `BadArgs` for what the function would not accept, `QueueFull`, `StoreUnavailable`.
        """
        return (await self._producer.enqueue_many([self.call(*args, **kwargs)]))[0]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Do as `enqueue`, from blocking code."""
        return self._producer.blocking(self.enqueue(*args, **kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the run that `enqueue` would ask for, for `app.enqueue_many`."""
        return self._plain.call(*args, **kwargs)

    def options(self, **changes: Unpack[JobOptions]) -> BoundTask[P, R]:
        """Return the task with other options for the jobs enqueued through it."""
        return self._make(changes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain function."""
        return self.function(*args, **kwargs)

    def call_text(self, args: str, changes: JobOptions) -> Call[R]:
        """Return a call with args that are JSON text already; they must decode."""
        self.args.decode(args)
        return self._make(changes).call_encoded(args)

    def _make(self, changes: JobOptions) -> BoundTask[P, R]:
        return BoundTask(self, changes, self._producer)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class AsyncTask(Task[P, R]):
    """A task whose function awaits."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            """Run the plain function."""
            ...


class SyncTask(Task[P, R]):
    """A task whose function does not await."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Run the plain function."""
            ...


class CommandTask(Task[P, CommandResult]):
    """A task whose function returns the program to run."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Command:
            """Run the plain function."""
            ...


class BoundTask(Generic[P, R]):
    """A task with options for the jobs to come: what `task.options(…)` returns."""

    __slots__ = ("_fixed", "_key", "_key_is_template", "_producer", "_queue", "_task", "_unique")

    def __init__(self, task: Task[P, R], changes: JobOptions, producer: Producer) -> None:
        declared = task.options_declared
        unknown = set(changes) - _JOB_OPTIONS
        if unknown:
            raise BadJob(f"there is no option {min(unknown)!r}; there are {', '.join(sorted(_JOB_OPTIONS))}", task=task.name)
        self._task = task
        self._producer = producer
        self._queue = changes.get("queue", declared.queue)
        self._key = changes.get("key", declared.key)
        if self._key is not None and not isinstance(self._key, str) and not callable(self._key):
            raise BadJob(f"must be a text or a function of the args, not {self._key!r}", path="unique.key", task=task.name)
        self._key_is_template = "key" not in changes and isinstance(declared.key, str)
        retry = retry_of(changes["retry"]) if "retry" in changes else declared.retry
        timeout = _optional(changes["timeout"]) if "timeout" in changes else declared.timeout
        expires_in = changes.get("expires_in", declared.expires_in)
        window = changes.get("key_window", declared.key_window)
        self._unique: dict[str, Any] = {
            "scope": task.name if (scope := changes.get("key_scope", declared.key_scope)) is None else scope,
            "window": _optional(window),
            "on_conflict": _on_conflict(changes.get("on_conflict", declared.on_conflict)),
        }
        self._fixed: dict[str, Any] = {
            "task": task.name,
            "queue": self._queue,
            "priority": priority_of(changes.get("priority", declared.priority)),
            "delay": seconds(changes.get("delay", 0.0)),
            "run_at": changes.get("run_at"),
            "lease": seconds(changes.get("lease", declared.lease)),
            "policy": Policy(retry, timeout),
            "tags": _tags(changes.get("tags", declared.tags)),
            "trace": changes.get("trace"),
            "expires_in": _optional(expires_in),
        }
        if self._key is None and (about := sorted(_KEY_OPTIONS & set(changes))):
            raise BadJob("says something about a key, and there is none: give key= too", path=about[0], task=task.name)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Ask for a run, as `Task.enqueue` does, with these options."""
        return (await self._producer.enqueue_many([self.call(*args, **kwargs)]))[0]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Do as `enqueue`, from blocking code."""
        return self._producer.blocking(self.enqueue(*args, **kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the run that `enqueue` would ask for, for `app.enqueue_many`."""
        return self.call_encoded(self._task.args.encode(*args, **kwargs))

    def call_encoded(self, text: str) -> Call[R]:
        """Return a call whose args are JSON text from the codec."""
        queue = self._producer.queue_options(self._queue)
        return Call(
            self._task,
            NewJob(
                id=self._producer.new_id(),
                args=text,
                unique=None if self._key is None else self._unique_of(text),
                fifo=queue is not None and queue.fifo,
                **self._fixed,
            ),
        )

    def _unique_of(self, text: str) -> Unique:
        key = self._key
        if callable(key):
            args, kwargs = self._task.args.decode(text)
            key = key(*args, **kwargs)
            if not isinstance(key, str):
                raise BadJob(f"key= must give a string, not {type(key).__name__}", path="unique.key", task=self._task.name)
        elif self._key_is_template and key is not None:
            key = self._filled_in(key, text)
        return Unique(key=str(key), **self._unique)

    def check(self) -> None:
        """Refuse options that no job could have, when the task is declared and not when somebody enqueues."""
        unique = None if self._key is None else Unique(key="-", **self._unique)
        NewJob(id=_ANY_ID, unique=unique, **self._fixed)
        if self._key_is_template and isinstance(self._key, str):
            known = [name for name in inspect.signature(self._task.function).parameters if name != self._task.job_parameter]
            try:
                fields = [field for _, field, _, _ in Formatter().parse(self._key) if field is not None]
            except ValueError as error:
                raise BadTask(f"task {self._task.name!r}: key={self._key!r} cannot be read: {error}") from None
            for field in fields:
                if re.split(r"[.\[]", field)[0] not in known:
                    raise BadTask(
                        f"task {self._task.name!r}: key={self._key!r} names no parameter with {{{field}}}; "
                        f"there are {', '.join(known) or 'none'}"
                    )

    def _filled_in(self, template: str, text: str) -> str:
        bound = inspect.signature(self._task.function).bind_partial(*(parts := self._task.args.decode(text))[0], **parts[1])
        bound.apply_defaults()
        try:
            return template.format(**bound.arguments)
        except (LookupError, AttributeError, ValueError) as error:
            raise BadArgs(f"the key {template!r} cannot be filled in: {error}", path="key", task=self._task.name) from error


_ANY_ID = UUID("01900000-0000-7000-8000-000000000000")
"""The id of a job that is made to be checked, and not to be enqueued."""

_KEY_OPTIONS = frozenset({"key_scope", "key_window", "on_conflict"})

_JOB_OPTIONS = frozenset(
    {"delay", "run_at", "queue", "priority", "key", "key_scope", "key_window", "on_conflict", "expires_in", "retry"}
    | {"timeout", "lease", "tags", "trace"}
)


def task_name(function: Callable[..., Any]) -> str:
    """Return the name a function goes by: `module.qualname`, with `__main__` under the name it would be imported by."""
    return f"{module_name(function.__module__)}.{function.__qualname__}"


def module_name(module: str) -> str:
    """Return the name by which other processes know a module."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name.removesuffix(".__main__"))
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def check_importable(function: Callable[..., Any], task: str) -> None:
    """Refuse a function that another process could not import by its module and name."""
    qualname = getattr(function, "__qualname__", "")
    if "<" in qualname or not qualname:
        raise BadTask(
            f"task {task!r} cannot run with executor='process': a child process imports it by name, and "
            f"{qualname or function!r} is defined inside a function. Define it at the top level of a module"
        )
    main = sys.modules.get("__main__")
    if function.__module__ == "__main__" and not getattr(main, "__file__", None):
        raise BadTask(
            f"task {task!r} cannot run with executor='process': it was typed into an interactive session, and a child process "
            "cannot import that. Put it into a file"
        )


def _job_parameter(function: Callable[..., Any], task: str) -> str | None:
    """Return the parameter that asks for the job: the one annotated `Job`. Annotations may be text, and not evaluable."""
    names = []
    for parameter in inspect.signature(function).parameters.values():
        if _asks_for_job(parameter.annotation, function):
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise BadTask(f"task {task!r}: the job is passed by name, so {parameter.name!r} cannot be positional-only")
            names.append(parameter.name)
    if len(names) > 1:
        raise BadTask(f"task {task!r} asks for the job twice: {' and '.join(names)}")
    return names[0] if names else None


def _asks_for_job(annotation: Any, function: Callable[..., Any]) -> bool:
    """Tell whether an annotation is `Job`, or `Job | None` of a function that may also be called without."""
    if isinstance(annotation, str):
        names = [name.strip("'\" ") for name in annotation.split("|")]
        names = [name for name in names if name != "None"]
        return len(names) == 1 and names[0].rpartition(".")[2] == "Job" and _evaluated(names[0], function) is Job
    return annotation is Job or [one for one in get_args(annotation) if one is not type(None)] == [Job]


def _evaluated(annotation: str, function: Callable[..., Any]) -> Any:
    found: Any = getattr(inspect.unwrap(function), "__globals__", {})
    for part in annotation.split("."):
        if isinstance(found, dict):
            if part not in found:
                return Job  # imported for type checkers only: the word alone says what is meant
            found = found[part]
        else:
            found = getattr(found, part, None)
    return found


def _command_result() -> CommandResult:
    raise NotImplementedError


def _tags(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise BadJob(f"must be a list of texts, not {tags!r}", path="tags")
    return tuple(tags)


def _on_conflict(value: OnConflict | str) -> OnConflict:
    try:
        return OnConflict(value)
    except ValueError:
        raise BadJob(f"{value!r} is none of {', '.join(OnConflict)}", path="on_conflict") from None


def _optional(value: Any) -> float | None:
    return None if value is None else seconds(value)


__all__ = ["AsyncTask", "BoundTask", "Call", "CommandTask", "SyncTask", "Task", "check_importable", "module_name", "task_name"]
