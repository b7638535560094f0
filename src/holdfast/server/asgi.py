"""The server as an ASGI application: `create_server(url_or_app, settings)`, for uvicorn or inside another program."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount

from holdfast import __version__
from holdfast.app import Holdfast
from holdfast.errors import BadSetting
from holdfast.server.alerts.alerting import Alerting
from holdfast.server.api import Api
from holdfast.server.api.openapi import ROOT
from holdfast.server.api.serving import problem_response, told
from holdfast.server.context import Context
from holdfast.server.door import KeyDoor
from holdfast.server.extending import checked, found_for
from holdfast.server.health import health_routes
from holdfast.server.keeping import Keeping
from holdfast.server.keyring import Keyring
from holdfast.server.limits import TooMany
from holdfast.server.metrics import metrics_routes
from holdfast.server.proving import Held, held
from holdfast.server.proxies import Proxies
from holdfast.server.settings import LOOPBACK_NAMES, ServerSettings, is_loopback
from holdfast.server.ui import Dashboard
from holdfast.store.port import Role
from holdfast.wire.problems import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from holdfast.runtime.worker import RunningWorker
    from holdfast.server.alerts.target import Target
    from holdfast.server.extending import Extension
    from holdfast.store.port import Retention, Store


NOT_STARTED: Final = "this server is mounted in another program, which has not started it"
HOW_TO_START: Final = """enter it in the lifespan of that program, for a mounted application's own is not run by itself:

    async with server.running():
        yield

Web servers without a lifespan (daphne) start nothing: use one that has it, such as uvicorn."""


class Server(Starlette):
    """The application. `context` is what its parts share, `close` has requests that wait answer before it is stopped."""

    context: Context
    api: Api
    dashboard: Dashboard
    opened: Callable[[], AbstractAsyncContextManager[None]]
    """Opens what it works with, and closes it again."""
    _entered = False
    _runs = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve for as long as the block lasts, once: the store is open, the house kept, alerts sent and jobs run.

        A web server that is given this application enters it by itself. A program that mounts it enters it in its own lifespan;
        until then every request is answered with 503 and why.
        """
        if self._entered:
            raise BadSetting("this server was started before, and one is started once: make another with create_server()")
        self._entered = True
        async with self.opened():
            self._runs = True
            try:
                yield
            finally:
                self._runs = False
                self.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or say why that cannot be."""
        if scope["type"] == "http" and not self._runs:
            await _not_started(scope)(scope, receive, send)
            return
        await super().__call__(scope, receive, send)

    async def held(self, request: Request, *, job_id: str, token: str, attempt: int | None = None) -> Held:
        """Return the job that whoever makes a request holds, and prolong its lease: for routes of a program beside this server.

        Raises an error that `refusal` makes an answer of: 401, 403, 404, or 409 for a lease that is no longer current.
        """
        return await held(self.context, request, job_id, token, attempt)

    @staticmethod
    def refusal(error: Exception) -> Response:
        """Return the answer that tells of an error, in the one shape of the HTTP API. Errors of your own are told as 500."""
        return told(error)

    def close(self) -> None:
        """Have every request that waits answer now: before the web server waits for them."""
        self.api.close()
        self.dashboard.close()


def create_server(
    url_or_app: str | Holdfast,
    settings: ServerSettings | None = None,
    *,
    retention: Retention | None = None,
    worker: Mapping[str, Any] | None = None,
    housekeeping: bool = True,
    alerts: Sequence[Target] = (),
    extensions: Sequence[Extension] | None = None,
) -> Server:
    """Return the server of a store. Nothing is opened before it starts: by a web server, or by `server.running()`.

    With an app, its schedules are fired here too; `worker` runs its jobs in this process, with these options of `app.worker`.
    `housekeeping=False` leaves to workers beside the database what keeps the store going: promoting what is due, reaping,
    sweeping, pruning, schedules. What workers in other languages came to is added up here all the same.
    `alerts` says where trouble is told.
    `extensions` are pages of other packages; unless they are given, those that installed packages have for the app.
    Where others reach it, it starts only with an admin secret or an admin's key (`BadSetting`).
    """
    own = settings or ServerSettings()
    app = url_or_app if isinstance(url_or_app, Holdfast) else Holdfast(url_or_app)
    if worker is not None and app is not url_or_app:
        raise BadSetting("a server runs jobs only where it is given an app: holdfast server shop.jobs:app --worker")
    parts = app.world(retention)
    store, notifier = parts.make_store(), parts.make_notifier()
    keyring = Keyring(store, parts.environment)
    door = KeyDoor(store, keyring, parts.environment, own)
    context = Context(
        id=parts.environment.job_id(),
        store=store,
        notifier=notifier,
        environment=parts.environment,
        settings=own,
        keyring=keyring,
        door=door,
        version=__version__,
        tasks=parts.tasks,
        alerts=tuple(alerts),
    )
    keeping = Keeping(
        store,
        notifier,
        parts.environment,
        parts.retention,
        counters=context.counters,
        tasks=list(parts.tasks.values()),
        house=housekeeping,
    )
    alerting = Alerting(app.beside(), context, alerts, reaps=not housekeeping) if alerts else None
    added = checked(found_for(app) if extensions is None else extensions)
    api = Api(context, keeping.figures)

    hosted: list[RunningWorker] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            await store.open()
            await check_access(store, own)
            stack.push_async_callback(notifier.close)
            for extension in added:
                if extension.lifespan is not None:
                    await stack.enter_async_context(extension.lifespan())
            await api.start()
            stack.push_async_callback(keeping.stop)
            await keeping.start()
            if alerting is not None:
                hosted.append(await stack.enter_async_context(alerting))
            if worker is not None:
                own_worker = app.worker(**worker)
                own_worker.reaps = not housekeeping
                hosted.append(await stack.enter_async_context(own_worker))
            yield

    dashboard = Dashboard(context, added)
    door.sessions = dashboard.sessions.principal
    routes = [
        *api.routes(),
        *health_routes(context, [one.loops for one in (keeping, alerting) if one is not None], hosted),
        *metrics_routes(context),
        *dashboard.routes,
    ]
    server: Server = Server(
        routes=[Mount(own.prefix, routes=routes)] if own.prefix else routes,
        lifespan=lambda _: server.running(),
        exception_handlers={HTTPException: _not_served, TooMany: _too_many},
    )
    server.context, server.api, server.dashboard, server.opened = context, api, dashboard, opened
    if own.open:
        server.add_middleware(OnlyHere)
    if own.trusted_proxies:
        server.add_middleware(Proxies, trusted=own.trusted_proxies)
    return server


async def check_access(store: Store, settings: ServerSettings) -> None:
    """Refuse to be reached by others while nobody could be told from anybody."""
    if is_loopback(settings.host) or settings.admin_secret is not None:
        return
    if not await has_admin(store):
        raise BadSetting(
            f"{settings.host} can be reached from other machines, and nobody could be kept out. Do one of these first:\n"
            "  export HOLDFAST_ADMIN_SECRET=$(holdfast keys secret)\n"
            "  holdfast keys add NAME --role admin\n"
            "or listen on 127.0.0.1"
        )


async def has_admin(store: Store) -> bool:
    """Tell whether some admin could come in by a key now: not by one that has expired or was revoked."""
    now = await store.now()
    return any(
        key.role is Role.ADMIN and key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
        for key in await store.keys()
    )


class OnlyHere:
    """Where everybody is let in: refuses what other machines send, and what a page from elsewhere has a browser send."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that names this machine."""
        if scope["type"] == "http" and not _is_from_here(scope):
            problem = Problem(
                error="forbidden",
                message="this server is open to this machine alone, and was asked from another or by another name",
                fix="use http://127.0.0.1, or start it without --open",
            )
            await problem_response(403, problem)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_from_here(scope: Scope) -> bool:
    """Tell whether a request names this machine, and reached an address of it that no other can reach."""
    local = scope.get("server")  # where the connection ended: a program that mounts this may listen anywhere
    reached = local is None or _names_this_machine(str(local[0]))
    return reached and _names_this_machine(dict(scope["headers"]).get(b"host", b"").decode("latin-1"))


def _names_this_machine(host: str) -> bool:
    name = host[1 : host.index("]")] if host.startswith("[") and "]" in host else host.rpartition(":")[0] or host
    return name in LOOPBACK_NAMES or is_loopback(name)


def _not_started(scope: Scope) -> Response:
    """Say that nobody has started the server: to programs as a problem, to people in words."""
    if f"{ROOT}/" in scope["path"]:
        return problem_response(503, Problem(error="unavailable", message=NOT_STARTED, fix=HOW_TO_START))
    return PlainTextResponse(f"{NOT_STARTED[0].upper()}{NOT_STARTED[1:]}.\n\nFix: {HOW_TO_START}\n", 503)


async def _not_served(request: Request, error: Exception) -> Response:
    """Tell of a path or method that is not there: to programs as a problem, to people in words."""
    if not isinstance(error, HTTPException):
        raise error
    if f"{ROOT}/" not in request.url.path:
        server: Server = request.app
        below = str(request.scope.get("root_path", "")).endswith(server.context.settings.prefix)
        if not below or "text/html" not in request.headers.get("accept", ""):  # what programs ask for is no page
            return PlainTextResponse(error.detail, error.status_code, error.headers)
        page = await server.dashboard.nothing(request, error.status_code)
        page.headers.update(error.headers or {})
        return page
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    message = f"{request.method} {request.url.path} is not served: {error.detail}"
    answer = problem_response(
        error.status_code, Problem(error=code, message=message, fix=f"see {ROOT}/openapi.json for what is")
    )
    answer.headers.update(error.headers or {})
    return answer


async def _too_many(_: Request, error: Exception) -> Response:
    return told(error)
