"""Limits: what holds and how far it is used, and a form to set them, with a page that asks first."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from holdfast.core.limits import LimitKind, LimitName, LimitRule, limit_named, make_rule, rate_text, rule_text
from holdfast.core.states import State
from holdfast.errors import BadJob
from holdfast.finding import Mistake
from holdfast.server.principal import Right
from holdfast.server.ui.frame import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import LimitView, Stats

SCOPE: Final = "scope"
KINDS: Final = (LimitKind.QUEUE.value, LimitKind.TASK.value, SCOPE)
NUMBERS: Final = ("most", "rate", "per", "burst", "weight")
SUGGESTED: Final = 500
"""Names that the form suggests."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A limit as its row shows it."""

    view: LimitView
    what: str
    """queue, task, scope or key."""
    holds: str
    most: int | None
    """How many may run at once; of a scope that is about each of its keys, so nothing is measured by it."""
    rate: str
    size: float | None
    """How much the bucket of its rate holds."""
    tokens: float | None
    full: bool
    """Whether a job that waits for it alone does not start now."""
    waiting: int | None
    fields: Mapping[str, object]
    """What the form has to say to mean this one."""


async def limits(visit: Visit) -> Response:
    """Show the limits that this one may see; the form has what the address says."""
    stats = await visit.store.stats()
    views = [view for view in await visit.store.limits() if visit.who.reaches(view.name)]
    given = visit.request.query_params
    own = visit.who.queues
    return visit.render(
        "limits.html",
        title="Limits",
        section="limits",
        now=await visit.store.now(),
        limits=[_shown(view, stats) for view in views],
        given=given,
        kinds=KINDS if own is None else KINDS[:1],
        queues=sorted({row.queue for row in stats.tasks if visit.may(Right.LOOK, row.queue)})[:SUGGESTED],
        tasks=sorted({row.task for row in stats.tasks})[:SUGGESTED] if own is None else [],
        rule_text=rule_text,
    )


async def confirm(visit: Visit) -> Response:
    """Ask whether a limit is to be set, or cleared, and say what that changes."""
    given = visit.request.query_params
    name, clears = _named(visit, given), "clear" in given
    rule = None if clears else _rule(given)
    (view,) = await visit.store.limits([name])
    shown = _shown(view, await visit.store.stats())
    title = f"Clear the limit of {_words(name)}?" if clears else f"Set the limit of {_words(name)}?"
    return visit.render(
        "limit.html",
        still=True,
        title=title,
        section="limits",
        limit=shown,
        before=rule_text(view.rule),
        after=_afterwards(view, rule),
        notices=[] if rule is None else _notices(view, rule),
        clears=clears,
        fields={**shown.fields, **{field: given[field] for field in NUMBERS if given.get(field)}},
    )


async def set_limit(visit: Visit) -> Response:
    """Set a limit."""
    name = _named(visit, visit.form or {})
    rule = _rule(visit.form or {})
    await _change(visit, name, rule)
    return visit.go(visit.link("/limits"), f"The limit of {_words(name)} is set: {rule_text(rule)}.")


async def clear_limit(visit: Visit) -> Response:
    """Have what programs declare hold again."""
    name = _named(visit, visit.form or {})
    await _change(visit, name, None)
    (view,) = await visit.store.limits([name])
    return visit.go(visit.link("/limits"), f"The limit of {_words(name)} is cleared: {rule_text(view.rule)} holds.")


async def _change(visit: Visit, name: LimitName, rule: LimitRule | None) -> None:
    try:
        await visit.store.set_limit(name, rule, by=visit.who.name)
    except BadJob as error:
        raise _mistake(error) from None
    visit.told(queues=[name.name] if name.kind is LimitKind.QUEUE else [])


def _named(visit: Visit, given: Mapping[str, str]) -> LimitName:
    """Return the limit that a form names, or refuse who may not set it."""
    kind, text, key = given.get("kind", ""), given.get("name", "").strip(), given.get("key", "")
    if kind not in KINDS:
        raise Mistake(f"{kind!r} has no limits: choose a queue, a task or a scope")
    try:
        # a job may have an empty key, and a form may leave its field for one empty: rows say which is meant
        name = limit_named(**{kind: text}, key=key if key or "one" in given else None)
    except BadJob as error:
        raise _mistake(error) from None
    visit.need(Right.STEER, name.name if name.kind is LimitKind.QUEUE else None)
    if not visit.who.reaches(name):
        raise Problem(
            HTTPStatus.FORBIDDEN,
            f"{visit.who.name} may steer some queues, and the limit of a {kind} reaches beyond them.",
            "Limit one of these queues, or log in with a key that may steer them all.",
        )
    return name


def _rule(given: Mapping[str, str]) -> LimitRule:
    numbers = {field: _number(field, given[field]) for field in NUMBERS if given.get(field, "").strip()}
    most = numbers.pop("most", None)
    if most is not None and most != int(most):
        raise Mistake("most: must be a whole number")
    try:
        rule = make_rule(most=None if most is None else int(most), **numbers)
    except BadJob as error:
        raise _mistake(error) from None
    if rule.nothing:
        raise Mistake("this limits nothing: say how many may run at once, how many may start in a time, or a weight")
    return rule


def _number(field: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise Mistake(f"{field}: {text[:100]!r} is no number") from None
    if not abs(found) < float("inf"):
        raise Mistake(f"{field}: {text[:100]!r} is no number")
    return found


def _mistake(error: BadJob) -> Mistake:
    field = error.path.removeprefix("limit").removeprefix(".")
    return Mistake(f"{field}: {error.reason}" if field else error.reason)


def _shown(view: LimitView, stats: Stats) -> Shown:
    name, rule = view.name, view.rule
    of_all_keys = name.kind is LimitKind.KEY and name.key is None
    room, rated = view.room, rule is not None and rule.rate is not None and not of_all_keys
    return Shown(
        view=view,
        what=_what(name),
        holds=rule_text(rule) + _weight(view),
        most=None if rule is None or of_all_keys else rule.most,
        rate="" if rule is None or rule.rate is None else rate_text(rule.rate),
        size=rule.size if rule is not None and rated else None,
        tokens=max(0.0, rule.size if view.tokens is None else view.tokens) if rule is not None and rated else None,
        full=room is not None and not room.admits(1.0),
        waiting=_waiting(name, stats),
        fields=_fields(name),
    )


def _fields(name: LimitName) -> dict[str, object]:
    own: dict[str, object] = {"kind": SCOPE if name.kind is LimitKind.KEY else name.kind.value, "name": name.name}
    return own if name.key is None else own | {"key": name.key, "one": 1}


def _waiting(name: LimitName, stats: Stats) -> int | None:
    if name.kind is LimitKind.KEY:
        return None  # nobody counts them by key
    return stats.count(State.READY, **{name.kind.value: name.name})


def _what(name: LimitName) -> str:
    return SCOPE if name.kind is LimitKind.KEY and name.key is None else str(name.kind)


def _words(name: LimitName) -> str:
    return f"{_what(name)} {name.name}" if name.key is None else f"key {name.key} in {name.name}"


def _weight(view: LimitView) -> str:
    """Return the weight that stands beside a limit: of a key beside its scope's, of a queue beside what is declared."""
    own = view.override
    return "" if own is None or own.weight is None or own == view.rule else f", weight {own.weight:g}"


def _afterwards(view: LimitView, rule: LimitRule | None) -> str:
    """Return what will hold."""
    before = view.inherited if view.name.key is not None else view.declared
    if rule is None:
        return rule_text(before)
    if rule.weighs_alone and before is not None:
        return f"{rule_text(before)}, {rule_text(rule)}"
    return rule_text(rule)


def _notices(view: LimitView, rule: LimitRule) -> list[str]:
    """Say what is easily overlooked."""
    said = []
    if rule.most == 0:
        said.append("None may run: whatever is under this limit waits until it is raised.")
    elif rule.most is not None and view.running > rule.most:
        said.append(f"{view.running} run now. They run on; the next one starts when fewer than {rule.most} are left.")
    was = view.rule
    if was is not None and was.rate is not None and rule.rate is None and rule.most is not None:
        said.append(f"The rate of {rate_text(was.rate)} holds no more: say it too to keep it.")
    if was is not None and was.most is not None and rule.most is None and rule.rate is not None:
        said.append(f"That {was.most} at most run at once holds no more: say it too to keep it.")
    return said
