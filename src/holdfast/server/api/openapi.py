"""The OpenAPI document, made from the table of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.server.api.operations import OPERATIONS
from holdfast.wire.problems import Problem

if TYPE_CHECKING:
    from holdfast.server.api.table import Operation

ROOT: Final = "/api/v1"
STATUSES: Final = {
    400: "It is no JSON, or not of this shape, or a parameter is none that is possible; `path` says where.",
    401: "No key, or one that is not known, has expired or was revoked.",
    403: "The key does not have the right, or not in this queue.",
    404: "It is not there.",
    409: "Too late: the token is no longer current (`stale`, with `state` and `holder`); or not possible as things stand.",
    413: "The request is too large; the message says how large it may be.",
    415: "The body must be sent as application/json.",
    422: "A value that no store accepts; `path` says which.",
    429: "Too many requests; come again after `Retry-After` seconds.",
    503: "The store is away; come again after `Retry-After` seconds.",
}
_REF: Final = "#/components/schemas/{name}"


def document(version: str) -> dict[str, Any]:
    """Return the document for a server of this version, at the root of where it is served."""
    types: list[type] = [Problem]
    for operation in OPERATIONS:
        types += [kind for kind in (operation.body, operation.answer) if kind is not None]
    types = list(dict.fromkeys(types))
    refs, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, refs, strict=True))
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(f"{ROOT}{operation.path}", {})[operation.method.lower()] = _operation(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version,
            "description": "Durable jobs over HTTP. Durations are milliseconds (`*_ms`), times ISO 8601 with a zone.",
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key: hf_…"}},
        },
    }


def _operation(operation: Operation, by_type: dict[type, dict[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {str(status): _response(operation, status, by_type) for status in operation.statuses},
    }
    if "{id}" in operation.path:
        schema = {"type": "string", "format": "uuid"}
        told["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": schema}]
    if operation.query is not None:
        told["parameters"] = _parameters(operation.query)
    if operation.body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": by_type[operation.body]}}}
    return told


def _parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    """Return what may follow the `?`; a list is sent by naming its parameter several times, which is the usual way."""
    _, schemas = msgspec.json.schema_components([query])
    fields = schemas[query.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields.items()]


def _response(operation: Operation, status: int, by_type: dict[type, dict[str, Any]]) -> dict[str, Any]:
    if status != 200:  # noqa: PLR2004  all else is a problem
        return {"description": STATUSES[status], "content": {"application/json": {"schema": by_type[Problem]}}}
    if operation.answer is None:
        return {"description": "Events, until one side hangs up.", "content": {"text/event-stream": {}}}
    return {"description": "It was done.", "content": {"application/json": {"schema": by_type[operation.answer]}}}
