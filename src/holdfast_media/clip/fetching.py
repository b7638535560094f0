"""A source behind http or https, as a file: resumed where a connection broke, never larger, longer or nearer than allowed."""

from __future__ import annotations

import http.client
import io
import os
import re
import shutil
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec

from holdfast_media.clip.addresses import Network, connect
from holdfast_media.clip.redaction import shown_url
from holdfast_media.errors import (
    BAD_SOURCE,
    SOURCE_NOT_FOUND,
    SOURCE_REFUSED,
    SOURCE_TOO_LARGE,
    UPSTREAM_FAILURE,
    MediaError,
    Stopped,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

BLOCK: Final = 256 * 1024
NOTED: Final = 8 * 1024 * 1024
"""Bytes after which it is written down how many are surely on disk."""
REDIRECTS: Final = 5
PATIENCE: Final = 5
"""Times in a row that a connection may break without having brought anything."""
PAUSE: Final = 0.5
"""Seconds before another connection is made; doubled each time that it brings nothing."""

OK: Final = 200
PARTIAL: Final = 206
BEYOND: Final = 416
BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
MOVED: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a download may cost."""

    max_bytes: int = 20 * 1024**3
    timeout: float = 3600.0
    """Seconds for all of it."""
    stall: float = 30.0
    """Seconds without a byte."""
    networks: tuple[Network, ...] = ()
    """Private ones that may be fetched from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a server says of a file before it sends it."""

    url: str
    """Where it is, after all redirects."""
    size: int | None
    etag: str | None
    """Only a strong one: the same value means the same bytes."""
    content_type: str


class _Note(msgspec.Struct, frozen=True):
    """What is known of a download that is not finished."""

    url: str
    etag: str
    size: int | None
    on_disk: int


@contextmanager
def download(url: str, limits: Limits, stop: Callable[[], str | None]) -> Iterator[Download]:
    """Ask for a file; what is given knows its head, and fetches the content when it is told to.

    Raises `Stopped`, and `MediaError`: `BAD_SOURCE`, `SOURCE_NOT_FOUND`, `SOURCE_REFUSED`, `SOURCE_TOO_LARGE` and
    `ADDRESS_REFUSED` are for good; `UPSTREAM_FAILURE` may go away.
    """
    one = Download(url, limits, stop)
    try:
        one.ask()
        yield one
    finally:
        one.close()


class Download:
    """One file on its way. Made by `download`."""

    def __init__(self, url: str, limits: Limits, stop: Callable[[], str | None]) -> None:
        self._asked, self._limits, self._stop = url, limits, stop
        self._ends_at = time.monotonic() + limits.timeout
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None
        self.head = Head(url=url, size=None, etag=None, content_type="")

    def ask(self) -> None:
        """Ask for the file from its beginning, and read what the server says of it."""
        status = self._request({})
        if status != OK:
            raise self._refused(status)
        self.head = self._head()
        self._check_size(self.head.size)

    def into(self, target: Path, *, earlier: Path | None = None, on_progress: Callable[[float], None]) -> None:
        """Write the content into a file. `earlier` is what another attempt has of it; its file is copied, not changed.

        Beside the target is a note of how far it is, for whoever comes after this one was killed.
        """
        have = self._taken_over(earlier, target)
        fruitless = 0
        while True:
            before = have
            try:
                have = self._receive(target, have, on_progress)
                if self.head.size is None or have == self.head.size:
                    return
                trouble = f"the connection broke after {have:,} of {self.head.size:,} bytes"
            except (OSError, http.client.HTTPException) as error:
                have = target.stat().st_size if target.exists() else 0
                trouble = f"the connection broke after {have:,} bytes: {type(error).__name__}: {error}"
            self.close()
            fruitless = fruitless + 1 if have <= before else 0
            if fruitless >= PATIENCE:
                raise MediaError(UPSTREAM_FAILURE, f"{trouble}, {PATIENCE} times in a row")
            self._rest(PAUSE * 2**fruitless)

    def close(self) -> None:
        """Let go of the connection. Safe to call again."""
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._response = None

    # --- the bytes ---

    def _taken_over(self, earlier: Path | None, target: Path) -> int:
        """Copy what an earlier attempt surely has on disk, if it is of the very same file; returns how many bytes that is."""
        if earlier is None or self.head.etag is None:
            return 0
        try:
            note = msgspec.json.decode(note_of(earlier).read_bytes(), type=_Note)
            if (note.url, note.etag, note.size) != (self._asked, self.head.etag, self.head.size):
                return 0
            with earlier.open("rb") as old, target.open("wb") as new:
                shutil.copyfileobj(old, new, BLOCK)
                new.truncate(min(note.on_disk, new.tell()))
            have = target.stat().st_size
        except (OSError, msgspec.MsgspecError):
            return 0
        if have:
            self.close()
        return have

    def _receive(self, target: Path, have: int, on_progress: Callable[[float], None]) -> int:
        """Receive until the end, or until the connection breaks; returns how many bytes are there."""
        if self._response is None:
            have = self._ask_for_rest(have)
            if have == self.head.size:
                return have
        assert self._response is not None  # noqa: S101  just asked for
        with target.open("r+b" if have else "wb") as file:
            file.truncate(have)
            file.seek(have)
            noted = have
            try:
                while block := self._response.read1(BLOCK):
                    file.write(block)
                    have += len(block)
                    self._check_size(have)
                    if self.head.size:
                        on_progress(min(1.0, have / self.head.size))
                    if have - noted >= NOTED:
                        noted = self._written_down(file, target, have)
            finally:
                self._written_down(file, target, have)
        return have

    def _written_down(self, file: BinaryIO, target: Path, have: int) -> int:
        file.flush()
        os.fsync(file.fileno())
        if self.head.etag is not None:
            note = _Note(self._asked, self.head.etag, self.head.size, have)
            fresh = target.with_suffix(".note-new")
            fresh.write_bytes(msgspec.json.encode(note))
            fresh.replace(note_of(target))
        return have

    def _ask_for_rest(self, have: int) -> int:
        """Ask for what is missing; returns where the answer begins: at zero when the server gives no parts.

        Raises `UPSTREAM_FAILURE` when the file is another one by now: whoever asked has taken its ETag for what it is.
        """
        same = self.head.etag
        status = self._request({"Range": f"bytes={have}-", "If-Range": same} if have and same else {})
        if status == PARTIAL and have:
            found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", self._header("Content-Range"))
            # not every server has heard of If-Range
            if found is not None and int(found[1]) == have and self._header("ETag") in {"", same}:
                return have
            raise MediaError(UPSTREAM_FAILURE, "the server sent another part than it was asked for")
        if status == BEYOND and have == self.head.size:
            return have
        if status == OK:
            self.head = self._head()
            if same != self.head.etag:
                raise MediaError(UPSTREAM_FAILURE, "the file was changed while it was being fetched")
            self._check_size(self.head.size)
            return 0
        raise self._refused(status)

    # --- the connection ---

    def _request(self, headers: dict[str, str]) -> int:
        """Send a request and follow where it leads; returns the status of the answer."""
        url = self._asked
        for _ in range(REDIRECTS + 1):
            self.close()
            status = self._sent(url, headers)
            if status not in MOVED:
                self.head = replace(self.head, url=url)
                return status
            target = urljoin(url, self._header("Location"))
            if url.startswith("https:") and not target.startswith("https:"):
                raise MediaError(
                    SOURCE_REFUSED, f"{shown_url(url)} leads from https to {urlsplit(target).scheme}: not followed"
                )
            url = target
        raise MediaError(SOURCE_REFUSED, f"{shown_url(self._asked)} leads on more than {REDIRECTS} times")

    def _sent(self, url: str, headers: dict[str, str]) -> int:
        parts, host, port = _parts(url)
        reader = _Reader(self._poll, self._limits.stall)
        plain = connect(host, port, extra=self._limits.networks, poll=_hurried(self._poll, self._limits.stall, host))
        try:
            secure = _secured(plain, host, reader) if parts.scheme == "https" else plain
        except BaseException:
            plain.close()
            raise
        connection = http.client.HTTPConnection(host, port)
        polled: Any = _Polled(secure, reader)  # has all that http.client asks of a socket
        connection.sock = polled
        self._connection = connection
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe="%/:=&?~#+!$,;'@()*[]")
        try:
            connection.putrequest("GET", path, skip_accept_encoding=True)
            # identity: compressed, a part of the file would be no part of the file
            for name, value in {"Accept-Encoding": "identity", "User-Agent": "holdfast-media", **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            self._response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise MediaError(UPSTREAM_FAILURE, f"{host} broke off: {type(error).__name__}: {error}") from None
        return self._response.status

    def _poll(self) -> None:
        if (reason := self._stop()) is not None:
            raise Stopped(reason)
        if time.monotonic() > self._ends_at:
            raise MediaError(UPSTREAM_FAILURE, f"the download took longer than {self._limits.timeout:g} s")

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._poll()
            time.sleep(min(left, 0.1))

    # --- what the server says ---

    def _header(self, name: str) -> str:
        return "" if self._response is None else (self._response.getheader(name) or "")

    def _head(self) -> Head:
        length, etag = self._header("Content-Length"), self._header("ETag")
        return Head(
            url=self.head.url,
            size=int(length) if length.isdecimal() else None,
            etag=etag if etag.startswith('"') else None,
            content_type=self._header("Content-Type").partition(";")[0].strip().lower(),
        )

    def _check_size(self, size: int | None) -> None:
        if size is not None and size > self._limits.max_bytes:
            raise MediaError(
                SOURCE_TOO_LARGE, f"the source has {size:,} bytes or more, and {self._limits.max_bytes:,} are the most allowed"
            )

    def _refused(self, status: int) -> MediaError:
        where = shown_url(self.head.url)
        if status in BUSY:
            return MediaError(UPSTREAM_FAILURE, f"{where} answered {status}")
        if status in {404, 410}:
            return MediaError(SOURCE_NOT_FOUND, f"{where} answered {status}: there is nothing")
        return MediaError(SOURCE_REFUSED, f"{where} answered {status}: it does not give the file out")


class _Reader:
    """Waits for bytes in short turns, so that a stop, a deadline and a stall are seen in time."""

    def __init__(self, poll: Callable[[], None], stall: float) -> None:
        self._poll, self._stall = poll, stall

    def __call__(self, turn: Callable[[], int]) -> int:
        until = time.monotonic() + self._stall
        while True:
            self._poll()
            try:
                return turn()
            except TimeoutError:
                if time.monotonic() > until:
                    raise MediaError(UPSTREAM_FAILURE, f"the server has sent nothing for {self._stall:g} s") from None


class _Raw(io.RawIOBase):
    def __init__(self, connection: socket.socket, reader: _Reader) -> None:
        self._connection, self._reader = connection, reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        return self._reader(lambda: self._connection.recv_into(buffer))

    def close(self) -> None:
        super().close()
        self._connection.close()


class _Polled:
    """A socket as `http.client` uses it."""

    def __init__(self, connection: socket.socket, reader: _Reader) -> None:
        self._connection, self._reader, self._lent = connection, reader, False

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._lent = True
        return io.BufferedReader(_Raw(self._connection, self._reader), BLOCK)

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(10.0)  # a request is a few hundred bytes
        self._connection.sendall(data)
        self._connection.settimeout(0.2)

    def close(self) -> None:
        # http.client closes the socket of an answer that ends with the connection before it is read: its file closes it then
        if not self._lent:
            self._connection.close()


def _secured(plain: socket.socket, host: str, reader: _Reader) -> ssl.SSLSocket:
    secure = ssl.create_default_context().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)

    def shake() -> int:
        secure.do_handshake()
        return 0

    try:
        reader(shake)
    except ssl.SSLCertVerificationError as error:
        raise MediaError(SOURCE_REFUSED, f"the certificate of {host} is not good: {error.verify_message}") from None
    except OSError as error:
        raise MediaError(UPSTREAM_FAILURE, f"no secure connection to {host}: {error.strerror or error}") from None
    return secure


def _hurried(poll: Callable[[], None], seconds: float, host: str) -> Callable[[], None]:
    until = time.monotonic() + seconds

    def ask() -> None:
        poll()
        if time.monotonic() > until:
            raise MediaError(UPSTREAM_FAILURE, f"{host} did not answer within {seconds:g} s")

    return ask


def _parts(url: str) -> tuple[SplitResult, str, int]:
    """Take a URL apart, or raise `BAD_SOURCE`."""
    parts = SplitResult("", "", "", "", "")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        host = host.encode("ascii" if host.isascii() else "idna").decode()
    except ValueError:
        host, port = "", None
    if not host or port is None or any(ord(letter) <= ord(" ") for letter in url):
        raise MediaError(BAD_SOURCE, f"{url.partition('?')[0]!r} is no http or https address")
    return parts, host, port


def note_of(path: Path) -> Path:
    """Return where it is written down how much of a download is on disk."""
    return path.with_suffix(".note")
