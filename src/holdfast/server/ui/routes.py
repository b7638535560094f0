"""Which page is where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from holdfast.errors import BadSetting
from holdfast.server.principal import Right
from holdfast.server.ui import access, alerts, chains, fleet, job, jobs, limits, overview, schedules, steering, streaming
from holdfast.server.ui.files import STATIC, files
from holdfast.server.ui.frame import Ui, make_templates
from holdfast.server.ui.live import Live
from holdfast.server.ui.sessions import Sessions
from holdfast.server.ui.sharing import Shared
from holdfast.server.ui.sparklines import Sparklines

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from holdfast.server.context import Context
    from holdfast.server.extending import Extension

FETCHED: Final = ("htmx.js", "uplot.js", "uplot.css")


class Dashboard:
    """The dashboard of a server: its pages, who has logged in, and what keeps pages live."""

    def __init__(self, context: Context, extensions: tuple[Extension, ...] = ()) -> None:
        self.sessions = Sessions(context.store, context.keyring, context.environment, context.settings)
        """The server's door asks it who somebody is."""
        self.live = Live(context.store, context.notifier, context.environment)
        ui = Ui(
            context,
            self.sessions,
            self.live,
            make_templates(extensions, context.settings.redacted),
            tails={},
            sparklines=Sparklines(context.environment.monotonic),
            shared=Shared(lambda: self.live.version, context.environment.monotonic),
            extensions=extensions,
        )
        self.nothing = ui.nothing
        """Answers with the page for an address that is none."""
        self.routes = [*_routes(ui), *(route for extension in extensions for route in _added(ui, extension))]

    def close(self) -> None:
        """Have streams end, before the web server waits for them."""
        self.live.closing = True


def _added(ui: Ui, extension: Extension) -> list[BaseRoute]:
    """Return the routes of an extension."""
    added: list[BaseRoute] = [
        ui.page(f"{extension.path}{page.path}", page.handler, page.right, page.method, extension=extension, raw=page.raw)
        for page in extension.pages
    ]
    if extension.static is not None:
        added.append(Route(f"/static-{extension.name}/{{name:path}}", files(extension.static)))
    return added


def _routes(ui: Ui) -> list[BaseRoute]:
    missing = [name for name in FETCHED if not (STATIC / "vendor" / name).is_file()]
    if missing:
        raise BadSetting(
            f"the dashboard's files {', '.join(missing)} are missing: they are fetched when Holdfast is installed from its "
            "source. Install it again: pip install -e . (./dev setup does so)"
        )
    look, steer = Right.LOOK, Right.STEER
    return [
        ui.page("/", overview.overview),
        ui.page("/login", access.login, None),
        ui.page("/login", access.log_in, None, "POST"),
        ui.page("/logout", access.log_out, None, "POST"),
        ui.page("/live", streaming.live, shared=False),
        ui.page("/jobs", jobs.jobs),
        ui.page("/jobs/confirm", steering.confirm, look),
        ui.page("/jobs/act", steering.act, look, "POST"),
        ui.page("/jobs/{job_id:uuid}", job.job),
        ui.page("/jobs/{job_id:uuid}/end", job.complete, look, "POST"),
        ui.page("/jobs/{job_id:uuid}/{verb}", steering.one, steer, "POST"),
        ui.page("/queues", fleet.queues),
        ui.page("/queues/pause", fleet.pause, steer, "POST"),
        ui.page("/queues/resume", fleet.resume, steer, "POST"),
        ui.page("/limits", limits.limits),
        ui.page("/limits/confirm", limits.confirm, steer),
        ui.page("/limits/set", limits.set_limit, steer, "POST"),
        ui.page("/limits/clear", limits.clear_limit, steer, "POST"),
        ui.page("/workers", fleet.workers),
        ui.page("/workers/{worker_id:uuid}/revoke", fleet.revoke, steer),
        ui.page("/workers/{worker_id:uuid}/{verb}", fleet.steer, steer, "POST"),
        ui.page("/schedules", schedules.schedules),
        ui.page("/schedules/run", schedules.run, steer, "POST"),
        ui.page("/chains", chains.chains),
        ui.page("/chains/{chain_id:uuid}", chains.chain),
        ui.page("/chains/{chain_id:uuid}/delete", chains.ask_delete, steer),
        ui.page("/chains/{chain_id:uuid}/{verb}", chains.steer_chain, steer, "POST"),
        ui.page("/alerts", alerts.alerts),
        ui.page("/alerts/{job_id:uuid}/redeliver", alerts.redeliver, Right.AUDIT, "POST"),
        ui.page("/audit", access.audit, Right.AUDIT),
        ui.page("/keys", access.keys, Right.KEYS),
        ui.page("/keys", access.add_key, Right.KEYS, "POST"),
        ui.page("/keys/{key_id}/rotate", access.ask_rotate, Right.KEYS),
        ui.page("/keys/{key_id}/rotate", access.rotate_key, Right.KEYS, "POST"),
        ui.page("/keys/{key_id}/revoke", access.ask_revoke, Right.KEYS),
        ui.page("/keys/{key_id}/revoke", access.revoke_key, Right.KEYS, "POST"),
        Route("/static/{name:path}", files(STATIC), name="ui:static"),
    ]
