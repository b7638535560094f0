"""Which page is where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from holdfast.errors import BadSetting
from holdfast.server.principal import Right
from holdfast.server.ui import access, chains, fleet, job, jobs, overview, schedules, steering, streaming
from holdfast.server.ui.files import STATIC, files
from holdfast.server.ui.frame import Ui, make_templates
from holdfast.server.ui.live import Live

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from holdfast.server.context import Context
    from holdfast.server.ui.sessions import Sessions

FETCHED: Final = ("htmx.js", "uplot.js", "uplot.css")


def ui_routes(context: Context, sessions: Sessions, live: Live | None = None) -> list[BaseRoute]:
    """Return the routes of the dashboard. Those of `sessions` come in where the context's door asks them."""
    missing = [name for name in FETCHED if not (STATIC / "vendor" / name).is_file()]
    if missing:
        raise BadSetting(
            f"the dashboard's files {', '.join(missing)} are missing: they are fetched when Holdfast is installed from its "
            "source. Install it again: pip install -e . (./dev setup does so)"
        )
    live = live or Live(context.store, context.notifier, context.environment)
    ui = Ui(context, sessions, live, make_templates(), tails={})
    look, steer = Right.LOOK, Right.STEER
    return [
        ui.page("/", overview.overview),
        ui.page("/login", access.login, None),
        ui.page("/login", access.log_in, None, "POST"),
        ui.page("/logout", access.log_out, None, "POST"),
        ui.page("/live", streaming.live),
        ui.page("/jobs", jobs.jobs),
        ui.page("/jobs/confirm", steering.confirm, look),
        ui.page("/jobs/act", steering.act, look, "POST"),
        ui.page("/jobs/{job_id:uuid}", job.job),
        ui.page("/jobs/{job_id:uuid}/end", job.complete, look, "POST"),
        ui.page("/jobs/{job_id:uuid}/{verb}", steering.one, steer, "POST"),
        ui.page("/queues", fleet.queues),
        ui.page("/queues/pause", fleet.pause, steer, "POST"),
        ui.page("/queues/resume", fleet.resume, steer, "POST"),
        ui.page("/workers", fleet.workers),
        ui.page("/workers/{worker_id:uuid}/revoke", fleet.revoke, steer),
        ui.page("/workers/{worker_id:uuid}/{verb}", fleet.steer, steer, "POST"),
        ui.page("/schedules", schedules.schedules),
        ui.page("/schedules/run", schedules.run, steer, "POST"),
        ui.page("/chains", chains.chains),
        ui.page("/chains/{chain_id:uuid}", chains.chain),
        ui.page("/chains/{chain_id:uuid}/delete", chains.ask_delete, steer),
        ui.page("/chains/{chain_id:uuid}/{verb}", chains.steer_chain, steer, "POST"),
        ui.page("/audit", access.audit, Right.AUDIT),
        ui.page("/keys", access.keys, Right.KEYS),
        ui.page("/keys", access.add_key, Right.KEYS, "POST"),
        ui.page("/keys/{key_id}/revoke", access.ask_revoke, Right.KEYS),
        ui.page("/keys/{key_id}/revoke", access.revoke_key, Right.KEYS, "POST"),
        Route("/static/{name:path}", files(STATIC), name="ui:static"),
    ]
