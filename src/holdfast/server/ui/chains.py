"""Chains: the list, and one of them as a graph of its steps and blockers."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.states import LIVE, TERMINAL, State
from holdfast.errors import JobNotFound
from holdfast.finding import Mistake
from holdfast.server.principal import Right
from holdfast.server.ui import query
from holdfast.server.ui.frame import Problem
from holdfast.server.ui.graph import graph
from holdfast.server.ui.steering import VERBS, steer, told
from holdfast.store.port import Answer, JobFilter
from holdfast.throttling import marked

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import ChainView

ROWS: Final = 50
STEPS: Final = 30
"""Of a chain, the last ones."""


async def chains(visit: Visit) -> Response:
    """Show the chains that match a search, newest first."""
    params = visit.request.query_params
    text = query.checked(params.get("q", "").strip())
    now = await visit.store.now()
    flaw, rows, after = "", [], None
    try:
        search = query.parse(text, now)
        if search.error is not None or search.job is not None or search.where.chain_id is not None:
            raise Mistake("chains are found by state:, task:, queue:, tag:, key:, since: and before:")  # noqa: TRY301  said on the page
        cursor = UUID(params["after"]) if params.get("after") else None
        page = await visit.store.find_chains(search.where, limit=ROWS, after=cursor)
        rows, after = [view for view in page.chains if visit.may(Right.LOOK, view.queue)], page.after
        chosen = search.where.states
    except (Mistake, ValueError) as mistake:
        flaw, chosen = str(mistake), None
    return visit.render(
        "chains.html",
        title="Chains",
        section="chains",
        now=now,
        q=text,
        flaw=flaw,
        chains=rows,
        after=after,
        first=params.get("after") is None,
        states=list(State),
        chosen=chosen,
    )


async def chain(visit: Visit) -> Response:
    """Show a chain."""
    view = await _chain(visit)
    page = await visit.store.find(JobFilter(chain_id=view.id), limit=STEPS)
    found = list(reversed(page.jobs)) or [job for job in await visit.store.get([view.id]) if job is not None]
    steps = await marked(visit.store, found)
    blockers = {step.id: await visit.store.blockers(step.id) for step in steps if step.after}
    return visit.render(
        "chain.html",
        title=f"Chain {view.task}",
        section="chains",
        now=await visit.store.now(),
        chain=view,
        steps=steps,
        earlier=max(0, view.steps - len(steps)),
        graph=graph(steps, blockers),
        blockers=blockers,
        live=view.state in LIVE,
        ended=view.state in TERMINAL,
        steers=visit.may(Right.STEER, view.queue),
    )


async def steer_chain(visit: Visit) -> Response:
    """Retry or cancel a chain at the step where it stands, or delete all of it."""
    view, verb = await _chain(visit), str(visit.request.path_params["verb"])
    visit.need(Right.STEER, view.queue)
    if verb == "delete":
        return await _delete(visit, view)
    if verb not in VERBS:
        raise Problem(HTTPStatus.NOT_FOUND, f"{verb!r} is nothing that is done to chains.")
    answers = await steer(visit, VERBS[verb], [view.step])
    return visit.go(visit.link(f"/chains/{view.id}"), told(VERBS[verb], answers))


async def ask_delete(visit: Visit) -> Response:
    """Ask whether a chain is to be deleted."""
    view = await _chain(visit)
    visit.need(Right.STEER, view.queue)
    return visit.render(
        "revoke.html",
        still=True,
        title=f"Delete the chain {view.task}?",
        section="chains",
        what="chain",
        chain=view,
        action=visit.link(f"/chains/{view.id}/delete"),
        back=visit.link(f"/chains/{view.id}"),
        count=view.steps,
    )


async def _delete(visit: Visit, view: ChainView) -> Response:
    deleted = await visit.store.delete_chains([view.id], by=visit.who.name)
    if deleted.answer is Answer.NEEDED:
        raise Problem(
            HTTPStatus.CONFLICT,
            f"Nothing was deleted: the job {deleted.needed_by} waits for this chain, or will read its result.",
            "Cancel that one first.",
        )
    visit.told(deleted.jobs)
    return visit.go(visit.link("/chains"), f"The chain is deleted, with {len(deleted.jobs)} steps.")


async def _chain(visit: Visit) -> ChainView:
    chain_id = UUID(str(visit.request.path_params["chain_id"]))
    view = (await visit.store.chains([chain_id]))[0]
    if view is None:
        raise JobNotFound(chain_id)
    if not visit.may(Right.LOOK, view.queue):
        raise Problem(HTTPStatus.FORBIDDEN, f"The key of {visit.who.name} does not open the queue {view.queue!r}.")
    return view
