"""What is done to jobs: to one, to several, or to all that match a search, with a page that asks first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec.structs import replace
from starlette.datastructures import ImmutableMultiDict

from holdfast.core.states import LIVE, TERMINAL, State
from holdfast.finding import Mistake
from holdfast.server.principal import Right
from holdfast.server.ui import query
from holdfast.server.ui.frame import Problem
from holdfast.server.ui.overview import failed_of
from holdfast.store.port import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import JobView

CAP: Final = 10_000
"""Jobs that one action takes at most."""
BATCH: Final = 500
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Verb:
    """What is done to jobs, and to which when a search names no state."""

    name: str
    asks: str
    done: str
    states: frozenset[State]
    refused: str
    warns: str = ""


VERBS: Final = {
    verb.name: verb
    for verb in (
        Verb(
            "retry",
            "Retry",
            "to run again",
            frozenset({State.FAILED, State.CANCELED}),
            "refused: not ended, or a step in the middle of a chain",
            "They become ready with a fresh budget; attempts go on counting.",
        ),
        Verb(
            "cancel",
            "Cancel",
            "canceled",
            LIVE,
            "refused: ended already",
            "Waiting jobs end at once; running ones are asked to stop, and their workers end them.",
        ),
        Verb(
            "delete",
            "Delete",
            "deleted",
            TERMINAL,
            "refused: a live job needs it, or it is one of several steps of a chain",
            "They are removed with their attempts, logs and results. This cannot be undone.",
        ),
    )
}


async def confirm(visit: Visit) -> Response:
    """Ask whether it is meant, and say how many jobs it is about."""
    params = visit.request.query_params
    verb = _verb(params.get("verb", ""))
    visit.need(Right.STEER)
    now = await visit.store.now()
    ids, more, what = await _chosen(visit, verb, params.getlist("job"), _choice(params), now)
    views = [view for view in await visit.store.get(ids[:SHOWN]) if view is not None] if ids else []
    return visit.render(
        "confirm.html",
        still=True,
        title=f"{verb.asks} {len(ids):,} {'job' if len(ids) == 1 else 'jobs'}?",
        section="jobs",
        verb=verb,
        ids=ids,
        jobs=views,
        more=more,
        cap=CAP,
        what=what,
        by_search="all" in params or "task" in params,
        params=params,
        before=now.isoformat(),
        back=params.get("back") or visit.link("/jobs", q=params.get("q")),
        now=now,
    )


async def act(visit: Visit) -> Response:
    """Do it, and say what became of it."""
    verb = _verb(visit.field("verb"))
    visit.need(Right.STEER)
    before = visit.field("before")
    try:
        moment = datetime.fromisoformat(before) if before else await visit.store.now()
    except ValueError:
        raise Mistake(f"{before!r} is no time") from None
    form = visit.form if visit.form is not None else ImmutableMultiDict[str, str]()
    ids, more, _ = await _chosen(visit, verb, form.getlist("job"), _choice(form), moment)
    answers = await steer(visit, verb, ids)
    said = told(verb, answers) + (f" There are more: {CAP:,} were taken; do it again for the rest." if more else "")
    return visit.go(visit.back("/jobs"), said)


async def one(visit: Visit) -> Response:
    """Retry or cancel one job, from its own page."""
    verb = _verb(visit.request.path_params["verb"])
    job_id = UUID(str(visit.request.path_params["job_id"]))
    visit.need(Right.STEER)
    answers = await steer(visit, verb, await _allowed(visit, [job_id]))
    return visit.go(visit.back(f"/jobs/{job_id}"), told(verb, answers))


async def steer(visit: Visit, verb: Verb, ids: Sequence[UUID]) -> Mapping[UUID, Answer]:
    """Do something to jobs, batch by batch, and have workers hear of it."""
    answers: dict[UUID, Answer] = {}
    by, reason, store = visit.who.name, visit.field("reason"), visit.store
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        match verb.name:
            case "retry":
                given = await store.reopen(batch, by=by)
            case "cancel":
                given = await store.cancel(batch, by=by, reason=reason)
            case _:
                given = await store.delete(batch, by=by)
        answers.update(zip(batch, given, strict=True))
    visit.told(answers)
    return answers


def told(verb: Verb, answers: Mapping[UUID, Answer]) -> str:
    """Say what became of jobs."""
    words = {
        Answer.DONE: verb.done,
        Answer.REQUESTED: "asked to stop",
        Answer.REFUSED: verb.refused,
        Answer.NOT_FOUND: "not there any more",
        Answer.KEY_TAKEN: "refused: another live job holds the unique key",
        Answer.NEEDED: verb.refused,
        Answer.CHAINED: verb.refused,
    }
    counts = Counter(words[answer] for answer in answers.values())
    said = [f"{count:,} {'job' if count == 1 else 'jobs'} {word}" for word, count in counts.items()]
    return "; ".join(said) or "No job matched."


def _verb(name: str) -> Verb:
    if name not in VERBS:
        raise Problem(HTTPStatus.BAD_REQUEST, f"{name!r} is nothing that is done to jobs.", "Use the buttons of the list.")
    return VERBS[name]


def _choice(params: Mapping[str, str]) -> dict[str, str]:
    return {name: params[name] for name in ("q", "all", "task", "code", "frame") if name in params}


async def _chosen(
    visit: Visit, verb: Verb, listed: Sequence[str], choice: Mapping[str, str], before: datetime
) -> tuple[Sequence[UUID], bool, str]:
    """Return the jobs that are meant, whether there are more than may be, and what they have in common."""
    if "task" in choice:
        kind = (choice["task"], choice.get("code", ""), choice.get("frame", ""))
        return (await failed_of(visit, kind, before))[:CAP], False, f"failed with {kind[1]} in {kind[0]}"
    if "all" in choice:
        search = query.parse(query.checked(choice.get("q", "")), before, states=verb.states)
        bound = before if search.where.created_before is None else min(before, search.where.created_before)
        bounded = query.Search(search.text, replace(search.where, created_before=bound), search.error)
        ids, more = await query.all_ids(visit.store, bounded, lambda job: _steers(visit, job), limit=CAP)
        return ids, more, f"matching {search.text}" if search.text else "of all jobs"
    try:
        ids = [UUID(text) for text in listed[:CAP]]
    except ValueError:
        raise Mistake("one of these is no id of a job") from None
    if not ids:
        raise Problem(HTTPStatus.BAD_REQUEST, "No job is selected.", "Go back and select some: x selects the marked row.")
    return await _allowed(visit, list(dict.fromkeys(ids))), False, "selected"


async def _allowed(visit: Visit, ids: Sequence[UUID]) -> Sequence[UUID]:
    if visit.who.queues is None:
        return ids
    return [view.id for view in await visit.store.get(ids) if view is not None and _steers(visit, view)]


def _steers(visit: Visit, job: JobView) -> bool:
    return visit.sees(job) and visit.may(Right.STEER, job.queue)
