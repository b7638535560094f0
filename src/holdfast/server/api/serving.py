"""Serving the endpoints: the door, the body, the handler, the answer, and every way in which that goes wrong."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from holdfast.errors import HoldfastError, SchemaError, StoreUnavailable
from holdfast.server import keys
from holdfast.server.api.hearing import Hearing
from holdfast.server.api.ledger import Ledger
from holdfast.server.api.openapi import ROOT, document
from holdfast.server.api.operations import OPERATIONS
from holdfast.server.api.owners import Owners
from holdfast.server.api.signs import Signs
from holdfast.server.api.table import Asked, Refused, forbidden, unauthorized
from holdfast.server.limits import TooMany
from holdfast.server.proxies import is_own
from holdfast.wire.problems import Problem, problem_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from holdfast.runtime.figures import Figures
    from holdfast.server.api.table import Operation
    from holdfast.server.context import Context

logger = logging.getLogger("holdfast.server")

JSON: Final = "application/json"
OWN_SITE: Final = frozenset({"same-origin", "none"})
"""What browsers say of requests that no other site has made."""
_FOREIGN: Final = Problem(
    error="forbidden",
    message="a page of another site sends this",
    fix="send a key: the header Authorization: Bearer hf_…",
)
AWAY: Final = 1
"""Seconds after which a request may be repeated that found the store away."""


class Api:
    """The endpoints over one store. Belongs to one event loop."""

    def __init__(self, context: Context, figures: Figures) -> None:
        self._context = context
        self.ledger = Ledger(figures)
        self._owners = Owners(context.store, context.environment)
        self.signs = Signs(context.store, context.environment)
        self.hearing = Hearing(context.notifier)
        self._document = document(context.version)

    def routes(self) -> list[BaseRoute]:
        """Return the routes, with the document that describes them."""
        served: list[BaseRoute] = [
            Route(f"{ROOT}{one.path}", self._endpoint(one), methods=[one.method], name=one.name) for one in OPERATIONS
        ]
        return [*served, Route(f"{ROOT}/openapi.json", self._openapi, methods=["GET"], name="openapi")]

    async def start(self) -> None:
        """Begin to hear hints."""
        await self.hearing.start()

    def close(self) -> None:
        """Have every request that waits answer now."""
        self.hearing.close()

    async def _openapi(self, request: Request) -> Response:
        where = {"servers": [{"url": request.scope.get("root_path") or "/"}]}
        return Response(msgspec.json.encode(self._document | where), media_type=JSON)

    def _endpoint(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        decoder = None if operation.body is None else msgspec.json.Decoder(operation.body)

        async def endpoint(request: Request) -> Response:
            try:
                asked = await self._asked(operation, decoder, request)
                answer = await operation.handle(asked)
            except ClientDisconnect:
                return Response(status_code=400)  # which nobody receives
            except Exception as error:  # noqa: BLE001  every error is told in one shape
                return told(error)
            return answer if isinstance(answer, Response) else Response(msgspec.json.encode(answer), media_type=JSON)

        return endpoint

    async def _asked(self, operation: Operation, decoder: msgspec.json.Decoder[Any] | None, request: Request) -> Asked[Any]:
        if operation.method != "GET" and is_foreign(request):
            raise Refused(403, _FOREIGN)
        principal = await self._context.door.principal(request, keeps=operation.keeps)
        if principal is None:
            raise unauthorized()
        if operation.rights and not any(principal.may(right) for right in operation.rights):
            raise forbidden(principal, operation.rights[0])
        ids = tuple(_id(text) for text in request.path_params.values())
        if operation.query is not None:
            body = queried(request, operation.query)
        else:
            body = None if decoder is None else await self._body(request, decoder)
        return Asked(self._context, self.hearing, self.ledger, self._owners, self.signs, request, principal, body, ids)

    async def _body(self, request: Request, decoder: msgspec.json.Decoder[Any]) -> Any:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            problem = Problem(
                error="unsupported_media_type",
                message=f"the body is {kind or 'of no kind'}, and must be JSON",
                fix="send the header Content-Type: application/json",
            )
            raise Refused(415, problem)
        return decoded(await read_body(request, self._context.settings.body_limit), decoder)


def is_foreign(request: Request) -> bool:
    """Tell whether a page of another site has a browser send this with its cookies, or to a server that is open.

    Browsers ask first before they send JSON elsewhere, and do not send this cookie along: this is the lock behind those two.
    Whoever shows a key is no page that was led astray; what a browser sends by itself for a proxy is none.
    """
    headers = request.headers
    if keys.shown(headers.get("authorization", "")) is not None:
        return False
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    return site not in OWN_SITE or (origin is not None and not is_own(origin, request))


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body, or refuse it as soon as it is too large."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def decoded(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Return what a body says; an empty one says nothing."""
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, HoldfastError):
            raise error.__cause__ from None
        raise _bad_shape(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = Problem(error="bad_json", message=f"the body is no JSON: {error}", fix="send JSON in UTF-8")
        raise Refused(400, problem) from None
    except RecursionError:
        problem = Problem(error="bad_json", message="the body is nested too deeply", fix="send JSON that is flatter")
        raise Refused(400, problem) from None


def queried(request: Request, kind: type[msgspec.Struct]) -> Any:
    """Return what follows the `?`; parameters that are not known are ignored, as fields of a body are."""
    given = request.query_params
    lists = {field.name for field in msgspec.structs.fields(kind) if isinstance(field.default_factory, type)}
    named = {name: given.getlist(name) if name in lists else given[name] for name in given}
    try:
        return msgspec.convert(named, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad_shape(error) from None


def told(error: Exception) -> Response:
    """Return how an error is told."""
    if isinstance(error, Refused):
        return problem_response(error.status, error.problem, retry_after=error.retry_after)
    if isinstance(error, TooMany):
        problem = Problem(error="too_many", message=str(error), fix=f"come again in {error.retry_after} s")
        return problem_response(429, problem, retry_after=error.retry_after)
    if isinstance(error, (StoreUnavailable, SchemaError)):
        logger.warning("a request found the store away: %s", error)
        problem = Problem(
            error="unavailable",
            message="the store does not answer; whether the request took effect is unknown",
            fix="repeat it",
        )
        return problem_response(503, problem, retry_after=AWAY)
    if isinstance(error, HoldfastError) and (found := problem_of(error)) is not None:
        return problem_response(*found)
    logger.error("a request failed by an error of our own", exc_info=error)
    problem = Problem(error="internal", message="an error of the server's own; it is in its log", fix="tell its operator")
    return problem_response(500, problem)


def problem_response(status: int, problem: Problem, *, retry_after: int | None = None) -> Response:
    """Return a problem as a response."""
    headers: Mapping[str, str] | None = None if retry_after is None else {"Retry-After": str(retry_after)}
    if status == 401:  # noqa: PLR2004  asks for a key
        headers = {"WWW-Authenticate": "Bearer"}
    return Response(msgspec.json.encode(problem), status, headers, JSON)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        problem = Problem(error="bad_id", message=f"{text[:100]!r} is no UUID", fix="use the id as it was given", path="id")
        raise Refused(400, problem) from None


def _bad_shape(error: msgspec.ValidationError) -> Refused:
    reason, _, path = str(error).partition(" - at `")
    problem = Problem(
        error="bad_shape",
        message=str(error),
        fix="see /api/v1/openapi.json for what is expected",
        path=path.removesuffix("`").removeprefix("$").lstrip("."),
        facts={"reason": reason},
    )
    return Refused(400, problem)


def _too_large(limit: int) -> Refused:
    problem = Problem(
        error="too_large",
        message=f"the request has more than {limit:,} bytes, which is the limit",
        fix="send it in smaller pieces; keep large data elsewhere, and send where it is",
        facts={"limit": limit},
    )
    return Refused(413, problem)
