"""The checker: what a replay says, and whether what is left at the end is what was promised."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.states import TERMINAL, Event, State
from holdfast.store.replay import replay
from lab.sim.fleet import BUDGET, LEASE, OUTSIDE
from lab.sim.plan import WORKERS, Ill
from lab.sim.replaying import Replay
from lab.sim.telling import shown
from lab.sim.world import EPOCH, RESTS

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.store.port import JobView
    from lab.sim.history import Found, History, Run
    from lab.sim.plan import Plan

SCAN: Final = 5.0 * 1.1
"""Seconds between two looks of a reaper, at most."""
REACTION: Final = 2.0
"""Seconds within which whoever is not frozen does what is due: requests and hints take their time."""
LATE_SLOT: Final = 12.0
"""Seconds after which a slot of the schedule must have been fired: everybody is back by then."""


def check(plan: Plan, history: History, found: Found) -> list[str]:
    """Return what is wrong."""
    replayed = Replay()
    for done in history.in_order():
        replayed.see(done)
    wrong = replayed.wrong
    wrong += _nothing_lost(history, replayed, found)
    wrong += _rows_agree(replayed, found)
    wrong += _ends(replayed, found)
    wrong += _effects(found)
    wrong += _begun_once(history)
    if not any(fault.ill is Ill.CLOCK for fault in plan.faults):
        # a clock that is set ahead ends leases early, which costs a repetition; one that is set back puts things off
        wrong += replayed.early
        wrong += _slots(history, replayed)
        wrong += _in_time(history, replayed)
        wrong += _one_at_a_time(history, replayed)
        if plan.store == "memory" or not any(view.task == "effect" for view in found.jobs.values()):
            # the transaction of a handler keeps every other writer of a file waiting, for longer than a lease is here
            wrong += _lapsed_in_vain(history, replayed)
            wrong += _stopped(history, replayed)
    return wrong


def _nothing_lost(history: History, replayed: Replay, found: Found) -> list[str]:
    """I1: what was acknowledged is there, and has ended by now; so has everything else."""
    wrong = []
    for job_id, order in history.acknowledged.items():
        if job_id not in found.jobs and job_id not in replayed.deleted:
            wrong.append(f"job {shown(job_id)} of order #{order.number} ({order.kind}) was acknowledged, and is gone")
    wrong += [f"job {shown(job_id)} was created, and is gone" for job_id in replayed.jobs if job_id not in found.jobs]
    for view in found.jobs.values():
        if view.state not in TERMINAL:
            wrong.append(f"job {shown(view.id)} ({view.task}) is stuck: {view.state}, attempt {view.attempt}")
        if view.id in replayed.deleted:
            wrong.append(f"job {shown(view.id)} ({view.task}) was deleted, and is there")
        elif view.id not in replayed.jobs:
            wrong.append(f"job {shown(view.id)} ({view.task}) is there, and nobody created it")
    return wrong


def _rows_agree(replayed: Replay, found: Found) -> list[str]:
    """I3, I5, I6: what the rows say is what the answers said, and the event log tells the same story."""
    wrong = []
    for job_id, view in found.jobs.items():
        name = f"job {shown(job_id)} ({view.task})"
        try:
            state = replay(found.events[job_id])
        except ValueError as error:
            wrong.append(f"{name}: its event log cannot be: {error}")
        else:
            if state is not view.state:
                wrong.append(f"{name} is {view.state}, its event log says {state}")
        known = replayed.jobs.get(job_id)
        if known is not None and known.ended is not None and view.state is not known.ended:
            wrong.append(f"{name} is {view.state}, and was said to have {known.ended}")
        if known is not None and view.attempt != known.attempts:
            wrong.append(f"{name} counts {view.attempt} attempts, and was claimed {known.attempts} times")
        if len(found.attempts[job_id]) != view.attempt:
            wrong.append(f"{name} counts {view.attempt} attempts, and {len(found.attempts[job_id])} are written down")
        wrong += [f"{name}: {what}" for what in _budget(view, found.events[job_id])]
    counted = Counter(view.state for view in found.jobs.values())
    for state in State:
        if counted[state] != found.counts[state]:
            wrong.append(f"{found.counts[state]} jobs are counted as {state}, and there are {counted[state]}")
    return wrong


FAILURES: Final = frozenset({Event.RETRY, Event.RETRY_LATER, Event.FAIL, Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL})


def _budget(view: JobView, events: Any) -> list[str]:
    """I5: failures are counted, once each, and stay within the budget."""
    wrong = []
    failures = 0
    for line in events:
        if line.event is Event.REOPEN:
            failures = 0
        elif line.event in FAILURES and "shutting down" not in line.detail:
            failures += 1
            if failures > BUDGET:
                wrong.append(f"it has failed {failures} times, with a budget of {BUDGET}")
            if failures == BUDGET and line.state not in TERMINAL:
                wrong.append(f"it goes on after {failures} failures, with a budget of {BUDGET}")
    # where a cancel won over a failed attempt, the failure is counted and the log says that it was stopped
    stopped = int(bool(events) and events[-1].event is Event.STOP)
    if not failures <= view.failures <= failures + stopped:
        wrong.append(f"it counts {view.failures} failures, and its event log has {failures}")
    return wrong


def _ends(replayed: Replay, found: Found) -> list[str]:
    """Say which jobs ended as nobody has ordered: the handlers do what their args say, and nothing else."""
    wrong = []
    for job_id, view in found.jobs.items():
        known = replayed.jobs.get(job_id)
        if known is None or view.state not in TERMINAL:
            continue
        args, last = json.loads(known.job.args), found.events[job_id][-1].event
        name = f"job {shown(job_id)} ({view.task})"
        if view.state is State.FAILED and last is not Event.BLOCKER_FAIL and view.failures < BUDGET:
            wrong.append(f"{name} has failed for good after {view.failures} failures, with a budget of {BUDGET}")
        if view.state is State.CANCELED and last is not Event.BLOCKER_CANCEL and not known.canceled:
            wrong.append(f"{name} is canceled, and nobody wanted that")
        if last is Event.SUCCEED and view.task != "tick" and view.result != str(args["number"]):
            wrong.append(f"{name} should give {args['number']}, and has given {view.result}")
        if last is Event.SUCCEED and view.failures < min(args.get("failures", 0), BUDGET):
            wrong.append(f"{name} should fail {args['failures']} times first, and {view.failures} failures are counted")
        if last is Event.COMPLETE_OUTSIDE and view.result != OUTSIDE:
            wrong.append(f"{name} was completed with {OUTSIDE}, and has {view.result}")
        if lost := known.parts - found.parts[job_id]:
            wrong.append(f"{name} was told that {', '.join(sorted(lost))} is stored, and it is not")
    return wrong


def _effects(found: Found) -> list[str]:
    """I4: what was done in the transaction that completed a job was done once, and for no other job."""
    wrong = []
    succeeded = [
        view
        for view in found.jobs.values()
        if view.task == "effect" and found.events[view.id][-1].event is Event.SUCCEED  # and not from outside
    ]
    if found.ledger is not None and Counter(found.ledger) != Counter(str(view.id) for view in succeeded):
        wrong.append(f"the ledger has {len(found.ledger)} lines for {len(succeeded)} jobs that have succeeded")
    wanted = Counter(_number(view) for view in succeeded)
    children = Counter(_number(view) for view in found.jobs.values() if view.task == "child")
    if children != wanted:
        wrong.append(f"the effects of orders {sorted(wanted.elements())} are those of {sorted(children.elements())}")
    return wrong


def _number(view: JobView) -> int:
    return int(json.loads(view.args)["number"])


def _begun_once(history: History) -> list[str]:
    """Say which attempts were begun more than once."""
    begun = Counter((run.job_id, run.attempt) for run in history.runs)
    return [
        f"attempt {attempt} of job {shown(job)} was begun {times} times" for (job, attempt), times in begun.items() if times > 1
    ]


def _slots(history: History, replayed: Replay) -> list[str]:
    """Say which minutes have passed without the job of that minute."""
    fired = {slot for _, slot in replayed.fired}
    passed = [EPOCH + timedelta(minutes=number) for number in range(1, int((history.over - LATE_SLOT) // 60) + 1)]
    return [f"the slot {slot} was not fired" for slot in passed if slot not in fired]


def _in_time(history: History, replayed: Replay) -> list[str]:
    """I5: a lease that lapses is reaped within a scan, where a worker is there that nothing has befallen."""
    wrong = []
    for lapse in replayed.lapses:
        done = lapse.done
        at = done.time - (done.now - lapse.expires_at).total_seconds()
        since = max(0.0, at - 2 * LEASE)
        free = [one for one in history.lives if one[0] in WORKERS and history.undisturbed(*one, since, done.time)]
        if free and done.time - at > SCAN + REACTION:
            name = f"job {shown(lapse.reaped.job_id)}"
            wrong.append(
                f"the lease of {name} lapsed at {at:.3f} s and was reaped at {done.time:.3f} s, though {free[0][0]} was there"
            )
    return wrong


def _lapsed_in_vain(history: History, replayed: Replay) -> list[str]:
    """Say which leases lapsed at the cost of a failure although nothing had befallen their holders but an outage for all."""
    wrong = []
    for lapse in replayed.lapses:
        (node, life, claimed_at), done = lapse.holder, lapse.done
        costs = lapse.reaped.write.event in FAILURES and "shutting down" not in str(lapse.reaped.write.error)
        # nor their reaper: one that was frozen while a request of it was on its way knows of no outage
        spared = all(
            history.undisturbed(*one, claimed_at, done.time, alone=True) for one in ((node, life), (done.node, done.life))
        )
        if costs and spared:
            wrong.append(f"job {shown(lapse.reaped.job_id)} has lapsed at {done.time:.3f} s, though {node} was there all along")
    return wrong


def _stopped(history: History, replayed: Replay) -> list[str]:
    """Say which handlers went on although their job was canceled and nothing kept that from them."""
    wrong = []
    runs = {(run.job_id, run.attempt): run for run in history.runs}
    for done, job_id, attempt, (node, life, _) in replayed.asked_to_stop:
        until = done.time + LEASE + REACTION
        run = runs.get((job_id, attempt))
        if run is not None and _over(run, history) > until and history.undisturbed(node, life, done.time - RESTS, until):
            wrong.append(f"job {shown(job_id)} was canceled at {done.time:.3f} s, and its handler on {node} went on")
    return wrong


def _one_at_a_time(history: History, replayed: Replay) -> list[str]:
    """Nobody who is not frozen goes on with a job that another has claimed."""
    wrong = []
    runs: dict[UUID, list[Run]] = {}
    for run in history.runs:
        runs.setdefault(run.job_id, []).append(run)
    for time, node, claimed in replayed.claims:
        for run in runs.get(claimed.job_id, []):
            if run.attempt >= claimed.attempt or run.began > time:
                continue
            if _over(run, history) > time + REACTION and not _was_frozen(run, time, history):
                wrong.append(
                    f"job {shown(claimed.job_id)}: {node} claims attempt {claimed.attempt} at {time:.3f} s, and attempt "
                    f"{run.attempt} still runs on {run.node}"
                )
    return wrong


def _over(run: Run, history: History) -> float:
    if run.ended is not None:
        return run.ended
    return history.lives[run.node, run.life][1]


def _was_frozen(run: Run, until: float, history: History) -> bool:
    return any(node == run.node and begun <= until + REACTION and over >= run.began for node, begun, over in history.frozen)
