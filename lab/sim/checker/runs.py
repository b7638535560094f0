"""Handlers: how many ran at once, what they knew, and whether they stopped when they had to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.core.outcome import TIMEOUT
from lab.sim.checker.margins import GRACE, PROMPT, REACTION
from lab.sim.fleet import LEASE
from lab.sim.telling import shown
from lab.sim.world import RESTS

if TYPE_CHECKING:
    from uuid import UUID

    from lab.sim.history import History, Run
    from lab.sim.plan import Plan
    from lab.sim.replay import Replay


def check(plan: Plan, history: History, replayed: Replay) -> list[str]:
    """Say what handlers did that they must not, whatever the store's clock."""
    return [
        *_begun_once(history),
        *_never_begun(history, replayed),
        *_recalled(history, replayed),
        *_within_slots(plan, history),
        *_within_room(plan, history, replayed),
        *_over_when_settled(history, replayed),
        *_timed_out(history, replayed),
    ]


def check_by_clock(history: History, replayed: Replay) -> list[str]:
    """Say which handlers went on though their lease was over."""
    return [*_one_at_a_time(history, replayed), *_stops_in_time(history, replayed)]


def _begun_once(history: History) -> list[str]:
    """Say which attempts were begun more than once."""
    begun = Counter((run.job_id, run.attempt) for run in history.runs)
    return [
        f"attempt {attempt} of job {shown(job)} was begun {times} times" for (job, attempt), times in begun.items() if times > 1
    ]


def _never_begun(history: History, replayed: Replay) -> list[str]:
    """Say which jobs were begun although they had waited for too long when they were claimed."""
    return [
        f"job {shown(run.job_id)} was begun at {run.began:.3f} s on {run.node}, and claimed after it had expired"
        for run in history.runs
        if (run.job_id, run.attempt) in replayed.overdue
    ]


def _recalled(history: History, replayed: Replay) -> list[str]:
    """Say which attempts began without what earlier ones had got done."""
    return [
        f"attempt {run.attempt} of job {shown(run.job_id)} began without {', '.join(sorted(missing))}, which was done before"
        for run in history.runs
        if (missing := replayed.to_recall.get((run.job_id, run.attempt), frozenset()) - run.parts)
    ]


def _within_slots(plan: Plan, history: History) -> list[str]:
    """Say where more handlers ran at once than a worker has slots."""
    by_process: dict[tuple[str, int], list[Run]] = {}
    for run in history.runs:
        by_process.setdefault((run.node, run.life), []).append(run)
    for (node, _), runs in by_process.items():
        for run in runs:
            at_once = sum(other.began <= run.began < _over(other, history) for other in runs)
            if at_once > plan.slots:
                return [f"{at_once} handlers run on {node} at {run.began:.3f} s, which has {plan.slots} slots"]
    return []


def _within_room(plan: Plan, history: History, replayed: Replay) -> list[str]:
    """Say where a worker that knows all its leases has claimed more than it can run or may prefetch."""
    return [
        f"{done.node} holds {held} leases at {done.time:.3f} s, with {plan.slots} slots and a prefetch of {plan.prefetch}"
        for done, held in replayed.loads
        if held > plan.slots + plan.prefetch
        and history.undisturbed(done.node, done.life, max(0.0, done.time - 20.0), done.time)
    ]


def _over_when_settled(history: History, replayed: Replay) -> list[str]:
    """Say which attempts were settled by their worker while their handler ran: another may begin at once."""
    runs = _by_attempt(history)
    return [
        f"attempt {attempt} of job {shown(job_id)} is settled at {done.time:.3f} s, and its handler still runs on {run.node}"
        for done, job_id, attempt, _ in replayed.endings
        if (run := runs.get((job_id, attempt))) is not None
        and run.began <= done.time < _over(run, history)
        and not _stubborn(run, replayed)
    ]


def _timed_out(history: History, replayed: Replay) -> list[str]:
    """Say which handlers ran past their time-out, kept their job past it and the grace, or were stopped before it."""
    wrong = []
    codes = {(job_id, attempt): (done, code) for done, job_id, attempt, code in replayed.endings}
    for run in history.runs:
        known = replayed.jobs.get(run.job_id)
        if known is None or (timeout := known.job.policy.timeout) is None:
            continue
        done, code = codes.get((run.job_id, run.attempt), (None, ""))
        over, name = _over(run, history), f"attempt {run.attempt} of job {shown(run.job_id)} on {run.node}"
        deadline = run.began + timeout
        if code == TIMEOUT and min(over, history.over if done is None else done.time) < deadline - 0.001:
            wrong.append(f"{name} is stopped by its time-out of {timeout:g} s after {over - run.began:.3f} s")
        limit, end = deadline + REACTION, over
        if _stubborn(run, replayed):  # what counts is when its worker lets go of the job
            end = run.began if done is None else done.time
            limit += GRACE
        if end > limit and history.undisturbed(run.node, run.life, run.began, limit):
            wrong.append(f"{name} goes on until {end:.3f} s, with a time-out at {deadline:.3f} s")
    return wrong


def _one_at_a_time(history: History, replayed: Replay) -> list[str]:
    """Say who went on with a job that another had claimed, though he was not frozen."""
    wrong = []
    runs: dict[UUID, list[Run]] = {}
    for run in history.runs:
        runs.setdefault(run.job_id, []).append(run)
    for time, node, claimed in replayed.claims:
        for run in runs.get(claimed.job_id, []):
            if run.attempt >= claimed.attempt or run.began > time or _stubborn(run, replayed):
                continue
            if _over(run, history) > time + REACTION and not history.stood_still(run.node, run.began, time + REACTION):
                wrong.append(
                    f"job {shown(claimed.job_id)}: {node} claims attempt {claimed.attempt} at {time:.3f} s, and attempt "
                    f"{run.attempt} still runs on {run.node}"
                )
    return wrong


def _stops_in_time(history: History, replayed: Replay) -> list[str]:
    """Say which handlers ran on after their lease had lapsed, on a worker that was not frozen: its own clock tells it."""
    wrong = []
    runs = _by_attempt(history)
    for lapse in replayed.lapses:
        run = runs.get((lapse.reaped.job_id, lapse.reaped.attempt))
        if run is None or lapse.reaped.task == "effect" or _stubborn(run, replayed):  # a commit under way is seen to its end
            continue
        since = max(lapse.at, run.began)
        over = _over(run, history)
        if over > since + PROMPT and not history.stood_still(run.node, run.began, since + REACTION):
            wrong.append(
                f"the lease of job {shown(run.job_id)} lapsed at {lapse.at:.3f} s, and its handler on {run.node} ran from "
                f"{run.began:.3f} s until {over:.3f} s"
            )
    return wrong


def check_canceled(history: History, replayed: Replay) -> list[str]:
    """Say which handlers went on although their job was canceled and nothing kept that from them."""
    wrong = []
    runs = _by_attempt(history)
    for done, job_id, attempt, (node, life, _) in replayed.asked_to_stop:
        until = done.time + LEASE + REACTION
        run = runs.get((job_id, attempt))
        if run is None or _over(run, history) <= until or _stubborn(run, replayed):
            continue
        if history.undisturbed(node, life, done.time - RESTS, until):
            wrong.append(f"job {shown(job_id)} was canceled at {done.time:.3f} s, and its handler on {node} went on")
    return wrong


def _by_attempt(history: History) -> dict[tuple[UUID, int], Run]:
    return {(run.job_id, run.attempt): run for run in history.runs}


def _over(run: Run, history: History) -> float:
    if run.ended is not None:
        return run.ended
    return history.lives[run.node, run.life][1]


def _stubborn(run: Run, replayed: Replay) -> bool:
    """Tell whether a handler does not stop when it is asked to: nobody promises that it does."""
    known = replayed.jobs.get(run.job_id)
    return known is None or known.job.task == "stubborn"
