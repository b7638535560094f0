"""A web server that does what bad ones do: it cuts connections, changes files, stalls, and leads elsewhere."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class Site:
    """What the server gives out, and what it was asked for."""

    content: bytes = b""
    etag: str | None = '"one"'
    content_type: str = "video/mp4"
    cut_after: int | None = None
    """Bytes after which a connection is cut, each time."""
    cuts: int | None = None
    """How many connections are cut; all of them unless it is said."""
    on_cut: Callable[[], None] = lambda: None
    """Called before a connection is cut."""
    refuse: int = 0
    """How many requests for a part are answered with 503."""
    if_range: bool = True
    """Whether it gives no part of another file than the one that was begun with."""
    status: int = 200
    location: str = ""
    stall: threading.Event | None = None
    """Sends nothing of the content before it is set."""
    with_length: bool = True
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/film.mp4"
    try:
        yield site
    finally:
        if site.stall is not None:
            site.stall.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        site = self.site
        with site.lock:
            site.asked.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
        self.close_connection = True
        kind, content = site.files.get(self.path, (site.content_type, site.content))
        if site.status != 200:
            self.send_response(site.status)
            self.send_header("Location", site.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        begin = 0
        wanted = self.headers.get("Range", "")
        if wanted and site.refuse:
            site.refuse -= 1
            self.send_error(503)
            return
        if wanted and (not site.if_range or self.headers.get("If-Range") in (None, site.etag)):
            begin = int(wanted.removeprefix("bytes=").partition("-")[0])
            if begin >= len(content):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self._give(site, kind, content[begin:])

    def _give(self, site: Site, kind: str, content: bytes) -> None:
        self.send_header("Content-Type", kind)
        if site.etag is not None:
            self.send_header("ETag", site.etag)
        if site.with_length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if site.stall is not None:
            site.stall.wait(30)
        with site.lock:
            cut = site.cut_after is not None and (site.cuts is None or site.cuts > 0)
            if cut and site.cuts is not None:
                site.cuts -= 1
        part = content[: site.cut_after] if cut else content
        try:
            self.wfile.write(part)
            self.wfile.flush()
        except OSError:
            return
        if cut:
            site.on_cut()
        with site.lock:
            site.sent += len(part)

    def log_message(self, *_: Any) -> None:
        pass
