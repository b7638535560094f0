"""A declared function, and the ways to ask for a run of it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, get_args

from holdfast.core.classify import Classification
from holdfast.core.text import checked_name
from holdfast.errors import BadTask
from holdfast.tasks.bound import BoundTask, Call
from holdfast.tasks.codec import ArgsCodec, ResultCodec
from holdfast.tasks.command import Command, CommandResult
from holdfast.tasks.context import Job
from holdfast.tasks.options import Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Unpack

    from holdfast.tasks.bound import Producer
    from holdfast.tasks.chain import Chain
    from holdfast.tasks.evolving import Upgrade
    from holdfast.tasks.handle import Handle
    from holdfast.tasks.options import JobOptions, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")
U = TypeVar("U", bound="Upgrade")


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
        self.sealer = producer.sealer
        """What seals its texts, where its app encrypts."""
        self.args = ArgsCodec.of(
            function, task=name, max_bytes=max_bytes, injected=injected, version=options.version, sealer=self.sealer
        )
        returns = _command_result if options.executor is Executor.COMMAND else function
        self.results = ResultCodec.of(returns, task=name, max_bytes=max_bytes, sealer=self.sealer)
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
        return self._producer.blocking(self.enqueue(*args, **kwargs), self._producer.default_conn)

    async def start_chain(self, *args: P.args, **kwargs: P.kwargs) -> Chain[R]:
        """Start a chain whose first step is a run of this task; its steps go on with `return job.continue_with(next_task, …)`.

        Returned means stored. Raises as `enqueue` does.
        """
        return await self._plain.start_chain(*args, **kwargs)

    def start_chain_sync(self, *args: P.args, **kwargs: P.kwargs) -> Chain[R]:
        """Do as `start_chain`, from blocking code."""
        return self._producer.blocking(self.start_chain(*args, **kwargs), self._producer.default_conn)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the run that `enqueue` would ask for, for `app.enqueue_many`."""
        return self._plain.call_encoded(self.args.encode(*args, **kwargs))

    def options(self, **changes: Unpack[JobOptions]) -> BoundTask[P, R]:
        """Return the task with other options for the jobs enqueued through it."""
        return self._make(changes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain function."""
        return self.function(*args, **kwargs)

    def call_text(self, args: str, changes: JobOptions) -> Call[R]:
        """Return a call with args that are JSON text already; they must decode."""
        return self._make(changes).call_encoded(self.args.accept(args))

    @property
    def continues_with(self) -> frozenset[str] | None:
        """The names of the tasks it may continue with; `None`: any. One that is no name of a task may mean a neighbour's."""
        return self.options_declared.continues_with

    def may_continue_with(self, name: str) -> bool:
        """Tell whether it was declared to continue with the task of this name."""
        declared = self.continues_with
        return declared is None or name in declared or any(name == self.neighbour(one) for one in declared)

    def neighbour(self, name: str) -> str:
        """Return the name of a task with this short name that is declared beside this one."""
        beside, dot, _ = self.name.rpartition(".")
        return f"{beside}{dot}{name}"

    def upgrade(self, version: int) -> Callable[[U], U]:
        """Declare how stored args of a version become those of the next: `@task.upgrade(1)` on a function from dict to dict.

        It is given the stored JSON object, and runs before the args are validated. Raises `BadTask` for a version that is
        not below the task's own. The function itself is returned.
        """

        def declare(function: U) -> U:
            self.args.evolution.add(version, function)
            return function

        return declare

    def _make(self, changes: JobOptions) -> BoundTask[P, R]:
        return BoundTask(self, changes, self._producer)

    if TYPE_CHECKING:

        def _takes(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Say what it takes and gives, to `tasks.typed`."""
            ...

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


__all__ = ["AsyncTask", "BoundTask", "Call", "CommandTask", "SyncTask", "Task", "check_importable", "module_name", "task_name"]
