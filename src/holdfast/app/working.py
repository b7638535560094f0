"""Working: what a worker is made of. The whole app."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from holdfast.app.declaring import Declaring
from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.errors import BadSetting, BadTask
from holdfast.tasks.options import Executor, names_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.runtime.counters import Counters
    from holdfast.runtime.worker import RunningWorker
    from holdfast.runtime.world import World
    from holdfast.store.port import Retention


class Holdfast(Declaring):
    """Durable jobs in the store a URL names.

    Nothing is opened before it is needed. One app may be used from several event loops and threads: each loop has its own
    connections, and `_sync` methods share one thread.
    """

    def worker(
        self,
        *,
        concurrency: int = 20,
        queues: Sequence[str] | None = None,
        name: str | None = None,
        capabilities: Collection[str] = (),
        delay: float = 0.0,
        prefetch: int = 0,
        poll: float | None = None,
        retry_share: float = 0.2,
        shutdown_timeout: float = 30.0,
        exit_when_blocked: bool = False,
        health: str | None = None,
        retention: Retention | None = None,
        counters: Counters | None = None,
    ) -> RunningWorker:
        """Return a worker for the declared tasks: `async with app.worker(concurrency=20): …`, or `await worker.serve()`.

        `queues` limits it to some queues. `capabilities` are what it has that some jobs require. `prefetch` lets it hold
        more short jobs than it has slots. `delay` is a rest after each claim. `poll` is how often it looks for itself: every
        minute while hints arrive and every second otherwise. `retention` says how long it lets ended jobs stand, instead of
        the app's. `health` is the `[HOST:]PORT` where it answers probes over HTTP; `worker.health()` says the same here.
        """
        from holdfast import __version__  # noqa: PLC0415  a circle otherwise
        from holdfast.runtime.worker import RunningWorker  # noqa: PLC0415  only workers need all of it
        from holdfast.runtime.world import WorkerOptions  # noqa: PLC0415  as above

        if isinstance(queues, str):
            raise BadSetting(f"queues={queues!r} is one text: write queues=[{queues!r}]")
        if isinstance(capabilities, str):
            raise BadSetting(f"capabilities={capabilities!r} is one text: write capabilities={{{capabilities!r}}}")
        options = WorkerOptions(
            name=name or f"{socket.gethostname()}:{os.getpid()}",
            version=__version__,
            concurrency=concurrency,
            queues=None if queues is None else frozenset(queues),
            capabilities=names_of(capabilities),
            prefetch=prefetch,
            delay=delay,
            poll=60.0 if poll is None else poll,
            poll_unhinted=1.0 if poll is None else min(poll, 1.0),
            retry_share=retry_share,
            shutdown_timeout=shutdown_timeout,
            exit_when_blocked=exit_when_blocked,
            health=health,
        )
        return RunningWorker(self.world(retention), options, counters)

    def _limits(self) -> dict[LimitName, LimitRule]:
        """Return what the app says about limits, also that it says nothing about those of its tasks and queues."""
        said: dict[LimitName, LimitRule] = {}
        for queue in self._queues.values():
            said[LimitName(LimitKind.QUEUE, queue.name)] = LimitRule() if queue.limit is None else queue.limit.rule()
        for task in self._tasks.values():
            whole, keyed = task.options_declared.limit
            said[LimitName(LimitKind.TASK, task.name)] = LimitRule() if whole is None else whole.rule()
            if keyed is not None:
                scope = LimitName(LimitKind.KEY, keyed.scope or task.name)
                if said.setdefault(scope, keyed.rule()) != keyed.rule():
                    raise BadTask(
                        f"task {task.name!r} says {keyed.rule()} of the keys of scope {scope.name!r}, and another says "
                        f"{said[scope]}: they share its limits, so say the same, or name another scope"
                    )
            else:
                said.setdefault(LimitName(LimitKind.KEY, task.name), LimitRule())
        return said

    def world(self, retention: Retention | None = None) -> World:
        """Return what a worker is made of: the tasks and hooks declared so far, and the adapters. For tools and tests.

        Tasks that nobody runs, because they are completed from outside, are not among them. Raises `BadTask` where a task
        is to continue with one that does not exist.
        """
        from holdfast.runtime.world import World  # noqa: PLC0415  only workers need it

        self.check_continuations()
        return World(
            url=self.url,
            make_store=self._adapters.store,
            make_notifier=self._adapters.notifier,
            environment=self._environment,
            tasks={name: task for name, task in self._tasks.items() if task.executor is not Executor.OUTSIDE},
            middlewares=tuple(self._middlewares),
            lifespans=tuple(self._lifespans),
            capabilities=tuple(self._capabilities),
            listeners=tuple(self._listeners),
            weights={queue.name: queue.weight for queue in self._queues.values() if queue.weight is not None},
            limits=self._limits(),
            retention=retention or self._retention,
            outside=frozenset(name for name, task in self._tasks.items() if task.executor is Executor.OUTSIDE),
            remote=self._adapters.remote,
            make_caller=self.caller,
        )
