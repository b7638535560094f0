"""Running a server in this process: who is let in, its logs, its event loop."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.cli.common import store_url, with_store
from holdfast.cli.loading import load_app
from holdfast.cli.output import note
from holdfast.cli.working import loop_factory, set_up_logs
from holdfast.connect import without_password
from holdfast.errors import MissingExtra
from holdfast.server.alerts.target import targets_of
from holdfast.server.keys import new_secret
from holdfast.server.settings import ServerSettings, is_loopback
from holdfast.store.port import Role

try:
    from holdfast.server.asgi import check_access, create_server
    from holdfast.server.running import Running, listening, url_of
except ImportError as missing:
    raise MissingExtra("server", "holdfast server", missing.name or "starlette") from missing

if TYPE_CHECKING:
    from holdfast.config import Loaded
    from holdfast.store.port import Store


def run_server(loaded: Loaded, *, app: str | None, is_open: bool, worker: bool) -> None:
    """Serve until a signal ends it. First SIGTERM or Ctrl-C: requests that are under way are answered; second: at once."""
    given = loaded.settings
    served = load_app(app or given.app) if app or worker else store_url(given.url)
    url = served if isinstance(served, str) else served.url
    settings = ServerSettings(
        host=given.host,
        port=given.port,
        admin_secret=given.admin_secret,
        open=is_open,
        prefix=given.prefix,
        secure_cookies=given.secure_cookies,
        redacted=given.redact,
    )
    secret = None
    if asyncio.run(with_store(url, lambda store: _needs_secret(store, settings), create=True)):
        secret = new_secret()
        settings = replace(settings, admin_secret=secret)
    set_up_logs(level=given.log_level, style=given.log_format, worker="server")
    options = {"concurrency": given.concurrency, "queues": given.queues, "capabilities": given.capabilities or ()}
    alerts = targets_of(given.alerts)
    server = create_server(served, settings, retention=loaded.retention, worker=options if worker else None, alerts=alerts)
    running = Running(server)
    with closing(listening(settings.host, settings.port)) as sock:
        note(f"holdfast server on {url_of(sock, settings.prefix)} ({without_password(url)})")
        if secret is not None:
            note(f"the admin secret of this run: {secret}")
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(running.serve(sockets=[sock]))


async def _needs_secret(store: Store, settings: ServerSettings) -> bool:
    """Tell whether nobody could come in as it is; refuse an address that others reach."""
    await check_access(store, settings)
    if settings.open or settings.admin_secret is not None or not is_loopback(settings.host):
        return False
    return not any(key.role is Role.ADMIN and key.revoked_at is None for key in await store.keys())
