"""The routes: sources are read and artifacts written through the server, by who holds the job and by nobody else."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Mount, Route

from holdfast import JobNotFound
from holdfast_media.errors import MediaError
from holdfast_media.storage import Attempt, wire
from holdfast_media.storage.hashing import CHUNK, sha256_of
from holdfast_media.storage.keys import checked_key, checked_prefix
from holdfast_media.storage.local import compare, not_found
from holdfast_media.storage.tree import publishing_order
from holdfast_media.transfer.apart import Heavy, Reading, Sent, apart
from holdfast_media.transfer.archive import unpack
from holdfast_media.transfer.grants import decoded_args, grants_by_fields
from holdfast_media.transfer.limits import Limits
from holdfast_media.transfer.ranges import asked
from holdfast_media.transfer.uploads import About, Busy, Incomplete, TooMany, Uploads, trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request

    from holdfast.server import Server
    from holdfast_media.storage.port import Storage, Stored
    from holdfast_media.transfer.grants import Grant, Grants

logger = logging.getLogger("holdfast.media")

T = TypeVar("T")

JSON: Final = "application/json"
LARGEST_BODY: Final = 64 * 1024
PAGE: Final = 1000
PROOF_WITHIN: Final = 30.0
"""Seconds that the store may take to prove a lease."""
FRESH: Final = 1.0
"""Seconds that a proof is good for among the files of one archive."""
STATUSES: Final = {
    "BAD_KEY": 400,
    "BAD_CHECKSUM": 400,
    "NOT_FOUND": 404,
    "TOO_LARGE": 413,
    "CHECKSUM_MISMATCH": 422,
    "BAD_ARCHIVE": 422,
    "DISK_FULL": 507,
    "STORAGE_UPLOAD_FAILED": 503,
    "STORAGE_READ_FAILED": 503,
}
"""How errors are told; others are our own, and told as 500."""


class Refusal(Exception):
    """A request is refused."""

    def __init__(self, status: int, code: str, message: str, fix: str = "", *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.problem = wire.Problem(code, message, fix)
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


@dataclass(frozen=True, slots=True)
class Holder:
    """Who makes a request: the holder of a job, and what that may use."""

    request: Request
    job_id: str
    token: str
    attempt: int
    grant: Grant


class Transfer:
    """Serves the files of a storage to the workers of a server. Belongs to that server's event loop.

    Every request shows a key, a job, an attempt and the token of its lease. One that is no longer current is refused with 409,
    when a part comes and again in the moment before something is published. `grants` says what a job may use: by default the
    fields `source` (read) and `output` (read and written) of its args. A key that may also enqueue could name any file
    in them: it is refused unless `allow_enqueuers` is set. `scratch` is where uploads grow, best on the storage's file system.
    """

    def __init__(
        self,
        server: Server,
        storage: Storage,
        scratch: Path,
        *,
        limits: Limits | None = None,
        grants: Grants | None = None,
        allow_enqueuers: bool = False,
    ) -> None:
        self._server = server
        self._storage = storage
        self._limits = limits or Limits()
        self._uploads = Uploads(scratch, self._limits)
        self._grants = grants or grants_by_fields()
        self._allow_enqueuers = allow_enqueuers
        self._heavy = Heavy(self._limits.at_once)

    def routes(self) -> list[Route]:
        """Return the routes, to be mounted at `/media/v1` below the server's own URL."""
        return [
            self._route("/files/{key:path}", self._download, "GET"),
            self._route("/files/{key:path}", self._delete, "DELETE"),
            self._route("/facts/{key:path}", self._facts, "GET"),
            self._route("/files", self._list, "GET"),
            self._route("/checks", self._check, "POST"),
            self._route("/room", self._room, "GET"),
            self._route("/uploads", self._begin, "POST"),
            self._route("/uploads/{upload}", self._state, "GET"),
            self._route("/uploads/{upload}", self._discard, "DELETE"),
            self._route("/uploads/{upload}/parts/{number:int}", self._part, "PUT"),
            self._route("/uploads/{upload}/complete", self._complete, "POST"),
        ]

    def _route(self, path: str, handle: Callable[[Holder], Awaitable[Response | msgspec.Struct]], method: str) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                answer = await handle(await self._holder(request))
            except ClientDisconnect:
                return Response(status_code=400)  # which nobody receives
            except Exception as error:  # noqa: BLE001  every error is told in one shape
                return self._told(error)
            return answer if isinstance(answer, Response) else Response(msgspec.json.encode(answer), media_type=JSON)

        return Route(path, endpoint, methods=[method])

    # who asks

    async def _holder(self, request: Request) -> Holder:
        headers = request.headers
        job_id, token, attempt = (headers.get(name, "") for name in (wire.JOB, wire.TOKEN, wire.ATTEMPT))
        if not attempt.isdecimal() or len(attempt) > 9:  # noqa: PLR2004  no job is tried a milliard times
            fix = f"send {wire.JOB}, {wire.ATTEMPT} and {wire.TOKEN} as the claim gave them, with every request"
            raise Refusal(400, "no_lease", f"the request names no attempt: {wire.ATTEMPT} is no number", fix)
        try:
            held = await self._server.held(request, job_id=job_id, token=token, attempt=int(attempt))
        except JobNotFound as error:  # not the file: 404 would say that
            raise Refusal(409, "stale", str(error), "stop working on the job: it was deleted") from error
        if held.may_enqueue and not self._allow_enqueuers:
            fix = (
                f"make one that works alone: holdfast keys add NAME --role worker --queues {held.job.queue} --actions work,get"
            )
            message = f"the key {held.by!r} may also enqueue, so that its holder could name any file in the args of a job"
            raise Refusal(403, "forbidden", message, fix)
        try:
            grant = self._grants(held.first.task, decoded_args(held.first.task, held.first.args))
        except MediaError as error:
            raise Refusal(403, "forbidden", error.message, "see docs/media/remote-encoders.md") from error
        return Holder(request, job_id, token, int(attempt), grant)

    def _readable(self, holder: Holder, key: str) -> str:
        if not holder.grant.may_read(key):
            raise _not_granted(key, "read")
        return key

    def _writable(self, holder: Holder, key: str) -> str:
        if not holder.grant.may_write(key):
            raise _not_granted(key, "write")
        return key

    # reading

    async def _download(self, holder: Holder) -> Response:
        key = self._readable(holder, checked_key(holder.request.path_params["key"]))
        found = await asyncio.to_thread(self._storage.head, key)
        if found is None:
            raise not_found(key)
        what = asked(holder.request.headers, found.etag, found.size)
        headers = _headers(found)
        if what.status == 416:  # noqa: PLR2004  beyond its end
            return Response(status_code=416, headers={"Content-Range": f"bytes */{found.size}"})
        if what.status in (304, 412):
            return Response(status_code=what.status, headers=headers)
        headers["Content-Length"] = str(what.length)
        if what.status == 206:  # noqa: PLR2004  a part of it
            headers["Content-Range"] = f"bytes {what.start}-{what.start + what.length - 1}/{found.size}"
        if holder.request.method == "HEAD":
            return Response(status_code=what.status, headers=headers)
        began = time.monotonic()
        reading = await Reading.of(lambda: self._storage.open(key, what.start))
        try:
            if time.monotonic() - began > self._limits.proof:  # a storage that was away for a while
                await self._prove(holder)
        except BaseException:
            reading.close()
            raise
        # sent for as long as the lease is held; what ends early is resumed by who still holds it
        again = (self._limits.proof, lambda: self._prove(holder))
        return Sent(reading, key, what.length, what.status, headers, again=again, piece=CHUNK)

    async def _facts(self, holder: Holder) -> wire.StoredInfo:
        key = self._readable(holder, checked_key(holder.request.path_params["key"]))
        found = await asyncio.to_thread(self._storage.head, key)
        if found is None:
            raise not_found(key)
        return wire.StoredInfo.of(found)

    async def _list(self, holder: Holder) -> wire.ListAnswer:
        query = holder.request.query_params
        prefix = checked_prefix(query.get("prefix", ""))
        self._readable(holder, prefix if prefix.endswith("/") else f"{prefix}/")
        after = query.get("after", "")

        def page() -> list[Stored]:
            found = (one for one in self._storage.list(prefix) if one.key > after and holder.grant.may_read(one.key))
            return list(islice(found, PAGE + 1))

        found = await asyncio.to_thread(page)
        more = found[PAGE - 1].key if len(found) > PAGE else None
        return wire.ListAnswer([wire.StoredInfo.of(one) for one in found[:PAGE]], more)

    async def _check(self, holder: Holder) -> wire.CheckAnswer:
        body = await _body(holder, wire.CheckRequest)
        key = self._readable(holder, checked_key(body.key))
        return wire.CheckAnswer(await self._heavy.run(partial(self._storage.check, key, sha256=body.sha256)))

    async def _room(self, holder: Holder) -> wire.RoomAnswer:
        del holder
        free = await asyncio.to_thread(self._storage.free_bytes)
        return wire.RoomAnswer(free, self._limits.part, self._limits.total)

    # writing

    async def _delete(self, holder: Holder) -> wire.CheckAnswer:
        key = self._writable(holder, checked_key(holder.request.path_params["key"]))
        proof = _Lately(self._prover(holder))

        def stop() -> None:
            proof()  # what it raises ends the retries of the storage

        def delete() -> bool:
            proof()
            attempt = Attempt(holder.job_id, holder.attempt, holder.token)
            return self._storage.bind(attempt, stop=stop).delete(key)

        return wire.CheckAnswer(await asyncio.to_thread(delete))

    async def _begin(self, holder: Holder) -> wire.UploadAnswer:
        body = await _body(holder, wire.BeginRequest)
        about = About(**msgspec.structs.asdict(body))
        self._writable(holder, checked_key(about.key))
        found = None if about.kind == "archive" else await asyncio.to_thread(self._storage.head, about.key)
        # also where it is to be replaced: by what it is already, as where the answer to a completion was lost
        if found is not None and (not about.overwrite or found.sha256 == about.sha256):
            return wire.UploadAnswer(stored=wire.StoredInfo.of(found))
        have = await asyncio.to_thread(self._uploads.begin, about, holder.job_id)
        return wire.UploadAnswer(about.id, about.parts, about.part_size, have)

    async def _state(self, holder: Holder) -> wire.UploadAnswer:
        about = await self._about(holder)
        return wire.UploadAnswer(about.id, about.parts, about.part_size, await asyncio.to_thread(self._uploads.have, about))

    async def _discard(self, holder: Holder) -> wire.CheckAnswer:
        await asyncio.to_thread(self._uploads.discard, await self._about(holder))
        return wire.CheckAnswer(intact=True)

    async def _part(self, holder: Holder) -> wire.CheckAnswer:
        about = await self._about(holder)
        request = holder.request
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limits.part:
            raise MediaError("TOO_LARGE", f"a part of {int(length):,} bytes: {self._limits.part:,} are the most")
        number, sha256 = request.path_params["number"], request.headers.get(wire.SHA256, "")
        part = await asyncio.to_thread(self._uploads.part, about, number, sha256)
        try:
            async with asyncio.timeout(self._limits.part_seconds):
                await _received(request, part.write)
            await self._prove(holder)  # it may have come for minutes
            await asyncio.to_thread(part.finish)
        except TimeoutError:
            message = f"the part took longer than {self._limits.part_seconds:g} s to arrive"
            raise Refusal(408, "too_slow", message, "send it again, or make parts smaller") from None
        finally:
            await apart(part.close)
        return wire.CheckAnswer(intact=True)

    async def _complete(self, holder: Holder) -> wire.CompleteAnswer:
        about = await self._about(holder)
        publish = self._publish_archive if about.kind == "archive" else self._publish_file
        # it goes on where the client hangs up: who asks again is told to wait, and then what became of it
        files = await self._heavy.run(partial(publish, about, self._prover(holder)))
        return wire.CompleteAnswer([wire.StoredInfo.of(one) for one in files])

    def _publish_file(self, about: About, prove: Callable[[], None]) -> list[Stored]:
        with self._uploads.whole(about) as path:
            stored = self._storage.put(
                about.key,
                path,
                sha256=about.sha256,
                content_type=about.content_type,
                overwrite=about.overwrite,
                consume=True,
                before_publish=prove,
            )
            self._uploads.discard(about)
        return [stored]

    def _publish_archive(self, about: About, prove: Callable[[], None]) -> list[Stored]:
        with self._uploads.whole(about) as path:
            compare("the archive", about.sha256, sha256_of(path))
            folder = path.with_name("unpacked")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                files = unpack(path, folder, self._limits.archive)
                keys = {checked_key(f"{about.key}/{file.name}"): file.path for file in files}
                proof = _Lately(prove)
                published = [
                    self._storage.put(key, keys[key], overwrite=about.overwrite, consume=True, before_publish=proof)
                    for key in publishing_order(keys)
                ]
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            self._uploads.discard(about)
        return published

    async def _about(self, holder: Holder) -> About:
        about = await asyncio.to_thread(self._uploads.about, holder.request.path_params["upload"])
        self._writable(holder, about.key)
        return about

    async def _prove(self, holder: Holder) -> None:
        await self._server.held(holder.request, job_id=holder.job_id, token=holder.token, attempt=holder.attempt)

    def _prover(self, holder: Holder) -> Callable[[], None]:
        """Return what proves the lease from a thread."""
        loop = asyncio.get_running_loop()

        def prove() -> None:
            asyncio.run_coroutine_threadsafe(self._prove(holder), loop).result(PROOF_WITHIN)

        return prove

    def _told(self, error: Exception) -> Response:
        if isinstance(error, Refusal):
            return _problem(error.status, error.problem, error.headers)
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            error = trouble(error)
        if isinstance(error, MediaError) and error.code in STATUSES:
            status = STATUSES[error.code]
            headers = {"Retry-After": "1"} if status == 503 else {}  # noqa: PLR2004  it may pass
            return _problem(status, wire.Problem(error.code, error.message), headers)
        if isinstance(error, Busy):
            return _problem(503, wire.Problem("busy", str(error), "come again"), {"Retry-After": "1"})
        if isinstance(error, TooMany):
            return _problem(429, wire.Problem("too_many", str(error), "complete some first"), {"Retry-After": "5"})
        if isinstance(error, Incomplete):
            return _problem(409, wire.Problem("incomplete", str(error), f"send them: {error.missing[:100]}"), {})
        return self._server.refusal(error)


def with_transfer(server: Server, storage: Storage, scratch: Path, **options: Any) -> Starlette:
    """Return a server with transfer routes beside it, as one application. `options` are those of `Transfer`."""
    transfer = Transfer(server, storage, scratch, **options)
    return Starlette(
        routes=[Mount(wire.ROOT, routes=transfer.routes()), Mount("", app=server)], lifespan=lambda _: server.running()
    )


def add_transfer(server: Server, storage: Storage, scratch: Path, **options: Any) -> None:
    """Have a server serve the transfer routes itself, below its own prefix. `options` are those of `Transfer`."""
    transfer = Transfer(server, storage, scratch, **options)
    server.routes.insert(0, Mount(f"{server.context.settings.prefix}{wire.ROOT}", routes=transfer.routes()))


class _Lately:
    """Proves a lease anew, unless that was done a moment ago."""

    def __init__(self, prove: Callable[[], None]) -> None:
        self._prove = prove
        self._at = -FRESH

    def __call__(self) -> None:
        if time.monotonic() - self._at >= FRESH:
            self._prove()
            self._at = time.monotonic()


async def _received(request: Request, write: Callable[[bytes], None]) -> None:
    """Write a body as it comes, a mebibyte at a time and in a thread: neither the disk nor the hash may stop the event loop."""
    waiting = bytearray()
    async for data in request.stream():
        waiting += data
        if len(waiting) >= CHUNK:
            await asyncio.to_thread(write, bytes(waiting))
            waiting.clear()
    if waiting:
        await asyncio.to_thread(write, bytes(waiting))


async def _body(holder: Holder, kind: type[T]) -> T:
    data = b""
    async for piece in holder.request.stream():
        data += piece
        if len(data) > LARGEST_BODY:
            raise MediaError("TOO_LARGE", f"the request has more than {LARGEST_BODY:,} bytes")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Refusal(400, "bad_shape", str(error), "see docs/media/remote-encoders.md") from None


def _headers(found: Stored) -> dict[str, str]:
    headers = {
        "ETag": f'"{found.etag}"',
        "Accept-Ranges": "bytes",
        "Content-Type": found.content_type,
        "Last-Modified": found.modified.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "Cache-Control": "private, no-transform",
        "X-Content-Type-Options": "nosniff",
    }
    return headers if found.sha256 is None else headers | {wire.SHA256: found.sha256}


def _not_granted(key: str, what: str) -> Refusal:
    fix = "only what the args of the job name may be used"
    return Refusal(403, "forbidden", f"this job may not {what} {key[:200]!r}", fix)


def _problem(status: int, problem: wire.Problem, headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(problem), status, headers, JSON)
