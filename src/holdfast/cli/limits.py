"""`holdfast limits`: how many jobs may run at once and how often they may start, changed while they run."""

from typing import Any

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, actor, run, tell
from holdfast.cli.output import Column
from holdfast.core.limits import LimitKind, LimitName, LimitRule, limit_named, make_rule, rule_text
from holdfast.core.states import State
from holdfast.errors import BadJob
from holdfast.explaining import chosen
from holdfast.finding import Mistake
from holdfast.store.port import LimitView, Stats, Store
from holdfast.throttling import change_of

COLUMNS = (
    Column("limit"),
    Column("key"),
    Column("holds", shrinks=True),
    Column("running", right=True),
    Column("tokens", right=True),
    Column("waiting", right=True),
    Column("set", goes=True),
)


def ls(*, common: Common = COMMON) -> None:
    """List the limits: what holds, how many run under each, what is left of its rate, and who has set it.

    Example: holdfast limits ls

    Up to 1,000, those of queues, tasks and scopes first among them; of single keys those that were set and those that jobs run
    with. What is not set holds as the programs declare it. Waiting: the ready jobs of a queue or task.
    """

    async def work(store: Store) -> None:
        now, stats = await store.now(), await store.stats()
        views = await store.limits()
        if common.as_json:
            output.print_json({"limits": [limit_json(view, stats) for view in views]})
            return
        rows = [
            (
                f"{'scope' if view.name.kind is LimitKind.KEY else view.name.kind} {view.name.name}",
                view.name.key,
                rule_text(view.rule) + _weight(view),
                _running(view),
                None if view.tokens is None else f"{view.tokens:.1f}",
                waiting(view.name, stats),
                "declared" if view.override is None else f"{output.when(view.override_at, now)} {_by(view)}".strip(),
            )
            for view in views
        ]
        output.print_table(COLUMNS, rows, empty="no limits: nobody has declared or set one")

    run(common, work)


def set_limit(
    *,
    queue: str | None = None,
    task: str | None = None,
    scope: str | None = None,
    key: str | None = None,
    most: int | None = None,
    rate: float | None = None,
    per: float = 1.0,
    burst: float | None = None,
    weight: float | None = None,
    common: Common = COMMON,
) -> None:
    """Set a limit, whatever programs declare. What runs already counts, and runs on.

    Example: holdfast limits set --task mail.send --most 4 --rate 100 --per 60

    The whole of it: what is not given holds no more. It holds for every claim from now on, on all workers.

    Parameters
    ----------
    queue
        The limit of all jobs of this queue.
    task
        The limit of all jobs of this task.
    scope
        The limit of each key of this scope. A task that names no scope for its keys has its own name for one.
    key
        With --scope: of this key alone.
    most
        So many run at once.
    rate
        So many start, or so much of their cost, in --per seconds.
    per
        Seconds, for --rate.
    burst
        How much of the rate may be used at once. What flows in within a second, where nothing is said, and at least 1.
    weight
        With --queue: how much its turn weighs among the other queues of a worker; what is declared for it goes on to hold. With
        --key: how much its turn weighs among the other keys of its queue.
    """
    name = _named(queue, task, scope, key)
    try:
        rule = make_rule(most=most, rate=rate, per=per, burst=burst, weight=weight)
    except BadJob as error:
        raise _mistake(error) from None
    if rule.nothing:
        raise Mistake(
            "say what is to hold: --most, --rate or --weight. What programs declare holds again by: "
            f"holdfast limits clear {chosen(name)}"
        )

    async def work(store: Store) -> None:
        before = (await store.limits([name]))[0]
        after = await _change(common, store, name, rule)
        if common.as_json:
            output.print_json(limit_json(after, await store.stats()))
            return
        print(output.harmless(f"{name}: {rule_text(rule)}"))
        for note in (_dropped(before, rule), *await _doubts(store, name)):
            if note:
                output.note(output.harmless(note))

    run(common, work)


def clear(
    *,
    queue: str | None = None,
    task: str | None = None,
    scope: str | None = None,
    key: str | None = None,
    common: Common = COMMON,
) -> None:
    """Take back what was set about a limit: what programs declare holds again.

    Example: holdfast limits clear --task mail.send

    Parameters
    ----------
    queue
        The limit of this queue.
    task
        The limit of this task.
    scope
        The limit of each key of this scope.
    key
        With --scope: of this key alone.
    """
    name = _named(queue, task, scope, key)

    async def work(store: Store) -> None:
        before = (await store.limits([name]))[0]
        after = await _change(common, store, name, None)
        if common.as_json:
            output.print_json(limit_json(after, await store.stats()) | {"was_set": before.override is not None})
            return
        holds = f"{rule_text(after.rule)}{_whence(after)}"
        print(output.harmless(f"{name}: {holds}" if before.override is not None else f"{name} was not set: {holds}"))

    run(common, work)


async def _change(common: Common, store: Store, name: LimitName, rule: LimitRule | None) -> LimitView:
    try:
        await store.set_limit(name, rule, by=actor())
    except BadJob as error:
        raise _mistake(error) from None
    await tell(common, change_of(name))
    return (await store.limits([name]))[0]


def _named(queue: str | None, task: str | None, scope: str | None, key: str | None) -> LimitName:
    if [queue, task, scope].count(None) != 2:  # noqa: PLR2004  all but one
        raise Mistake("which limit? Name one: --queue NAME, --task NAME, or --scope NAME [--key KEY]")
    if key is not None and scope is None:
        raise Mistake("--key is one of a scope: name it with --scope")
    try:
        return limit_named(queue=queue, task=task, scope=scope, key=key)
    except BadJob as error:
        raise _mistake(error) from None


def _mistake(error: BadJob) -> Mistake:
    """Return what is wrong in words of the command line."""
    option = error.path.removeprefix("limit").removeprefix(".")
    return Mistake(f"--{option}: {error.reason}" if option else error.reason)


def limit_json(view: LimitView, stats: Stats) -> dict[str, Any]:
    """Return a limit as its JSON shows it."""
    name = {"kind": view.name.kind, "name": view.name.name, "key": view.name.key}
    rule = None if view.rule is None else output.fields(view.rule)
    return name | {"rule": rule, "waiting": waiting(view.name, stats)} | (output.fields(view) | name)


def waiting(name: LimitName, stats: Stats) -> int | None:
    """Return how many ready jobs a limit is over; `None`: of keys nobody counts them."""
    match name.kind:
        case LimitKind.QUEUE:
            return stats.count(State.READY, queue=name.name)
        case LimitKind.TASK:
            return stats.count(State.READY, task=name.name)
        case _:
            return None


def _running(view: LimitView) -> str:
    most = None if view.rule is None or (view.name.kind is LimitKind.KEY and view.name.key is None) else view.rule.most
    return str(view.running) if most is None else f"{view.running}/{most}"


def _weight(view: LimitView) -> str:
    """Return the weight that stands beside a limit: of a key beside its scope's, of a queue beside what is declared."""
    own = view.override
    return "" if own is None or own.weight is None or own == view.rule else f", weight {own.weight:g}"


def _by(view: LimitView) -> str:
    return f"by {view.override_by}" if view.override_by else ""


def _whence(view: LimitView) -> str:
    if view.rule is None:
        return ""
    return ", as its scope has it" if view.name.key is not None else ", as declared"


def _dropped(before: LimitView, rule: LimitRule) -> str:
    """Say what held before and does not any more because it was not said again."""
    was = before.override or (None if rule.weighs_alone else before.declared)
    if was is None:
        return ""
    said = {name: getattr(was, name) for name in ("most", "rate", "weight") if getattr(rule, name) is None}
    lost = [f"--{name} {value:g}" for name, value in said.items() if value is not None]
    return f"it said {rule_text(was)} before; to keep the rest of it, say it too: {' '.join(lost)}" if lost else ""


async def _doubts(store: Store, name: LimitName) -> list[str]:
    """Say it where a name is perhaps misspelt: a limit may be set before the first job is there."""
    if name.kind is LimitKind.KEY:
        return []
    rows = (await store.stats()).tasks
    known = {row.queue for row in rows} if name.kind is LimitKind.QUEUE else {row.task for row in rows}
    return [] if name.name in known else ["it has no jobs yet: is the name right? The limit holds for those to come"]
