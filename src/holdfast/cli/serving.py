"""Running a server in this process: who is let in, its logs, its event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.common import store_url
from holdfast.cli.loading import load_app
from holdfast.cli.output import note
from holdfast.cli.working import loop_factory, set_up_logs
from holdfast.connect import without_password
from holdfast.errors import MissingExtra
from holdfast.server.alerts.target import targets_of
from holdfast.server.settings import ServerSettings

try:
    from holdfast.server.asgi import create_server
    from holdfast.server.running import secured, serve
except ImportError as missing:
    raise MissingExtra("server", "holdfast server", missing.name or "starlette") from missing

if TYPE_CHECKING:
    from holdfast.config import Loaded


def run_server(loaded: Loaded, *, app: str | None, is_open: bool, worker: bool) -> None:
    """Serve until a signal ends it. First SIGTERM or Ctrl-C: requests that are under way are answered; second: at once."""
    given = loaded.settings
    served = load_app(app or given.app, command="server") if app or worker else store_url(given.url)
    url = served if isinstance(served, str) else served.url
    settings = ServerSettings(
        host=given.host,
        port=given.port,
        admin_secret=given.admin_secret,
        open=is_open,
        prefix=given.prefix,
        secure_cookies=given.secure_cookies,
        trusted_proxies=given.trusted_proxies,
        redacted=given.redact,
        key_rate=given.key_rate,
        failure_rate=given.failure_rate,
        body_limit=given.body_limit,
        longest_poll=given.longest_poll,
        page_timeout=given.page_timeout,
    )
    settings, secret = secured(url, settings)
    set_up_logs(level=given.log_level, style=given.log_format, worker="server")
    options = {"concurrency": given.concurrency, "queues": given.queues, "capabilities": given.capabilities or ()}
    alerts = targets_of(given.alerts)
    server = create_server(served, settings, retention=loaded.retention, worker=options if worker else None, alerts=alerts)

    def told(address: str) -> None:
        note(f"holdfast server on {address} ({without_password(url)})")
        if secret is not None:
            note(f"the admin secret of this run: {secret}")

    serve(server, told=told, loop_factory=loop_factory())
