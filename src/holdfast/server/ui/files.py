"""The files of the dashboard: its style and script, and those of others. They are few and small, and kept in memory."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

STATIC: Final = Path(__file__).parent / "static"
FOR_GOOD: Final = "public, max-age=31536000, immutable"


def files(folder: Path) -> Callable[[Request], Awaitable[Response]]:
    """Return what serves a folder as it is now. An address with the content's fingerprint is kept by browsers for good."""
    contents = {
        path.relative_to(folder).as_posix(): (path.read_bytes(), mimetypes.guess_type(path.name)[0] or "text/plain")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }

    async def serve(request: Request) -> Response:
        found = contents.get(request.path_params["name"])
        headers = {"X-Content-Type-Options": "nosniff"}
        if found is None:
            return PlainTextResponse("There is no such file.", status_code=HTTPStatus.NOT_FOUND, headers=headers)
        content, kind = found
        headers["Cache-Control"] = FOR_GOOD if "v" in request.query_params else "no-cache"
        return Response(content, media_type=kind, headers=headers)

    return serve


@lru_cache
def fingerprint(name: str, folder: Path = STATIC) -> str:
    """Return what changes with the content of a file of the dashboard, or of another folder."""
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()[:12]
