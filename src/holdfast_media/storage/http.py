"""A storage behind a Holdfast server: for encoders that reach nothing else. Its routes are in `holdfast_media.transfer`."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from importlib.util import find_spec
from io import BufferedReader
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeVar, cast
from urllib.parse import quote, urlsplit

from holdfast_media.errors import MediaError

if find_spec("httpx2") is None:
    raise MediaError("BAD_STORAGE", "a server needs the package httpx2, which is missing. Fix: pip install 'holdfast[http]'")

import httpx2
import msgspec

from holdfast_media.storage import wire
from holdfast_media.storage.cache import Cache
from holdfast_media.storage.hashing import checked_sha256, content_type_of, sha256_of
from holdfast_media.storage.keys import checked_key, checked_prefix
from holdfast_media.storage.local import compare, not_found
from holdfast_media.storage.passing import Passing
from holdfast_media.storage.reading import BUFFER, ResumingReader, replaced
from holdfast_media.storage.retrying import Patience, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast_media.storage.port import Attempt, BeforePublish, OnProgress, Stop, Stored

T = TypeVar("T")

MEBI: Final = 1024 * 1024
PART: Final = 8 * MEBI
"""Bytes of a part: what is lost of an upload when a connection breaks."""
MOST_PARTS: Final = 9_000
TIMEOUT: Final = httpx2.Timeout(60.0, connect=10.0)
LONG: Final = httpx2.Timeout(300.0, connect=10.0)
"""For what the server reads or writes as a whole before it answers."""
RESTARTS: Final = 3
READ: Final = "STORAGE_READ_FAILED"
WRITE: Final = "STORAGE_UPLOAD_FAILED"
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class HttpStorage:
    """The storage of a server, as one attempt at a job may use it: bind it first. May be used from several threads.

    Put-if-absent, checksums and durability are those of the storage behind the server. The key is in no message and no repr.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        cache: Cache | None = None,
        patience: Patience | None = None,
        part_size: int = PART,
    ) -> None:
        parts = urlsplit(url)
        self.target = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        """The server, as it may be shown."""
        self.cache = cache or Cache()
        self._patience = patience or Patience()
        self._part_size = part_size
        self._attempt: Attempt | None = None
        self._stop: Stop | None = None
        self._shared: dict[str, int] = {}
        """What has been learnt of the server; common to those that are bound."""
        self._client = httpx2.Client(
            base_url=f"{self.target}{wire.ROOT}",
            headers={"Authorization": f"Bearer {key}", "Accept": "application/json", "Accept-Encoding": "identity"},
            timeout=TIMEOUT,
        )

    def bind(self, attempt: Attempt, *, stop: Stop | None = None) -> HttpStorage:
        """Return it as one attempt uses it."""
        bound = copy(self)
        bound._attempt, bound._stop = attempt, stop  # noqa: SLF001  a copy of this one
        return bound

    # looking

    def head(self, key: str) -> Stored | None:
        """Return what is under a key."""
        try:
            return self._ask("GET", _path(key, "facts"), READ, wire.StoredInfo).stored()
        except MediaError as error:
            if error.code == "NOT_FOUND":
                return None
            raise

    def open(self, key: str, start: int = 0) -> BinaryIO:
        """Return a reader, which asks again from where a connection broke, for as long as the ETag is the same."""
        found = self.head(key)
        if found is None:
            raise not_found(key)
        return self._reader(found, start)

    @contextmanager
    def lend(self, key: str, *, on_progress: OnProgress | None = None) -> Iterator[Path]:
        """Give a downloaded file."""
        found = self.head(key)
        if found is None:
            raise not_found(key)
        reader = lambda start: self._reader(found, start)  # noqa: E731  bound to what was found
        with self.cache.lend(found, self.url_for(key), reader, on_progress=on_progress, stop=self._stop) as path:
            yield path

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Return everything whose key begins with a prefix, by key."""
        checked_prefix(prefix)
        after: str | None = ""
        while after is not None:
            page = self._ask("GET", "/files", READ, wire.ListAnswer, params={"prefix": prefix, "after": after})
            yield from (one.stored() for one in page.files)
            after = page.after

    def check(self, key: str, *, sha256: str | None = None) -> bool:
        """Have the server read it and compare the SHA-256."""
        body = wire.CheckRequest(checked_key(key), sha256)
        return self._ask("POST", "/checks", READ, wire.CheckAnswer, body=body, timeout=LONG).intact

    def free_bytes(self) -> int | None:
        """Return how many bytes fit there."""
        return self._ask("GET", "/room", READ, wire.RoomAnswer).free_bytes

    def url_for(self, key: str) -> str:
        """Return where it is."""
        return f"{self.target}{wire.ROOT}{_path(key)}"

    # changing

    def put(
        self,
        key: str,
        path: Path,
        *,
        sha256: str | None = None,
        content_type: str | None = None,
        overwrite: bool = False,
        consume: bool = False,
        on_progress: OnProgress | None = None,
        before_publish: BeforePublish | None = None,
    ) -> Stored:
        """Publish a file: sent in parts, each with its SHA-256, then completed by the server under the lease."""
        about = self._about(key, path, sha256, "file", content_type_of(key, content_type), overwrite=overwrite)
        stored = self._send(about, path, on_progress, before_publish)[0]
        if consume:
            path.unlink(missing_ok=True)
        return stored

    def put_archive(
        self,
        prefix: str,
        path: Path,
        *,
        overwrite: bool = False,
        on_progress: OnProgress | None = None,
        before_publish: BeforePublish | None = None,
    ) -> Sequence[Stored]:
        """Publish the files of an archive (tar, tar.gz, zip) below a prefix: checked and unpacked by the server."""
        about = self._about(prefix.removesuffix("/"), path, None, "archive", None, overwrite=overwrite)
        return self._send(about, path, on_progress, before_publish)

    def delete(self, key: str) -> bool:
        """Remove what is under a key."""
        return self._ask("DELETE", _path(key), WRITE, wire.CheckAnswer).intact

    def sweep(self, older_than: float = 86_400.0) -> int:
        """Do nothing: the server sweeps its own uploads."""
        del older_than
        return 0

    def close(self) -> None:
        """Hang up, for all that are bound to it."""
        self._client.close()

    # sending

    def _about(
        self,
        key: str,
        path: Path,
        sha256: str | None,
        kind: Literal["file", "archive"],
        content_type: str | None,
        *,
        overwrite: bool,
    ) -> wire.BeginRequest:
        checked_key(key)
        if sha256 is not None:
            checked_sha256(sha256)
        size = path.stat().st_size
        found = sha256_of(path, Passing(0, None, self._stop))
        compare(path.name, sha256, found)
        part_size = min(self._largest_part(), max(self._part_size, -(-size // MOST_PARTS)))
        return wire.BeginRequest(key, size, found, part_size, kind, content_type, overwrite)

    def _largest_part(self) -> int:
        if "part" not in self._shared:
            self._shared["part"] = self._ask("GET", "/room", WRITE, wire.RoomAnswer).part
        return self._shared["part"]

    def _send(
        self, about: wire.BeginRequest, path: Path, on_progress: OnProgress | None, before_publish: BeforePublish | None
    ) -> Sequence[Stored]:
        passing = Passing(about.size, on_progress, self._stop)
        proven = False
        for number in range(RESTARTS):
            begun = self._ask("POST", "/uploads", WRITE, wire.UploadAnswer, body=about)
            if begun.stored is not None:
                passing(about.size)
                # where the answer to our own completion was lost, it is there, too
                return [replace(begun.stored.stored(), created=number > 0 and begun.stored.sha256 == about.sha256)]
            try:
                self._send_parts(begun, about, path, passing)
                if before_publish is not None and not proven:
                    before_publish()
                    proven = True
                done = self._ask("POST", f"/uploads/{begun.upload}/complete", WRITE, wire.CompleteAnswer, timeout=LONG)
                return [one.stored() for one in done.files]
            except _Lost as error:  # completed already, swept, or parts are missing: the server says which when asked anew
                if number == RESTARTS - 1:
                    raise error.error from error
        raise AssertionError("unreachable")

    def _send_parts(self, begun: wire.UploadAnswer, about: wire.BeginRequest, path: Path, passing: Passing) -> None:
        have = frozenset(begun.have)
        passing.back_to(0)
        with path.open("rb") as file:
            for number in range(1, begun.parts + 1):
                data = file.read(about.part_size) if number not in have else b""
                if number in have:
                    file.seek(about.part_size * number)
                    passing(min(about.part_size, about.size - about.part_size * (number - 1)))
                    continue
                sums = {wire.SHA256: hashlib.sha256(data).hexdigest()}
                where = f"/uploads/{begun.upload}/parts/{number}"
                self._ask("PUT", where, WRITE, wire.CheckAnswer, content=data, headers=sums)
                passing(len(data))

    # asking

    def _ask(self, method: str, path: str, code: str, answer: type[T], **options: Any) -> T:
        response = self._call(method, path, code, **options)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.MsgspecError as error:
            why = f"{self.target} gave an answer to {method} {path} that cannot be read. Is it a server of this version?"
            raise MediaError("BAD_STORAGE", why) from error

    def _call(self, method: str, path: str, code: str, **options: Any) -> httpx2.Response:
        return self._repeat(lambda: self._once(method, path, code, **options))

    def _repeat(self, call: Callable[[], T]) -> T:
        return self._patience.repeat(call, self._stop)

    def _once(
        self, method: str, path: str, code: str, *, body: msgspec.Struct | None = None, **options: Any
    ) -> httpx2.Response:
        headers = self._lease() | options.pop("headers", {})
        if body is not None:
            options["content"] = msgspec.json.encode(body)
        try:
            response = self._client.request(method, path, headers=headers, **options)
        except httpx2.TransportError as error:
            raise self._silent(error, code) from error
        if not response.is_success:
            self._refused(response, path, code)
        return response

    def _reader(self, found: Stored, start: int) -> BinaryIO:
        def fetch(at: int) -> _Body:
            headers = self._lease() | {"Range": f"bytes={at}-", "If-Match": f'"{found.etag}"'}
            request = self._client.build_request("GET", _path(found.key), headers=headers)
            try:
                response = self._client.send(request, stream=True)
                if not response.is_success:
                    response.read()
            except httpx2.TransportError as error:
                raise self._silent(error, READ) from error
            if response.status_code == httpx2.codes.PRECONDITION_FAILED:
                raise replaced(found.key)
            if not response.is_success:
                self._refused(response, found.key, READ)
            if response.headers.get("etag", "").strip('"') != found.etag:  # a cache in between may have an old one
                response.close()
                raise replaced(found.key)
            return _Body(self, response, skip=at if response.status_code == httpx2.codes.OK else 0)

        raw = ResumingReader(fetch, found.size, start, patience=self._patience, stop=self._stop)
        return cast("BinaryIO", BufferedReader(raw, BUFFER))

    def _lease(self) -> dict[str, str]:
        if self._attempt is None:
            why = f"{self.target} asks who holds the job. Fix: storage.bind(Attempt.of(job)), in the handler"
            raise MediaError("BAD_STORAGE", why)
        attempt = self._attempt
        return {wire.JOB: attempt.job_id, wire.ATTEMPT: str(attempt.number), wire.TOKEN: attempt.token}

    def _silent(self, error: Exception, code: str) -> Transient:
        return Transient(MediaError(code, f"{self.target} does not answer: {type(error).__name__}: {error}".rstrip(": ")))

    def _refused(self, response: httpx2.Response, path: str, code: str) -> None:
        """Raise what an answer means that is no success."""
        status = response.status_code
        problem = _problem(response)
        said = f"{self.target} refuses {path}: {problem.message}" + (f". Fix: {problem.fix}" if problem.fix else "")
        if status == httpx2.codes.NOT_FOUND and not path.startswith("/uploads/"):
            raise MediaError("NOT_FOUND", said)
        if problem.error in ("incomplete", "NOT_FOUND", "CHECKSUM_MISMATCH") and path.startswith("/uploads/"):
            if problem.error == "CHECKSUM_MISMATCH" and "/parts/" in path:
                raise Transient(MediaError(code, said))  # damaged on its way
            raise _Lost(MediaError("CHECKSUM_MISMATCH" if problem.error == "CHECKSUM_MISMATCH" else code, said))
        if status == httpx2.codes.CONFLICT:
            raise MediaError("STALE_LEASE", said)
        if status in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN):
            raise MediaError("ACCESS_DENIED", said)
        if status == httpx2.codes.CONTENT_TOO_LARGE:
            raise MediaError("TOO_LARGE", said)
        if problem.error in ("BAD_ARCHIVE", "BAD_KEY", "BAD_CHECKSUM"):
            raise MediaError(problem.error, said)
        if status == httpx2.codes.INSUFFICIENT_STORAGE:
            raise Transient(MediaError("DISK_FULL", said))
        if status in PASSING:
            raise Transient(MediaError(code, said), after=_seconds(response))
        raise MediaError("BAD_STORAGE", f"{said} (status {status})")


class _Lost(Exception):
    """An upload is not where we left it."""

    def __init__(self, error: MediaError) -> None:
        super().__init__(str(error))
        self.error = error


class _Body:
    """What the server sends, with its errors told as ours."""

    def __init__(self, storage: HttpStorage, response: httpx2.Response, *, skip: int) -> None:
        self._storage = storage
        self._response = response
        self._pieces = response.iter_raw()
        self._rest = b""
        self._skip = skip
        """Bytes that were not asked for: a proxy may ignore ranges."""

    def read(self, size: int, /) -> bytes:
        try:
            while not self._rest:
                piece = next(self._pieces, b"")
                if not piece:
                    return b""
                self._rest, self._skip = piece[self._skip :], max(0, self._skip - len(piece))
        except httpx2.TransportError as error:
            raise self._storage._silent(error, READ) from error  # noqa: SLF001  of the storage it reads from
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        self._response.close()


def _path(key: str, what: str = "files") -> str:
    return f"/{what}/{quote(checked_key(key), safe='/')}"


def _problem(response: httpx2.Response) -> wire.Problem:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(response.content, type=wire.Problem)
    return wire.Problem("", f"it answered with status {response.status_code}")


def _seconds(response: httpx2.Response) -> float:
    text = response.headers.get("retry-after", "")
    return min(float(text), 60.0) if text.isdecimal() else 0.0
