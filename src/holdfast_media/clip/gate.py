"""A proxy on the loopback interface that lets a program reach what a source may be fetched from, and nothing else.

yt-dlp makes its own connections, so they cannot be judged in this process; but it makes all of them through a proxy when it is
told to. Each connection is judged when it is made, as in `addresses`, and what comes through is counted: not every server says
beforehand how much it sends.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from holdfast_media.clip.addresses import Network, connect
from holdfast_media.errors import MediaError, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD: Final = 65_536
"""Bytes of a request's head at most."""
TURN: Final = 0.2


class Gate:
    """A proxy that is open, and what has come through it."""

    def __init__(self, address: str, max_bytes: int) -> None:
        self.address, self.max_bytes = address, max_bytes
        self._let_in, self._lock = 0, threading.Lock()

    @property
    def exceeded(self) -> bool:
        """Whether more has come than is let in: then nothing comes any more."""
        return self._let_in > self.max_bytes

    def lets_in(self, count: int) -> bool:
        """Count bytes that have come, and tell whether they may come in."""
        with self._lock:
            self._let_in += count
            return not self.exceeded


@contextmanager
def gate(networks: tuple[Network, ...], max_bytes: int) -> Iterator[Gate]:
    """Run a proxy while this is open. More than `max_bytes`, of all its connections together, do not come through."""
    over = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(TURN)
    threads: list[threading.Thread] = []
    this = Gate(f"http://127.0.0.1:{server.getsockname()[1]}", max_bytes)

    def accept() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                caller, _ = server.accept()
                threads[:] = [one for one in threads if one.is_alive()]
                threads.append(threading.Thread(target=_serve, args=(caller, networks, this, over), name="gate", daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, name="gate", daemon=True)
    accepting.start()
    try:
        yield this
    finally:
        over.set()
        accepting.join()
        server.close()
        for thread in threads:
            thread.join(5 * TURN)


def _serve(caller: socket.socket, networks: tuple[Network, ...], this: Gate, over: threading.Event) -> None:
    def poll() -> None:
        if over.is_set():
            raise Stopped("over")

    with caller:
        caller.settimeout(TURN)
        try:
            head, rest = _head(caller, this, over)
            verb, target, version = head[0].split(" ")
            if verb == "CONNECT":
                host, _, port = target.rpartition(":")
                with connect(host.strip("[]"), int(port), extra=networks, poll=poll) as far:
                    caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    _pass_on(caller, far, rest, this, over)
                return
            parts = urlsplit(target)
            near = parts.hostname if parts.scheme == "http" else None
            with connect(near or "", parts.port or 80, extra=networks, poll=poll) as far:
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                kept = [line for line in head[1:] if not line.lower().startswith(("proxy-", "connection:"))]
                sent = "\r\n".join([f"{verb} {path} {version}", *kept, "Connection: close", "", ""])
                _pass_on(caller, far, sent.encode("latin-1") + rest, this, over)
        except MediaError as error:
            _answer(caller, "403 Forbidden" if error.code == "ADDRESS_REFUSED" else "502 Bad Gateway")
        except (OSError, ValueError, Stopped):
            _answer(caller, "400 Bad Request")


def _head(caller: socket.socket, this: Gate, over: threading.Event) -> tuple[list[str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        if over.is_set() or this.exceeded or len(data) > HEAD:
            raise ValueError("no request")
        with suppress(TimeoutError):
            if not (more := caller.recv(HEAD)):
                raise ValueError("no request")
            data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), rest


def _pass_on(caller: socket.socket, far: socket.socket, first: bytes, this: Gate, over: threading.Event) -> None:
    """Pass bytes on in both directions until one side ends."""
    caller.settimeout(30.0)
    far.settimeout(30.0)
    far.sendall(first)
    while not over.is_set():
        for one in select.select([caller, far], [], [], TURN)[0]:
            if not (data := one.recv(HEAD)) or (one is far and not this.lets_in(len(data))):
                return
            (far if one is caller else caller).sendall(data)


def _answer(caller: socket.socket, status: str) -> None:
    with suppress(OSError):
        caller.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
