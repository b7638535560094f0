"""The app of a Django project: what is enqueued goes through Django's own connection."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, cast

import django
from asgiref.sync import sync_to_async
from django.db import close_old_connections

from holdfast.app import Holdfast
from holdfast.connect import Adapters, checked_url
from holdfast.django.databases import store_url
from holdfast.runtime.executor.loading import PREPARE
from holdfast.tasks.context import current_job
from holdfast.tasks.options import Executor, Using

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.tasks.bound import Call
    from holdfast.tasks.context import Job
    from holdfast.tasks.handle import Handle
    from holdfast.tasks.typed import Declare


class DjangoHoldfast(Holdfast):
    """Jobs in a database of Django's.

    What is enqueued without `conn=` goes through Django's connection of the alias `using`: inside `transaction.atomic` it is
    part of that transaction, outside it is committed at once. Workers have connections of their own to the same database.
    Around every attempt Django's connections are looked after as around a request.
    """

    def __init__(self, using: str = "default", *, schema: str | None = None, **options: Any) -> None:
        """Declare an app; `schema` is that of the store on PostgreSQL, `options` are those of `Holdfast`."""
        super().__init__(None, **options)
        self.using = using
        """The alias in DATABASES."""
        self.schema = schema
        """Of the store, on PostgreSQL; `None`: `holdfast`."""
        self._adapters = self._own = _DjangoAdapters(using, schema, options.get("create", True), self._environment)
        self.middleware(self._fresh_connections)

    @property
    def default_conn(self) -> Using | None:
        """Django's connection; none while a test has the app use another store."""
        return Using(self.using) if self._adapters is self._own else None

    async def enqueue_many(self, calls: Sequence[Call[Any]], *, conn: Any = None) -> list[Handle[Any]]:
        """Enqueue calls, as `Holdfast.enqueue_many` does. On an event loop in the thread in which Django runs what blocks."""
        calls = list(calls)
        if _on_loop() and isinstance(self._one_conn(calls, conn), Using):
            return await sync_to_async(self.enqueue_many_sync, thread_sensitive=True)(calls, conn=conn)
        return await super().enqueue_many(calls, conn=conn)

    def task(self, function: None = None, /, **options: Any) -> Declare:
        """Declare a function as a task, as `Holdfast.task` does."""
        declare: Any = super().task(function, **options)
        return cast("Declare", lambda function: declare(_attempted(function)))

    async def _fresh_connections(self, job: Job, call_next: Callable[[Job], Awaitable[Any]]) -> Any:
        """Close what has grown old, around handlers that await: what they ask of Django runs in the one thread for that."""
        if self.tasks[job.task].executor is not Executor.ASYNC:
            return await call_next(job)
        close = sync_to_async(close_old_connections, thread_sensitive=True)
        await close()
        try:
            return await call_next(job)
        finally:
            await close()


class _DjangoAdapters(Adapters):
    """The store in a database of Django's, as DATABASES name it when it is asked for."""

    def __init__(self, using: str, schema: str | None, create: bool, environment: Any) -> None:  # noqa: FBT001  as it was given
        super().__init__(None, create=create, environment=environment)
        self._using = using
        self._schema = schema

    @property
    def url(self) -> str:
        """The store's URL."""
        return checked_url(store_url(self._using, self._schema))


def prepare_child() -> None:
    """Set Django up in the child process of a task that has one, before its module is imported: it may have models."""
    django.setup()


def _attempted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is run as Django wants it, wherever it runs."""
    attempt = _with_fresh_connections(function)
    setattr(attempt, PREPARE, f"{__name__}:{prepare_child.__name__}")
    return attempt


def _with_fresh_connections(function: Callable[..., Any]) -> Callable[..., Any]:
    """Close what has grown old around a function that blocks, in its own thread: Django's connections are by thread."""
    if inspect.iscoroutinefunction(inspect.unwrap(function)):
        return function

    @functools.wraps(function)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        if current_job.get() is None:  # called as a plain function: the connection is its caller's
            return function(*args, **kwargs)
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return attempt


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
