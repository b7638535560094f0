"""How type checkers see a declaration: `enqueue` takes what the function takes, without the injected job.

A ParamSpec cannot drop a keyword, so functions that ask for `job: Job` are matched by the number of their other parameters:
those given by position are checked, those given by name are checked when the job is enqueued. At run
time there is `Task` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Unpack

    from holdfast.tasks.command import Command, CommandResult
    from holdfast.tasks.context import Job
    from holdfast.tasks.handle import Handle
    from holdfast.tasks.options import JobOptions
    from holdfast.tasks.task import AsyncTask, Call, CommandTask, SyncTask

P = ParamSpec("P")
R = TypeVar("R")
Ret_co = TypeVar("Ret_co", covariant=True)
A1_contra = TypeVar("A1_contra", contravariant=True)
A2_contra = TypeVar("A2_contra", contravariant=True)
A3_contra = TypeVar("A3_contra", contravariant=True)
A4_contra = TypeVar("A4_contra", contravariant=True)

# ruff: noqa: D101, D102  the module's docstring says what all of this is for

if TYPE_CHECKING:
    from typing import Never

    class WithJob0(Protocol[Ret_co]):
        def __call__(self, *, job: Job) -> Ret_co: ...

    class WithJob1(Protocol[A1_contra, Ret_co]):
        def __call__(self, a1: A1_contra, /, *, job: Job) -> Ret_co: ...

    class WithJob2(Protocol[A1_contra, A2_contra, Ret_co]):
        def __call__(self, a1: A1_contra, a2: A2_contra, /, *, job: Job) -> Ret_co: ...

    class WithJob3(Protocol[A1_contra, A2_contra, A3_contra, Ret_co]):
        def __call__(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, /, *, job: Job) -> Ret_co: ...

    class WithJob4(Protocol[A1_contra, A2_contra, A3_contra, A4_contra, Ret_co]):
        def __call__(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, a4: A4_contra, /, *, job: Job) -> Ret_co: ...

    class Enqueues(Protocol[A1_contra, A2_contra, A3_contra, A4_contra, Ret_co]):
        """The three ways to ask for a run, each with none to four args by position and the rest by name."""

        @overload
        async def enqueue(self, **named: Any) -> Handle[Ret_co]: ...
        @overload
        async def enqueue(self, a1: A1_contra, /, **named: Any) -> Handle[Ret_co]: ...
        @overload
        async def enqueue(self, a1: A1_contra, a2: A2_contra, /, **named: Any) -> Handle[Ret_co]: ...
        @overload
        async def enqueue(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, /, **named: Any) -> Handle[Ret_co]: ...
        @overload
        async def enqueue(
            self, a1: A1_contra, a2: A2_contra, a3: A3_contra, a4: A4_contra, /, **named: Any
        ) -> Handle[Ret_co]: ...
        @overload
        def enqueue_sync(self, **named: Any) -> Handle[Ret_co]: ...
        @overload
        def enqueue_sync(self, a1: A1_contra, /, **named: Any) -> Handle[Ret_co]: ...
        @overload
        def enqueue_sync(self, a1: A1_contra, a2: A2_contra, /, **named: Any) -> Handle[Ret_co]: ...
        @overload
        def enqueue_sync(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, /, **named: Any) -> Handle[Ret_co]: ...
        @overload
        def enqueue_sync(
            self, a1: A1_contra, a2: A2_contra, a3: A3_contra, a4: A4_contra, /, **named: Any
        ) -> Handle[Ret_co]: ...
        @overload
        def call(self, **named: Any) -> Call[Ret_co]: ...
        @overload
        def call(self, a1: A1_contra, /, **named: Any) -> Call[Ret_co]: ...
        @overload
        def call(self, a1: A1_contra, a2: A2_contra, /, **named: Any) -> Call[Ret_co]: ...
        @overload
        def call(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, /, **named: Any) -> Call[Ret_co]: ...
        @overload
        def call(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, a4: A4_contra, /, **named: Any) -> Call[Ret_co]: ...

    class JobTask(
        Enqueues[A1_contra, A2_contra, A3_contra, A4_contra, Ret_co],
        Protocol[A1_contra, A2_contra, A3_contra, A4_contra, Ret_co],
    ):
        """A task whose function asks for the job."""

        name: str
        function: Callable[..., Any]

        def options(self, **changes: Unpack[JobOptions]) -> Enqueues[A1_contra, A2_contra, A3_contra, A4_contra, Ret_co]: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    class Declare(Protocol):
        """What `app.task(…)` returns: a decorator.

        Overlaps are meant: an awaitable is a result too, and the first match counts.
        """

        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: WithJob4[A1_contra, A2_contra, A3_contra, A4_contra, Awaitable[R]], /
        ) -> JobTask[A1_contra, A2_contra, A3_contra, A4_contra, R]: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: WithJob3[A1_contra, A2_contra, A3_contra, Awaitable[R]], /
        ) -> JobTask[A1_contra, A2_contra, A3_contra, Never, R]: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: WithJob2[A1_contra, A2_contra, Awaitable[R]], /
        ) -> JobTask[A1_contra, A2_contra, Never, Never, R]: ...
        @overload
        def __call__(self, function: WithJob1[A1_contra, Awaitable[R]], /) -> JobTask[A1_contra, Never, Never, Never, R]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, function: WithJob0[Awaitable[R]], /) -> JobTask[Never, Never, Never, Never, R]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: WithJob4[A1_contra, A2_contra, A3_contra, A4_contra, Command], /
        ) -> JobTask[A1_contra, A2_contra, A3_contra, A4_contra, CommandResult]: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: WithJob3[A1_contra, A2_contra, A3_contra, Command], /
        ) -> JobTask[A1_contra, A2_contra, A3_contra, Never, CommandResult]: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: WithJob2[A1_contra, A2_contra, Command], /
        ) -> JobTask[A1_contra, A2_contra, Never, Never, CommandResult]: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: WithJob1[A1_contra, Command], /
        ) -> JobTask[A1_contra, Never, Never, Never, CommandResult]: ...
        @overload
        def __call__(self, function: WithJob0[Command], /) -> JobTask[Never, Never, Never, Never, CommandResult]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(
            self, function: WithJob4[A1_contra, A2_contra, A3_contra, A4_contra, R], /
        ) -> JobTask[A1_contra, A2_contra, A3_contra, A4_contra, R]: ...
        @overload
        def __call__(
            self, function: WithJob3[A1_contra, A2_contra, A3_contra, R], /
        ) -> JobTask[A1_contra, A2_contra, A3_contra, Never, R]: ...
        @overload
        def __call__(
            self, function: WithJob2[A1_contra, A2_contra, R], /
        ) -> JobTask[A1_contra, A2_contra, Never, Never, R]: ...
        @overload
        def __call__(self, function: WithJob1[A1_contra, R], /) -> JobTask[A1_contra, Never, Never, Never, R]: ...
        @overload
        def __call__(self, function: WithJob0[R], /) -> JobTask[Never, Never, Never, Never, R]: ...
        @overload
        def __call__(self, function: Callable[P, Command], /) -> CommandTask[P]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, function: Callable[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
