"""The line to a server: requests that are answered, or `StoreUnavailable`."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from holdfast.errors import BadJob, HoldfastError, NotAllowed, StoreUnavailable
from holdfast.wire.problems import Problem, error_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")

ROOT: Final = "/api/v1"
TIMEOUT: Final = 10.0
"""Seconds that a request may take."""
KEPT: Final = 20.0
"""Seconds that an idle connection is kept: less than the server does, which would hang up in the midst of a request."""
PATIENCE: Final = 20.0
"""Seconds that a request rests in all where the server tells it to come again: many workers may start at once."""
PIECE: Final = 1024 * 1024
"""Bytes of a batch that are sent in one request, unless a single item is larger."""
MOST: Final = 1000
"""Items of a batch that are sent in one request."""


@lru_cache(maxsize=1)
def trusted() -> ssl.SSLContext:
    """Return whom to believe that it is the server; reading that takes longer than many requests."""
    return httpx2.create_ssl_context()


class KeyRefused(NotAllowed):
    """The server does not let this key in, or not do this."""


class Line:
    """Speaks to one server with one key, on one event loop. The key is in no message and no repr."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        chance: Callable[[], float],
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.target = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        """The server, as it may be shown."""
        self._key = key
        self._chance = chance
        self._rest = rest
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None

    def client(self) -> httpx2.AsyncClient:
        """Return the client, opened at first use."""
        if self._client is None:
            self._client = httpx2.AsyncClient(
                base_url=f"{self.target}{ROOT}",
                headers={"Authorization": f"Bearer {self._key}", "Accept": "application/json"},
                timeout=TIMEOUT,
                verify=trusted(),
                transport=self._transport,
                limits=httpx2.Limits(max_connections=20, max_keepalive_connections=20, keepalive_expiry=KEPT),
            )
        return self._client

    async def close(self) -> None:
        """Hang up. Safe to call again; use opens it anew."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def get(self, path: str, answer: type[T]) -> T:
        """Ask for something."""
        return await self._call("GET", path, None, answer)

    async def delete(self, path: str, answer: type[T]) -> T:
        """Have something removed."""
        return await self._call("DELETE", path, None, answer)

    async def post(self, path: str, body: msgspec.Struct | bytes, answer: type[T]) -> T:
        """Have something done."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self._call("POST", path, content, answer)

    async def post_all(
        self, path: str, field: str, items: Sequence[msgspec.Struct], answer: type[T], take: Callable[[T], Sequence[Any]]
    ) -> list[Any]:
        """Have a batch done, in as many requests as it needs, and return the answers in order."""
        answers: list[Any] = []
        for body in pieces(field, items):
            answers.extend(take(await self.post(path, body, answer)))
        return answers

    async def _call(self, method: str, path: str, content: bytes | None, answer: type[T]) -> T:
        response, waited = await self._request(method, path, content), 0.0
        while (rest := self._told_to_rest(response)) is not None and waited + rest <= PATIENCE:
            await self._rest(rest)
            waited += rest
            response = await self._request(method, path, content)
        if response.status_code == httpx2.codes.OK:
            try:
                return msgspec.json.decode(response.content, type=answer)
            except msgspec.MsgspecError as error:
                cause = f"its answer to {method} {path} cannot be read: {error}"
                raise StoreUnavailable(self.target, 0.0, cause, fix="Is it a Holdfast server of this version?") from error
        raise self._refusal(response, waited)

    async def _request(self, method: str, path: str, content: bytes | None) -> httpx2.Response:
        headers = None if content is None else {"Content-Type": "application/json"}
        try:
            return await self.client().request(method, path, content=content, headers=headers)
        except httpx2.TransportError as error:
            raise StoreUnavailable(self.target, 0.0, f"{type(error).__name__}: {error}".rstrip(": ")) from error

    def _told_to_rest(self, response: httpx2.Response) -> float | None:
        """Return how many seconds to rest before the same is asked again; `None`: this is the answer.

        Of 429 alone, for which nothing was done: what found the store away may have taken effect, and who asked knows whether
        it can be repeated. All who are told to come in a second shall not come in the same one.
        """
        told = response.headers.get("Retry-After", "")
        if response.status_code != httpx2.codes.TOO_MANY_REQUESTS or not told.isdecimal():
            return None
        return float(told) * (1.0 + self._chance())

    def _refusal(self, response: httpx2.Response, waited: float) -> HoldfastError:
        """Return the error that a response tells of."""
        try:
            problem = msgspec.json.decode(response.content, type=Problem)
        except msgspec.MsgspecError:
            fix = "Is a Holdfast server there?"
            return StoreUnavailable(self.target, 0.0, f"it answered with status {response.status_code}", fix=fix)
        if (error := error_of(problem)) is not None:
            return error
        match response.status_code:
            case 401:
                return KeyRefused(f"{self.target}: {problem.message}. Check the key (--key, HOLDFAST_KEY)")
            case 403:
                return KeyRefused(f"{self.target}: {problem.message}. {problem.fix}")
            case 404 | 500:
                return HoldfastError(f"{self.target}: {problem.message}. {problem.fix}")
            case 400 | 422:
                return NotAllowed(f"{self.target} does not understand a request of this version: {problem.message}")
            case 413:
                return BadJob(problem.message, path="request")
            case _:
                return StoreUnavailable(self.target, waited, problem.message)


def pieces(field: str, items: Sequence[msgspec.Struct]) -> list[bytes]:
    """Return a batch as bodies of requests, each small enough."""
    bodies: list[bytes] = []
    piece: list[bytes] = []
    size = 0
    for item in items:
        text = msgspec.json.encode(item)
        if piece and (size + len(text) > PIECE or len(piece) >= MOST):
            bodies.append(_body(field, piece))
            piece, size = [], 0
        piece.append(text)
        size += len(text) + 1
    return [*bodies, _body(field, piece)] if piece else bodies


def _body(field: str, piece: Sequence[bytes]) -> bytes:
    return b'{"' + field.encode() + b'":[' + b",".join(piece) + b"]}"
