"""What is left at the end: nothing is lost, and the rows say what the answers said."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.core.outcome import EXPIRED
from holdfast.core.states import TERMINAL, Event, State
from holdfast.store.replay import replay
from lab.sim.checker.margins import FAILURES, LATE_SLOT, REACTION, SWEEP
from lab.sim.clients import OUTSIDE, REFUSED
from lab.sim.fleet import BUDGET
from lab.sim.ills import WORKERS
from lab.sim.telling import shown
from lab.sim.world import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store.port import JobView
    from lab.sim.history import Found, History
    from lab.sim.plan import Plan
    from lab.sim.replay import Replay
    from lab.sim.replay.known import Known


def check(plan: Plan, history: History, replayed: Replay, found: Found) -> list[str]:
    """Say what is lost, and what the rows tell that was not so."""
    wrong = [*_nothing_lost(plan, history, replayed, found), *_effects(replayed, found)]
    for job_id, view in found.jobs.items():
        name = f"job {shown(job_id)} ({view.task})"
        wrong += [f"{name}: {what}" for what in _budget(view, found.events[job_id])]
        if (known := replayed.jobs.get(job_id)) is not None:
            wrong += [f"{name} {what}" for what in _agrees(known, view, found)]
            wrong += [f"{name} {what}" for what in _as_ordered(known, view, replayed, found)]
        try:
            state = replay(found.events[job_id])
        except ValueError as error:
            wrong.append(f"{name}: its event log cannot be: {error}")
        else:
            if state is not view.state:
                wrong.append(f"{name} is {view.state}, its event log says {state}")
    counted = Counter(view.state for view in found.jobs.values())
    for state in State:
        if counted[state] != found.counts[state]:
            wrong.append(f"{found.counts[state]} jobs are counted as {state}, and there are {counted[state]}")
    return wrong


def _nothing_lost(plan: Plan, history: History, replayed: Replay, found: Found) -> list[str]:
    """I1: what was acknowledged is there, and has ended by now; so has everything else. What is pruned was old enough."""
    wrong = []
    for job_id, order in history.acknowledged.items():
        if job_id not in replayed.jobs and job_id not in replayed.deleted:
            wrong.append(f"job {shown(job_id)} of order #{order.number} ({order.kind}) was acknowledged, and is gone")
    gone = [known for job_id, known in replayed.jobs.items() if job_id not in found.jobs]
    wrong += [f"{shown(known.job)} was created, and is gone" for known in gone if not _prunable(plan, known, replayed)]
    pruned = sum(count for _, count in replayed.pruned)
    if pruned != len(gone):
        wrong.append(f"{pruned} jobs were pruned, and {len(gone)} are gone")
    for view in found.jobs.values():
        if view.state not in TERMINAL:
            wrong.append(f"job {shown(view.id)} ({view.task}) is stuck: {view.state}, attempt {view.attempt}")
        if view.id in replayed.deleted:
            wrong.append(f"job {shown(view.id)} ({view.task}) was deleted, and is there")
        elif view.id not in replayed.jobs:
            wrong.append(f"job {shown(view.id)} ({view.task}) is there, and nobody created it")
    return wrong


def _prunable(plan: Plan, known: Known, replayed: Replay) -> bool:
    """Tell whether the chain of a job had succeeded long enough ago when jobs were pruned."""
    last = replayed.last_step(known.job.id)
    if plan.kept is None or last is None or last.ended is not State.SUCCEEDED or last.ended_at is None:
        return False
    until = last.ended_at + timedelta(seconds=plan.kept)
    return any(until <= at for at, _ in replayed.pruned)


def _agrees(known: Known, view: JobView, found: Found) -> Iterator[str]:
    """I3, I5, I6: what the rows say is what the answers said, and the event log tells the same story."""
    if known.ended is not None and view.state is not known.ended:
        yield f"is {view.state}, and was said to have {known.ended}"
    if view.attempt != known.attempts:
        yield f"counts {view.attempt} attempts, and was claimed {known.attempts} times"
    attempts = found.attempts[view.id]
    if len(attempts) != view.attempt:
        yield f"counts {view.attempt} attempts, and {len(attempts)} are written down"
    late = {one.attempt for one in attempts if one.late}
    if late != known.late:
        yield f"was settled late in the attempts {sorted(known.late)}, and {sorted(late)} are marked"
    if lost := known.parts - found.parts[view.id]:
        yield f"was told that {', '.join(sorted(lost))} is stored, and it is not"
    if unsaid := known.lines - found.lines.get(view.id, known.lines):
        yield f"was told that {sorted(unsaid)} is in its log, and it is not"
    if unmarked := known.marks - {(line.attempt, line.event, line.detail) for line in found.events[view.id]}:
        yield f"was told that {sorted(unmarked)} is in its event log, and it is not"


def _budget(view: JobView, events: Any) -> Iterator[str]:
    """I5: failures are counted, once each, and stay within the budget."""
    failures = 0
    for line in events:
        if line.event is Event.REOPEN:
            failures = 0
        elif line.event in FAILURES and "shutting down" not in line.detail:
            failures += 1
            if failures > BUDGET:
                yield f"it has failed {failures} times, with a budget of {BUDGET}"
            if failures == BUDGET and line.state not in TERMINAL:
                yield f"it goes on after {failures} failures, with a budget of {BUDGET}"
    # where a cancel won over a failed attempt, the failure is counted and the log says that it was stopped
    stopped = int(bool(events) and events[-1].event is Event.STOP)
    if not failures <= view.failures <= failures + stopped:
        yield f"it counts {view.failures} failures, and its event log has {failures}"


def _as_ordered(known: Known, view: JobView, replayed: Replay, found: Found) -> Iterator[str]:
    """Say what ended as nobody has ordered: the handlers do what their args say, and nothing else."""
    args, last = json.loads(known.job.args), found.events[view.id][-1].event
    code = "" if view.error is None else view.error.code
    match view.state:
        case State.FAILED if last is Event.FAIL_OUTSIDE:
            if code != REFUSED:
                yield f"was failed with {REFUSED}, and has {code}"
        case State.FAILED if last is not Event.BLOCKER_FAIL and view.failures < BUDGET:
            yield f"has failed for good after {view.failures} failures, with a budget of {BUDGET}"
        case State.CANCELED if code == EXPIRED:
            if known.start_by is None or view.finished_at is None or view.finished_at < known.start_by:
                yield f"has expired at {view.finished_at}, and was to begin by {known.start_by}"
        case State.CANCELED if last is not Event.BLOCKER_CANCEL and not known.canceled:
            yield "is canceled, and nobody wanted that"
    if last in (Event.BLOCKER_FAIL, Event.BLOCKER_CANCEL) and _all_succeeded(known, replayed):
        yield "has ended for a blocker, and all of them have succeeded"
    if last is Event.COMPLETE_OUTSIDE and view.result != OUTSIDE:
        yield f"was completed with {OUTSIDE}, and has {view.result}"
    if last is not Event.SUCCEED or view.task == "tick":
        return
    if view.result != str(args["number"]):
        yield f"should give {args['number']}, and has given {view.result}"
    wanted = min(args.get("failures", 0), BUDGET)
    if view.task == "again":
        if view.attempt <= wanted or view.failures != known.failures:
            yield f"should put itself off {wanted} times, and has succeeded in attempt {view.attempt}"
    elif view.failures < wanted:
        yield f"should fail {wanted} times first, and {view.failures} failures are counted"
    if view.task == "report" and view.progress != 100:
        yield f"has succeeded with its progress at {view.progress}"


def _all_succeeded(known: Known, replayed: Replay) -> bool:
    return all(replayed.chain_end(one) is State.SUCCEEDED for one in known.job.after)


def _effects(replayed: Replay, found: Found) -> list[str]:
    """I4: what was done in the transaction that completed a job was done once, and for no other job."""
    wrong = []
    done = {job_id: known for job_id, known in replayed.jobs.items() if known.job.task == "effect" and known.effective}
    if found.ledger is not None and Counter(found.ledger) != Counter(map(str, done)):
        wrong.append(f"the ledger has {len(found.ledger)} lines for {len(done)} jobs that have succeeded")
    wanted = Counter(_number(known) for known in done.values())
    children = Counter(_number(known) for known in replayed.jobs.values() if known.job.task == "child")
    if children != wanted:
        wrong.append(f"the effects of orders {sorted(wanted.elements())} are those of {sorted(children.elements())}")
    return wrong


def _number(known: Known) -> int:
    return int(json.loads(known.job.args)["number"])


def check_slots(history: History, replayed: Replay) -> list[str]:
    """Say which minutes have passed without the job of that minute."""
    fired = {slot for _, slot in replayed.fired}
    first = EPOCH.replace(second=0) + timedelta(minutes=1)
    last = EPOCH + timedelta(seconds=history.over - LATE_SLOT)
    passed = [slot for number in range(100) if (slot := first + timedelta(minutes=number)) <= last]
    return [f"the slot {slot} was not fired" for slot in passed if slot not in fired]


def check_expired_in_time(history: History, replayed: Replay, found: Found) -> list[str]:
    """Say which jobs waited on past their time, though a worker was there that could have ended them."""
    wrong = []
    for job_id, view in found.jobs.items():
        known = replayed.jobs.get(job_id)
        if known is None or known.start_by is None or view.finished_at is None or view.attempt > 1:
            continue
        waited_until = found.attempts[job_id][0].claimed_at if view.attempt else view.finished_at
        since, until = ((moment - EPOCH).total_seconds() for moment in (known.start_by, waited_until))
        free = [one for one in history.lives if one[0] in WORKERS and history.undisturbed(*one, max(0.0, since - SWEEP), until)]
        if free and until - since > SWEEP + REACTION:
            name = f"job {shown(job_id)} ({view.task})"
            wrong.append(f"{name} was to begin by {since:.3f} s and waited until {until:.3f} s, though {free[0][0]} was there")
    return wrong
