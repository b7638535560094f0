"""Why a job is not running, and what would change it: for the command line and the dashboard."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.limits import LimitKind, rate_text
from holdfast.core.spans import ago, span
from holdfast.core.states import TERMINAL, Event, State
from holdfast.errors import CENTURY
from holdfast.store.port import SILENT, PartState, WorkerState
from holdfast.throttling import may_be_held, used_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.store.port import (
        AttemptView,
        ChainView,
        EventView,
        JobView,
        LimitView,
        Part,
        QueueView,
        Stats,
        Store,
        TaskCounts,
        WorkerView,
    )

GONE: Final = frozenset({WorkerState.OFFLINE, WorkerState.DISABLED})
WAIT: Final = "wait:"
"""How the part is called that says for which signal a job waits."""
SHOWN_BLOCKERS: Final = 10
REAP_EVERY: Final = 5.0
"""Seconds between two looks of a worker for lapsed leases."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason: a stable code, a sentence, and what would change it."""

    code: str
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that bears on one job, as of about one moment."""

    view: JobView
    now: datetime
    queue: QueueView | None = None
    workers: Sequence[WorkerView] = ()
    blockers: Sequence[ChainView] = ()
    chain: ChainView | None = None
    """Of a step that continued: what has become of it."""
    last: AttemptView | None = None
    """Of a job that is tried again: its last attempt."""
    signals: Sequence[str] = ()
    """The signals that a suspended job waits for."""
    suspended: bool = False
    limits: Sequence[LimitView] = ()
    """Of a ready job: those over it that are used up."""
    stats: Stats
    moment: Callable[[datetime], str]
    """How a time is written."""


async def look(store: Store, view: JobView, moment: Callable[[datetime], str]) -> Situation:
    """Gather what bears on a job."""
    blockers = await store.chains(view.waits_for) if view.waits_for else []
    chain = (await store.chains([view.chain_id or view.id]))[0] if view.continued_by is not None else None
    attempts = await store.attempts(view.id, last=1) if view.attempt and view.state is State.SCHEDULED else []
    suspended = view.state is State.SCHEDULED and _last_event(await store.events(view.id, last=1)) is Event.SUSPEND
    parts = await store.parts(view.id) if suspended else []
    queues = {queue.name: queue for queue in await store.queues()}
    return Situation(
        view=view,
        now=await store.now(),
        queue=queues.get(view.queue),
        workers=[worker for worker in await store.workers() if not worker.manages],
        blockers=[blocker for blocker in blockers if blocker is not None],
        chain=chain,
        last=attempts[-1] if attempts else None,
        signals=[part.name.removeprefix(WAIT) for part in parts if _awaited(part)],
        suspended=suspended,
        limits=used_up(view, await store.limits(view.limits_over)) if may_be_held(view) else [],
        stats=await store.stats(),
        moment=moment,
    )


def reasons(situation: Situation) -> list[Reason]:
    """Return why the job is not running, the decisive reason first."""
    view = situation.view
    if view.state is State.RUNNING:
        return _running(situation)
    if view.finished_at is not None:
        return [_ended(situation) if situation.chain is None else _continued(view, situation.chain)]
    found = []
    if view.state is State.BLOCKED:
        found += _blocked(situation)
    if view.state is State.SCHEDULED:
        found.append(_suspended(situation) if situation.suspended else _scheduled(situation))
    if situation.queue is not None and situation.queue.paused_at is not None:
        found.append(_paused(situation.queue, situation.now))
    found += [_throttled(situation, limit) for limit in situation.limits]
    found += _served(situation)
    if view.start_by is not None:
        left = (view.start_by - situation.now).total_seconds()
        found.append(Reason(code="expires", text=f"if it still waits in {span(max(0.0, left))} it ends as canceled (EXPIRED)"))
    return found


def _ended(situation: Situation) -> Reason:
    view = situation.view
    how = f" with {view.error.code}: {view.error.message}" if view.error is not None else ""
    tried = f"after {_many(view.attempt, 'attempt')} and {_many(view.failures, 'failure')}"
    after = tried if view.attempt else "without ever having run"
    at = situation.moment(view.finished_at) if view.finished_at is not None else "?"
    return Reason(
        code="ended", text=f"it has {view.state}{how}, {after}, at {at}", fix=f"to run it again: holdfast jobs retry {view.id}"
    )


def _continued(view: JobView, chain: ChainView) -> Reason:
    where = f"is {chain.state} at its step {chain.steps}, {chain.step_task}"
    if chain.state not in TERMINAL:
        fix = f"why it is there: holdfast jobs why {chain.step}"
    elif chain.state is State.SUCCEEDED:
        fix = f"to see it: holdfast chains show {chain.id}"
    else:
        fix = f"to have it go on from its last step: holdfast chains retry {chain.id}"
    return Reason(code="continued", text=f"it has {view.state} and continued; its chain {chain.id} {where}", fix=fix)


def _running(situation: Situation) -> list[Reason]:
    view, now = situation.view, situation.now
    who = view.worker_name or view.worker_id
    holder = next((one for one in situation.workers if one.worker.id == view.worker_id), None)
    left = (view.expires_at - now).total_seconds() if view.expires_at is not None else 0.0
    doubt = ""
    if holder is not None and holder.state is WorkerState.OFFLINE:
        doubt = ", which is offline"
    elif holder is not None and (silence := holder.silent(now)) is not None:
        doubt = f", which has given no sign of life for {span(silence)}"
    found = []
    if view.lapsed or left <= 0:
        found.append(
            Reason(
                code="lapsed",
                text=f"its lease lapsed {span(-left)} ago; it is held by worker {who}{doubt}",
                fix=f"a live worker reaps it within about {REAP_EVERY:g} s; start one if none runs: holdfast worker MODULE:APP",
            )
        )
    elif doubt:
        found.append(
            Reason(
                code="holder_gone",
                text=f"it is held by worker {who}{doubt}; its lease lapses in {span(left)}",
                fix=f"nothing to do: a live worker reaps it within about {REAP_EVERY:g} s of that",
            )
        )
    else:
        since = f" for {span((now - view.claimed_at).total_seconds())}" if view.claimed_at is not None else ""
        found.append(
            Reason(
                code="running",
                text=f"it runs on worker {who}{since}, attempt {view.attempt}; its lease holds for {span(left)} at least",
                fix=f"to see what it does: holdfast jobs logs {view.id} --follow",
            )
        )
    if view.cancel_requested:
        found.append(Reason(code="cancel_requested", text="it has been asked to stop; its worker ends it"))
    return found


def _blocked(situation: Situation) -> list[Reason]:
    view = situation.view
    known = {blocker.id: blocker for blocker in situation.blockers}
    found = []
    if len(view.waits_for) > SHOWN_BLOCKERS:
        states = counted([blocker.state for blocker in situation.blockers])
        found.append(Reason(code="blocked", text=f"it waits for {len(view.waits_for)} chains: {states}"))
    for chain in view.waits_for[:SHOWN_BLOCKERS]:
        blocker = known.get(chain)
        if blocker is None:
            found.append(Reason(code="blocked", text=f"it waits for chain {chain}, which is not there any more"))
            continue
        where = f"{blocker.task}, which is {blocker.state}"
        if blocker.steps > 1:
            where = f"{blocker.task}, which is {blocker.state} at its step {blocker.steps}, {blocker.step_task}"
        found.append(
            Reason(
                code="blocked",
                text=f"it waits for chain {chain} ({where})",
                fix=f"see why that one waits: holdfast jobs why {blocker.step}",
            )
        )
    if (rest := len(view.waits_for) - SHOWN_BLOCKERS) > 0:
        fix = f"all of them: holdfast jobs show {view.id} --json"
        found.append(Reason(code="blocked", text=f"… and for {rest} more", fix=fix))
    return found or [Reason(code="blocked", text="all it waited for has ended; a worker opens it within a second")]


def counted(states: Sequence[State | None]) -> str:
    """Return how many there are of each state; `None` is one that is gone."""
    counts = Counter("gone" if state is None else str(state) for state in states)
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _scheduled(situation: Situation) -> Reason:
    view, last, due = situation.view, situation.last, situation.view.run_at
    left = (due - situation.now).total_seconds() if due is not None else 0.0
    how = f"; attempt {last.attempt} ended with {last.error.code}: {last.error.message}" if last and last.error else ""
    at = f"{situation.moment(due)} (in {span(left)})" if due is not None and left > 0 else "now"
    if view.failures:
        budget = view.policy.retry.max_attempts or "endlessly many"
        text = f"it failed {_many(view.failures, 'time')} of {budget} and is tried again at {at}{how}"
        return Reason(code="retrying", text=text, fix=f"see what went wrong: holdfast jobs show {view.id}")
    if left <= 0:
        return Reason(
            code="due",
            text=f"it is due: a worker makes it ready at its next look{how}",
            fix="start one if none runs: holdfast worker MODULE:APP",
        )
    return Reason(code="scheduled", text=f"it is scheduled for {at}{how}")


def _suspended(situation: Situation) -> Reason:
    view = situation.view
    left = None if view.run_at is None else (view.run_at - situation.now).total_seconds()
    # without a time-out it is put off for a century: nobody means that
    timed = left is not None and left < CENTURY / 2
    until = f", until {situation.moment(view.run_at)} (in {span(max(0.0, left))})" if timed and view.run_at and left else ""
    if not situation.signals:
        return Reason(code="asleep", text=f"it sleeps without a slot{until}")
    names = ", ".join(map(repr, situation.signals))
    return Reason(
        code="signal",
        text=f"it waits without a slot for the signal {names}{until}",
        fix=f"emit it: holdfast signal {situation.signals[0]} '{{}}'",
    )


def _last_event(events: Sequence[EventView]) -> Event | None:
    return events[-1].event if events else None


def _awaited(part: Part) -> bool:
    return part.name.startswith(WAIT) and part.state is PartState.IN_PROGRESS


def _paused(queue: QueueView, now: datetime) -> Reason:
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    why = f": {queue.reason}" if queue.reason else ""
    return Reason(
        code="paused",
        text=f"its queue {queue.name!r} was paused {ago(queue.paused_at, now)}{by}{why}",
        fix=f"holdfast queues resume {queue.name}",
    )


def _throttled(situation: Situation, limit: LimitView) -> Reason:
    rule, room = limit.rule, limit.room
    whose = limit.override_by or limit.override is not None
    by = f"; set {ago(limit.override_at, situation.now)}{_by(limit.override_by)}" if whose and limit.override_at else ""
    change = f"holdfast limits set {chosen(limit.name)}"
    if rule is not None and rule.most is not None and limit.running >= rule.most:
        running = f"{limit.running} of {rule.most} run" if rule.most else "it lets none run"
        fix = f"wait until one ends, or raise it: {change} --most {max(1, rule.most * 2)}{_kept(rule, but='most')}"
        return Reason(code="throttled", text=f"the limit of its {named(limit.name)} is used up: {running}{by}", fix=fix)
    left = 0.0 if room is None else room.again(situation.view.policy.cost)
    rate = "" if rule is None or rule.rate is None else f" of {rate_text(rule.rate)}"
    text = f"the rate{rate} of its {named(limit.name)} is used up: there is room in about {span(left)}{by}"
    return Reason(code="throttled", text=text, fix=f"wait, or raise it: {change} --rate N{_kept(rule, but='rate')}")


def _kept(rule: LimitRule | None, *, but: str) -> str:
    """Return what else is to be said again, as setting a limit sets the whole of it."""
    said = {} if rule is None else {name: getattr(rule, name) for name in rule.__struct_fields__ if name != but}
    return "".join(f" --{name} {value:.15g}" for name, value in said.items() if value is not None)


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def named(name: LimitName) -> str:
    """Return which limit it is, in words."""
    if name.kind is LimitKind.KEY:
        return f"scope {name.name!r}" if name.key is None else f"key {name.key!r} in {name.name!r}"
    return f"{name.kind} {name.name!r}"


def chosen(name: LimitName) -> str:
    """Return the options by which the command line names a limit."""
    option = "--scope" if name.kind is LimitKind.KEY else f"--{name.kind}"
    key = "" if name.key is None else f" --key {shlex.quote(name.key)}"
    return f"{option} {shlex.quote(name.name)}{key}"


def longest_wait(stats: Stats, queues: Iterable[QueueView], workers: Iterable[WorkerView]) -> tuple[str, float] | None:
    """Return the queue whose oldest ready job has waited longest, and the seconds; `None`: no job waits for a worker.

    What waits for a person does not count: queues that are paused, and those where all that is ready is completed from outside.
    """
    paused = {queue.name for queue in queues if queue.paused_at is not None}
    outside = completed_outside(workers)
    for_workers = {row.queue for row in stats.tasks if row.counts.get(State.READY, 0) and row.task not in outside}
    waits = [(queue, age) for queue, age in stats.oldest_waiting.items() if queue in for_workers - paused]
    return max(waits, key=lambda wait: wait[1], default=None)


# --- who would run it ---------------------------------------------------------------------------------------------------


def _served(situation: Situation) -> list[Reason]:
    """Say whether any worker would take it; the first hurdle that no worker passes is the reason."""
    view = situation.view
    live = [one for one in situation.workers if one.state not in GONE]
    if any(view.task in _info(one).outside for one in situation.workers):  # also by those that are gone: no other would run it
        return [
            Reason(
                code="outside",
                text="nobody runs it: it waits until a person or another service completes it",
                fix=f"holdfast jobs complete {view.id} RESULT, or holdfast jobs fail {view.id} MESSAGE",
            )
        ]
    if not live:
        gone = [one.state for one in situation.workers]
        disabled = gone.count(WorkerState.DISABLED)
        text = f"no worker is live ({disabled} disabled, {len(gone) - disabled} offline)" if gone else "no worker was ever here"
        fix = "holdfast workers enable ID" if disabled else "start one: holdfast worker MODULE:APP"
        if not any(serves_task(one, view.task) for one in situation.workers):
            fix += f"; if it waits for somebody: holdfast jobs complete {view.id} RESULT"
        return [Reason(code="no_worker", text=text, fix=fix)]
    knowing = [one for one in live if serves_task(one, view.task)]
    if not knowing:
        return [
            Reason(
                code="unknown_task",
                text=f"no live worker knows the task {view.task!r} ({len(live):,} in all)",
                fix="start a worker with the app that declares it, or correct the name: holdfast worker MODULE:APP; "
                f"if it waits for somebody: holdfast jobs complete {view.id} RESULT",
            )
        ]
    serving = [one for one in knowing if serves_queue(one, view.queue)]
    if not serving:
        return [
            Reason(
                code="unserved_queue",
                text=f"no live worker that knows the task ({len(knowing):,} in all) serves the queue {view.queue!r}",
                fix=f"start one that does: holdfast worker MODULE:APP --queues {view.queue}",
            )
        ]
    able = [one for one in serving if set(view.requires) <= set(one.worker.capabilities)]
    if not able:
        return [
            Reason(
                code="missing_capability",
                text=f"no live worker that serves it has {', '.join(view.requires)} ({len(serving):,} in all)",
                fix=f"start one that has: holdfast worker MODULE:APP --capabilities {','.join(view.requires)}",
            )
        ]
    staying = [one for one in able if not one.drains]
    if not staying:
        asked = any(one.draining_at is not None for one in able)  # by a person, who may think better of it
        return [
            Reason(
                code="draining",
                text=f"every worker that could run it drains ({len(able)}): it finishes what it runs and claims nothing more",
                fix="start another: holdfast worker MODULE:APP"
                + (", or let one go on: holdfast workers enable ID" if asked else ""),
            )
        ]
    return _busy(situation, staying)


def _busy(situation: Situation, able: Sequence[WorkerView]) -> list[Reason]:
    view = situation.view
    if view.state is not State.READY or view.paused or situation.limits:
        return []
    ahead = max(0, situation.stats.count(State.READY, queue=view.queue) - 1)
    silent = all(one.silent(situation.now) is not None for one in able)
    if silent:
        text = f"every worker that could run it ({len(able)}) has given no sign of life for more than {SILENT:g} s"
        return [
            Reason(
                code="silent_workers", text=text, fix="look whether they still run; start another: holdfast worker MODULE:APP"
            )
        ]
    slots = sum(one.worker.slots for one in able)
    if all(one.state is WorkerState.BUSY for one in able):
        text = (
            f"every worker that could run it is busy ({_many(slots, 'slot')} of {_many(len(able), 'worker')}); "
            f"ahead of it: up to {_many(ahead, 'job')}"
        )
        return [Reason(code="busy", text=text, fix="wait, or start another worker, or give it a higher --priority")]
    if preferred := _preferred(situation, able):
        return [preferred]
    free = slots - sum(one.running for one in able)
    text = (
        f"nothing holds it back: {_many(free, 'slot')} {'is' if free == 1 else 'are'} free; "
        f"ahead of it: up to {_many(ahead, 'job')}; it should start any moment"
    )
    return [Reason(code="next", text=text)]


def _preferred(situation: Situation, able: Sequence[WorkerView]) -> Reason | None:
    """Say for whom it is left, where somebody who has what it prefers is free."""
    view = situation.view
    waited = (situation.now - (view.run_at or view.created_at)).total_seconds()
    for name, bound in view.prefers.items():
        having = [one for one in able if name in one.worker.capabilities and one.state is not WorkerState.BUSY]
        if waited < bound and having:
            left = span(bound - waited)
            text = f"it prefers a worker with {name}, and one is free: others leave it alone for {left} more"
            return Reason(code="preferred", text=text)
    return None


def unserved(rows: Iterable[TaskCounts], workers: Iterable[WorkerView]) -> list[TaskCounts]:
    """Return those of which no worker takes the task from the queue. Workers that say the same are asked once."""
    offers = set()
    for worker in workers:
        info = _info(worker)
        offers.add((worker.queues, None if info.tasks is None or info.more_tasks > 0 else tuple(info.tasks)))

    def served(row: TaskCounts) -> bool:
        return any((queues is None or row.queue in queues) and (tasks is None or row.task in tasks) for queues, tasks in offers)

    return [row for row in rows if not served(row)]


def completed_outside(workers: Iterable[WorkerView]) -> frozenset[str]:
    """Return the tasks that nobody runs, by what workers say, also those that are gone."""
    return frozenset(task for worker in workers for task in _info(worker).outside)


def serves_task(worker: WorkerView, task: str) -> bool:
    """Tell whether a worker knows a task; one that does not name all it knows may know any."""
    info = _info(worker)
    return info.tasks is None or task in info.tasks or info.more_tasks > 0


def serves_queue(worker: WorkerView, queue: str) -> bool:
    """Tell whether a worker serves a queue; one that does not say which serves all."""
    return worker.queues is None or queue in worker.queues


class _Info(msgspec.Struct, frozen=True):
    """What a worker says of itself, as far as it matters here."""

    tasks: list[str] | None = None
    more_tasks: int = 0
    outside: list[str] = []


def _info(worker: WorkerView) -> _Info:
    """Read what a worker says of itself; any program may register one, so it may be anything."""
    try:
        return msgspec.json.decode(worker.worker.info, type=_Info)
    except msgspec.MsgspecError:
        return _Info()
