"""FastAPI and Starlette: jobs enqueued in requests, and a worker beside them where that is enough."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.app import Holdfast
from holdfast.errors import BadSetting, MissingExtra

try:
    from fastapi import Depends
    from starlette.requests import HTTPConnection  # noqa: TC002  FastAPI reads the annotation
except ImportError as missing:
    raise MissingExtra("fastapi", "holdfast.fastapi", missing.name or "fastapi") from missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]

__all__ = ["Jobs", "jobs_of", "lifespan"]

STATE = "holdfast"
"""The name under which requests find the app in their state."""


def lifespan(
    app: Holdfast, own: Lifespan | None = None, *, worker: bool | Mapping[str, Any] = False
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return a lifespan for `FastAPI(lifespan=…)`: the app is open while the program serves.

    The store is reached before the first request, so a wrong URL is told at the start. `worker=True` also runs jobs in this
    process, `worker={"concurrency": 4, "queues": ["mail"]}` with the options of `app.worker`. `own` is the program's own
    lifespan: entered first and left last, so that handlers still have its pools while the worker stops; what it yields
    reaches the requests as ever.
    """
    if not isinstance(app, Holdfast):
        raise BadSetting(f"lifespan() takes the Holdfast app first, not {app!r}: lifespan(jobs, own_lifespan, worker=True)")
    if own is not None and not callable(own):
        raise BadSetting(
            "lifespan() takes your own lifespan second, a function of the program that gives an async context manager, "
            f"not {own!r}"
        )
    if not isinstance(worker, (bool, Mapping)):
        raise BadSetting(
            f"worker= must be True, False or the options of app.worker, such as {{'concurrency': 4}}, not {worker!r}"
        )
    options = dict(worker) if not isinstance(worker, bool) else {}

    @asynccontextmanager
    async def entered(api: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            state = None if own is None else await stack.enter_async_context(own(api))
            await stack.enter_async_context(app)
            if worker is not False:
                await stack.enter_async_context(app.worker(**options))
            yield {**(state or {}), STATE: app}

    return entered


async def jobs_of(request: HTTPConnection) -> Holdfast:
    """Return the app of the program that serves a request, as a dependency: `jobs: Jobs`, or `Depends(jobs_of)`."""
    app = getattr(request.state, STATE, None)
    if not isinstance(app, Holdfast):
        raise BadSetting(
            "this request knows no Holdfast app: write FastAPI(lifespan=holdfast.fastapi.lifespan(app)). In tests, enter the "
            "lifespan too: with TestClient(api) as client"
        )
    return app


Jobs = Annotated[Holdfast, Depends(jobs_of)]
"""The app, for the parameters of a route."""
