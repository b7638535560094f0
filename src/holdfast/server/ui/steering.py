"""What is done to jobs: to one, to several, or to all that match a search, with a page that asks first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
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
    from collections.abc import Callable, Mapping, Sequence

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import JobView

CAP: Final = 10_000
"""Jobs that one action takes at most."""
ASKED: Final = 1_000
"""Jobs that a question counts, which has to be there at once: of more it says that there are more."""
ASKS_FOR: Final = 0.12
"""Seconds after which a question looks no further."""
ACTS_FOR: Final = 5.0
"""Seconds after which an action looks no further, before it begins."""
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
    back = visit.own(params.get("back", ""))  # it stands in links, and whoever made the address of this page has chosen it
    choice = {name: value for name, value in _choice(params).items() if name != "until"}
    chosen = await _chosen(visit, verb, params.getlist("job"), choice, _Bounds(min(ASKED, CAP), ASKS_FOR))
    fields = [*choice.items()] if "all" in choice or "task" in choice else [("job", str(job_id)) for job_id in chosen.ids]
    views = [view for view in await visit.store.get(chosen.ids[:SHOWN]) if view is not None] if chosen.ids else []
    return visit.render(
        "confirm.html",
        still=True,
        title=f"{verb.asks} {chosen.count}?",
        section="jobs",
        verb=verb,
        chosen=chosen,
        jobs=views,
        cap=CAP,
        fields=fields if chosen.after is None else [*fields, ("until", str(chosen.after))],
        older=visit.link("/jobs/confirm", verb=verb.name, back=back, **choice | {"after": chosen.after}),
        goes_on="after" in choice,
        before=now.isoformat(),
        back=back or visit.link("/jobs", q=params.get("q")),
        now=now,
    )


async def act(visit: Visit) -> Response:
    """Do it, and say what became of it."""
    verb = _verb(visit.field("verb"))
    visit.need(Right.STEER)
    before = visit.field("before")
    try:
        moment = datetime.fromisoformat(before).astimezone(UTC) if before else await visit.store.now()
    except (ValueError, OverflowError):
        raise Mistake(f"{before!r} is no time") from None
    form = visit.form if visit.form is not None else ImmutableMultiDict[str, str]()
    chosen = await _chosen(visit, verb, form.getlist("job"), _choice(form), _Bounds(CAP, ACTS_FOR, moment))
    answers = await steer(visit, verb, chosen.ids)
    said = told(verb, answers)
    if chosen.more:
        said += f". There are more: {len(chosen.ids):,} were taken; do it again for the rest."
    elif chosen.after is not None:
        said += f". The newest {chosen.looked:,} jobs were looked through, and older ones left alone."
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


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The jobs that are meant, and what they have in common."""

    ids: Sequence[UUID]
    what: str
    more: bool = False
    """Whether there are more than these."""
    looked: int = 0
    after: UUID | None = None
    """Where the search for them was given up, having looked through so many jobs; `None`: it was not."""

    @property
    def count(self) -> str:
        """How many they are, in words."""
        more = self.more and bool(self.ids)
        return f"{len(self.ids):,}{'+' if more else ''} {'job' if len(self.ids) == 1 and not more else 'jobs'}"


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How many jobs may be chosen, how many seconds that may take, and before which time they must have been there."""

    most: int
    seconds: float
    before: datetime | None = None
    """`None`: now."""


def _choice(params: Mapping[str, str]) -> dict[str, str]:
    return {name: params[name] for name in ("q", "all", "task", "code", "frame", "after", "until") if name in params}


async def _chosen(visit: Visit, verb: Verb, listed: Sequence[str], choice: Mapping[str, str], bounds: _Bounds) -> _Chosen:
    """Return the jobs that are meant."""
    if "task" in choice:
        kind = (choice["task"], choice.get("code", ""), choice.get("frame", ""))
        ids, more = await failed_of(visit, kind, bounds.before, limit=bounds.most, late=_late(visit, bounds))
        return _Chosen(ids, f"failed with {kind[1]} in {kind[0]}", more)
    if "all" in choice:
        return await _matching(visit, verb, choice, bounds)
    try:
        ids = [UUID(text) for text in listed[:CAP]]
    except ValueError:
        raise Mistake("one of these is no id of a job") from None
    if not ids:
        raise Problem(HTTPStatus.BAD_REQUEST, "No job is selected.", "Go back and select some: x selects the marked row.")
    return _Chosen(await _allowed(visit, list(dict.fromkeys(ids))), "selected")


async def _matching(visit: Visit, verb: Verb, choice: Mapping[str, str], bounds: _Bounds) -> _Chosen:
    """Return the jobs that match a search. An action does not look further than the question did that it answers."""
    before = bounds.before
    search = query.parse(query.checked(choice.get("q", "")), before or await visit.store.now(), states=verb.states)
    if before is not None:  # of a question everything was there before; a store finds sooner what it need not date
        created = search.where.created_before
        where = replace(search.where, created_before=before if created is None else min(before, created))
        search = query.Search(search.text, where, search.error)
    reach = query.Reach(
        bounds.most, _late(visit, bounds), after=query.cursor(choice.get("after")), until=query.cursor(choice.get("until"))
    )
    found = await query.all_ids(visit.store, search, lambda job: _steers(visit, job), reach)
    what = f"matching {search.text}" if search.text else "of all jobs"
    return _Chosen(found.ids, what, found.more, found.looked, found.after)


def _late(visit: Visit, bounds: _Bounds) -> Callable[[], bool]:
    monotonic = visit.ui.context.environment.monotonic
    end = monotonic() + bounds.seconds
    return lambda: monotonic() > end


async def _allowed(visit: Visit, ids: Sequence[UUID]) -> Sequence[UUID]:
    if visit.who.queues is None:
        return ids
    return [view.id for view in await visit.store.get(ids) if view is not None and _steers(visit, view)]


def _steers(visit: Visit, job: JobView) -> bool:
    return visit.sees(job) and visit.may(Right.STEER, job.queue)
