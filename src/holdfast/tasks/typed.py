"""How type checkers see a declaration: `enqueue` takes what the function takes, without the injected job.

A ParamSpec can lose its first parameter (`job: Job` in front) and keep an optional one (`job: Job | None = None`): these
functions are checked completely. It cannot lose a required keyword (`*, job: Job`): such functions are matched by the number of
their other parameters, which are checked where they are given by position; those that match no number are accepted unchecked.
Every call is checked again when it is made. At run time there is `Task` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# ruff: noqa: D101, D102  the module's docstring says what all of this is for
# Overloads overlap on purpose, the first match counts; and nothing here is ever run, so nothing has a body.
# mypy: disable-error-code="overload-overlap, no-overload-impl, empty-body"

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

    from holdfast.tasks.bound import BoundTask, Call
    from holdfast.tasks.chain import Chain
    from holdfast.tasks.command import Command, CommandResult
    from holdfast.tasks.context import Job
    from holdfast.tasks.handle import Handle
    from holdfast.tasks.options import JobOptions
    from holdfast.tasks.task import AsyncTask, CommandTask, SyncTask, Task

    P = ParamSpec("P")
    R = TypeVar("R")
    R_co = TypeVar("R_co", covariant=True)
    Returned = TypeVar("Returned")  # by a plain call: of a function that awaits, the coroutine
    R1 = TypeVar("R1")  # what each of several tasks gives
    R2 = TypeVar("R2")
    R3 = TypeVar("R3")
    R4 = TypeVar("R4")
    R5 = TypeVar("R5")
    A1 = TypeVar("A1")
    A2 = TypeVar("A2")
    A3 = TypeVar("A3")
    A4 = TypeVar("A4")
    A1_contra = TypeVar("A1_contra", contravariant=True)
    A2_contra = TypeVar("A2_contra", contravariant=True)
    A3_contra = TypeVar("A3_contra", contravariant=True)
    A4_contra = TypeVar("A4_contra", contravariant=True)

    # Functions. One fits a protocol if it fits every overload of its call: the last, with P, learns the signature, and the
    # others say which functions are meant.

    class Nobody:
        """What no function takes or returns: one that does, takes or returns anything."""

    class AnythingFirst(Protocol[P, R_co]):
        """Its first parameter would take a job, but does not ask for it."""

        @overload
        def __call__(self, first: Nobody, /, *args: Any, **kwargs: Any) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class OptionalJob0(Protocol[P, R_co]):
        @overload
        def __call__(self, *, job: Job) -> R_co: ...
        @overload
        def __call__(self) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class OptionalJob1(Protocol[P, R_co]):
        @overload
        def __call__(self, a1: Any, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, a1: Any, /) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class OptionalJob2(Protocol[P, R_co]):
        @overload
        def __call__(self, a1: Any, a2: Any, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, a1: Any, a2: Any, /) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class OptionalJob3(Protocol[P, R_co]):
        @overload
        def __call__(self, a1: Any, a2: Any, a3: Any, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, a1: Any, a2: Any, a3: Any, /) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class OptionalJob4(Protocol[P, R_co]):
        @overload
        def __call__(self, a1: Any, a2: Any, a3: Any, a4: Any, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, a1: Any, a2: Any, a3: Any, a4: Any, /) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class KeywordJob0(Protocol[R_co]):
        """Without P: mypy does not infer it beside an overload that equals the function."""

        def __call__(self, *, job: Job) -> R_co: ...

    class KeywordJob1(Protocol[P, A1_contra, R_co]):
        @overload
        def __call__(self, a1: A1_contra, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class KeywordJob2(Protocol[P, A1_contra, A2_contra, R_co]):
        @overload
        def __call__(self, a1: A1_contra, a2: A2_contra, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class KeywordJob3(Protocol[P, A1_contra, A2_contra, A3_contra, R_co]):
        @overload
        def __call__(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class KeywordJob4(Protocol[P, A1_contra, A2_contra, A3_contra, A4_contra, R_co]):
        @overload
        def __call__(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, a4: A4_contra, /, *, job: Job) -> R_co: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    # Tasks.

    class ReliesOnJob(Protocol):
        def __call__(self, *args: Any, job: Job, **kwargs: Any) -> Any: ...

    class AsksForJob(Protocol[R_co]):
        """A task whose function has a required keyword `job`, whatever else it takes.

        That cannot be asked of the function itself, so it is asked the other way round: what relies on being given `job` by
        name can stand in for the function just when every call of it gives `job` by name.
        """

        def _calls(self, function: ReliesOnJob, /) -> None: ...
        def _gives(self) -> R_co: ...

    class PlainTask(Task[P, R]):
        """A task that takes what its function takes; if that includes a job by name, it takes anything."""

        def _calls(self, function: Callable[P, Any], /) -> None: ...
        def _gives(self) -> R: ...

        @overload
        def _takes(self: AsksForJob[R], *args: Any, **kwargs: Any) -> R: ...
        @overload
        def _takes(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        @overload
        async def enqueue(self: AsksForJob[R], *args: Any, **kwargs: Any) -> Handle[R]: ...
        @overload
        async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
        @overload
        def enqueue_sync(self: AsksForJob[R], *args: Any, **kwargs: Any) -> Handle[R]: ...
        @overload
        def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
        @overload
        async def start_chain(self: AsksForJob[R], *args: Any, **kwargs: Any) -> Chain[R]: ...
        @overload
        async def start_chain(self, *args: P.args, **kwargs: P.kwargs) -> Chain[R]: ...
        @overload
        def start_chain_sync(self: AsksForJob[R], *args: Any, **kwargs: Any) -> Chain[R]: ...
        @overload
        def start_chain_sync(self, *args: P.args, **kwargs: P.kwargs) -> Chain[R]: ...
        @overload
        def call(self: AsksForJob[R], *args: Any, **kwargs: Any) -> Call[R]: ...
        @overload
        def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...
        @overload
        def options(self: AsksForJob[R], **changes: Unpack[JobOptions]) -> BoundTask[..., R]: ...
        @overload
        def options(self, **changes: Unpack[JobOptions]) -> BoundTask[P, R]: ...

    class PlainAsyncTask(PlainTask[P, R], AsyncTask[P, R]): ...

    class PlainSyncTask(PlainTask[P, R], SyncTask[P, R]): ...

    class PlainCommandTask(PlainTask[P, CommandResult], CommandTask[P]): ...

    class JobFirstTask(Task[P, R], Generic[P, R, Returned]):
        """A task whose function takes the job first; P is the rest."""

        @overload
        def __call__(self, job: Job, /, *args: P.args, **kwargs: P.kwargs) -> Returned: ...
        @overload
        def __call__(self, *, job: Job, **named: Any) -> Returned: ...

    class ArgsMissing:
        """What asking for a run without args gives where there must be some: nothing to await, no handle and no call."""

    class NoSuchArg:
        """The type of an arg by position that the function does not have."""

    class NeedsNoArgs(Protocol[R_co]):
        def _function(self) -> KeywordJob0[Any]: ...
        def _gives(self) -> R_co: ...

    class Enqueues(Generic[P, A1, A2, A3, A4, R]):
        """The ways to ask for a run, each with args by position, as many as there are, and any by name."""

        def _function(self) -> Callable[P, Any]: ...
        def _gives(self) -> R: ...
        def _takes(self, a1: A1 = ..., a2: A2 = ..., a3: A3 = ..., a4: A4 = ..., /, **named: Any) -> R: ...

        @overload
        async def enqueue(self: NeedsNoArgs[R]) -> Handle[R]: ...
        @overload
        def enqueue(self) -> ArgsMissing: ...
        @overload
        async def enqueue(self, a1: A1 = ..., a2: A2 = ..., a3: A3 = ..., a4: A4 = ..., /, **named: Any) -> Handle[R]: ...
        @overload
        def enqueue_sync(self: NeedsNoArgs[R]) -> Handle[R]: ...
        @overload
        def enqueue_sync(self) -> ArgsMissing: ...
        @overload
        def enqueue_sync(self, a1: A1 = ..., a2: A2 = ..., a3: A3 = ..., a4: A4 = ..., /, **named: Any) -> Handle[R]: ...
        @overload
        async def start_chain(self: NeedsNoArgs[R]) -> Chain[R]: ...
        @overload
        def start_chain(self) -> ArgsMissing: ...
        @overload
        async def start_chain(self, a1: A1 = ..., a2: A2 = ..., a3: A3 = ..., a4: A4 = ..., /, **named: Any) -> Chain[R]: ...
        @overload
        def start_chain_sync(self: NeedsNoArgs[R]) -> Chain[R]: ...
        @overload
        def start_chain_sync(self) -> ArgsMissing: ...
        @overload
        def start_chain_sync(self, a1: A1 = ..., a2: A2 = ..., a3: A3 = ..., a4: A4 = ..., /, **named: Any) -> Chain[R]: ...
        @overload
        def call(self: NeedsNoArgs[R]) -> Call[R]: ...
        @overload
        def call(self) -> ArgsMissing: ...
        @overload
        def call(self, a1: A1 = ..., a2: A2 = ..., a3: A3 = ..., a4: A4 = ..., /, **named: Any) -> Call[R]: ...

    class BoundJobTask(Enqueues[P, A1, A2, A3, A4, R], BoundTask[..., R]): ...

    class JobTask(Enqueues[P, A1, A2, A3, A4, R], Task[..., R], Generic[P, A1, A2, A3, A4, R, Returned]):
        """A task whose function takes the job by name; P includes it."""

        def options(self, **changes: Unpack[JobOptions]) -> BoundJobTask[P, A1, A2, A3, A4, R]: ...
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Returned: ...

    # What a job does with tasks.

    class Next(Protocol[P, R_co]):
        """What a step may continue with: a task, with options or without. `_takes` is what type checkers see of it.

        Without overloads, which would hide the message that names the argument at fault.
        """

        def _takes(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class Results(Protocol):
        """`job.results`: each task that is named says what the blocker in its place gave."""

        @overload
        def __call__(self, first: Task[..., R1], /) -> tuple[R1]: ...
        @overload
        def __call__(self, first: Task[..., R1], second: Task[..., R2], /) -> tuple[R1, R2]: ...
        @overload
        def __call__(self, first: Task[..., R1], second: Task[..., R2], third: Task[..., R3], /) -> tuple[R1, R2, R3]: ...
        @overload
        def __call__(
            self, first: Task[..., R1], second: Task[..., R2], third: Task[..., R3], fourth: Task[..., R4], /
        ) -> tuple[R1, R2, R3, R4]: ...
        @overload
        def __call__(
            self,
            first: Task[..., R1],
            second: Task[..., R2],
            third: Task[..., R3],
            fourth: Task[..., R4],
            fifth: Task[..., R5],
            /,
        ) -> tuple[R1, R2, R3, R4, R5]: ...
        @overload
        def __call__(
            self,
            first: Task[..., Any],
            second: Task[..., Any],
            third: Task[..., Any],
            fourth: Task[..., Any],
            fifth: Task[..., Any],
            sixth: Task[..., Any],
            /,
            *more: Task[..., Any],
        ) -> tuple[Any, ...]: ...

    class Declare(Protocol):
        """What `app.task(…)` returns: a decorator."""

        @overload
        def __call__(self, function: Callable[..., Nobody], /) -> Task[..., Any]: ...
        @overload
        def __call__(self, function: AnythingFirst[P, Command], /) -> CommandTask[P]: ...
        @overload
        def __call__(self, function: AnythingFirst[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...
        @overload
        def __call__(self, function: AnythingFirst[P, R], /) -> SyncTask[P, R]: ...
        @overload
        def __call__(self, function: Callable[Concatenate[Job, P], Command], /) -> JobFirstTask[P, CommandResult, Command]: ...
        @overload
        def __call__(
            self, function: Callable[Concatenate[Job, P], Awaitable[R]], /
        ) -> JobFirstTask[P, R, Coroutine[Any, Any, R]]: ...
        @overload
        def __call__(self, function: Callable[Concatenate[Job, P], R], /) -> JobFirstTask[P, R, R]: ...
        @overload
        def __call__(self, function: OptionalJob0[P, Command], /) -> CommandTask[P]: ...
        @overload
        def __call__(self, function: OptionalJob0[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob0[P, R], /) -> SyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob1[P, Command], /) -> CommandTask[P]: ...
        @overload
        def __call__(self, function: OptionalJob1[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob1[P, R], /) -> SyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob2[P, Command], /) -> CommandTask[P]: ...
        @overload
        def __call__(self, function: OptionalJob2[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob2[P, R], /) -> SyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob3[P, Command], /) -> CommandTask[P]: ...
        @overload
        def __call__(self, function: OptionalJob3[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob3[P, R], /) -> SyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob4[P, Command], /) -> CommandTask[P]: ...
        @overload
        def __call__(self, function: OptionalJob4[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...
        @overload
        def __call__(self, function: OptionalJob4[P, R], /) -> SyncTask[P, R]: ...
        @overload
        def __call__(
            self, function: KeywordJob4[P, A1, A2, A3, A4, Command], /
        ) -> JobTask[P, A1, A2, A3, A4, CommandResult, Command]: ...
        @overload
        def __call__(
            self, function: KeywordJob4[P, A1, A2, A3, A4, Awaitable[R]], /
        ) -> JobTask[P, A1, A2, A3, A4, R, Coroutine[Any, Any, R]]: ...
        @overload
        def __call__(self, function: KeywordJob4[P, A1, A2, A3, A4, R], /) -> JobTask[P, A1, A2, A3, A4, R, R]: ...
        @overload
        def __call__(
            self, function: KeywordJob3[P, A1, A2, A3, Command], /
        ) -> JobTask[P, A1, A2, A3, NoSuchArg, CommandResult, Command]: ...
        @overload
        def __call__(
            self, function: KeywordJob3[P, A1, A2, A3, Awaitable[R]], /
        ) -> JobTask[P, A1, A2, A3, NoSuchArg, R, Coroutine[Any, Any, R]]: ...
        @overload
        def __call__(self, function: KeywordJob3[P, A1, A2, A3, R], /) -> JobTask[P, A1, A2, A3, NoSuchArg, R, R]: ...
        @overload
        def __call__(
            self, function: KeywordJob2[P, A1, A2, Command], /
        ) -> JobTask[P, A1, A2, NoSuchArg, NoSuchArg, CommandResult, Command]: ...
        @overload
        def __call__(
            self, function: KeywordJob2[P, A1, A2, Awaitable[R]], /
        ) -> JobTask[P, A1, A2, NoSuchArg, NoSuchArg, R, Coroutine[Any, Any, R]]: ...
        @overload
        def __call__(self, function: KeywordJob2[P, A1, A2, R], /) -> JobTask[P, A1, A2, NoSuchArg, NoSuchArg, R, R]: ...
        @overload
        def __call__(
            self, function: KeywordJob1[P, A1, Command], /
        ) -> JobTask[P, A1, NoSuchArg, NoSuchArg, NoSuchArg, CommandResult, Command]: ...
        @overload
        def __call__(
            self, function: KeywordJob1[P, A1, Awaitable[R]], /
        ) -> JobTask[P, A1, NoSuchArg, NoSuchArg, NoSuchArg, R, Coroutine[Any, Any, R]]: ...
        @overload
        def __call__(self, function: KeywordJob1[P, A1, R], /) -> JobTask[P, A1, NoSuchArg, NoSuchArg, NoSuchArg, R, R]: ...
        @overload
        def __call__(
            self, function: KeywordJob0[Command], /
        ) -> JobTask[..., NoSuchArg, NoSuchArg, NoSuchArg, NoSuchArg, CommandResult, Command]: ...
        @overload
        def __call__(
            self, function: KeywordJob0[Awaitable[R]], /
        ) -> JobTask[..., NoSuchArg, NoSuchArg, NoSuchArg, NoSuchArg, R, Coroutine[Any, Any, R]]: ...
        @overload
        def __call__(self, function: KeywordJob0[R], /) -> JobTask[..., NoSuchArg, NoSuchArg, NoSuchArg, NoSuchArg, R, R]: ...
        @overload
        def __call__(self, function: Callable[P, Command], /) -> PlainCommandTask[P]: ...
        @overload
        def __call__(self, function: Callable[P, Awaitable[R]], /) -> PlainAsyncTask[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> PlainSyncTask[P, R]: ...
