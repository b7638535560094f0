"""Leases that have lapsed: whether they had to, and what was made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.sim.checker.margins import FAILURES, REACTION, SCAN
from lab.sim.fleet import LEASE
from lab.sim.ills import WORKERS
from lab.sim.telling import shown

if TYPE_CHECKING:
    from lab.sim.history import History
    from lab.sim.replay import Replay
    from lab.sim.replay.known import Lapse


def check(history: History, replayed: Replay) -> list[str]:
    """Say which leases lapsed that their workers could have given back."""
    return [*_never_begun(history, replayed), *_left_behind(history, replayed)]


def check_in_time(history: History, replayed: Replay) -> list[str]:
    """I5: a lease that lapses is reaped within a scan, where a worker is there that nothing has befallen."""
    wrong = []
    for lapse in replayed.lapses:
        at, reaped_at = lapse.at, lapse.done.time
        since = max(0.0, at - 2 * LEASE)
        free = [one for one in history.lives if one[0] in WORKERS and history.undisturbed(*one, since, reaped_at)]
        if free and reaped_at - at > SCAN + REACTION:
            wrong.append(
                f"{_name(lapse)} lapsed at {at:.3f} s and was reaped at {reaped_at:.3f} s, though {free[0][0]} was there"
            )
    return wrong


def _never_begun(history: History, replayed: Replay) -> list[str]:
    """Say which leases lapsed at a cost that nobody began, although their worker was there and could have given them back."""
    begun = {(run.job_id, run.attempt) for run in history.runs}
    return [
        f"{_name(lapse)} was claimed by {lapse.holder.node} at {lapse.holder.claimed_at:.3f} s, never begun nor given back"
        for lapse in replayed.lapses
        if _costs(lapse)
        and (lapse.reaped.job_id, lapse.reaped.attempt) not in begun
        and history.within_reach(*lapse.holder, lapse.done.time)
    ]


def _left_behind(history: History, replayed: Replay) -> list[str]:
    """Say which leases lapsed at a cost although their worker stopped in peace, and could have given them back."""
    wrong = []
    for lapse in replayed.lapses:
        process = lapse.holder.process
        if process in history.signed_off and _costs(lapse):
            died = history.lives[process][1]
            if lapse.at >= died and history.within_reach(*lapse.holder, died - 0.001):
                wrong.append(f"{_name(lapse)} has lapsed: {process[0]} stopped at {died:.3f} s and left it behind")
    return wrong


def check_in_vain(history: History, replayed: Replay) -> list[str]:
    """Say which leases lapsed at the cost of a failure although nothing had befallen their holders but an outage for all."""
    wrong = []
    for lapse in replayed.lapses:
        # nor their reaper: one that was frozen while a request of it was on its way knows of no outage
        concerned = (lapse.holder.process, (lapse.done.node, lapse.done.life))
        since, until = lapse.holder.claimed_at, lapse.done.time
        if _costs(lapse) and all(history.undisturbed(*one, since, until, alone=True) for one in concerned):
            wrong.append(f"{_name(lapse)} has lapsed at {until:.3f} s, though {lapse.holder.node} was there all along")
    return wrong


def _name(lapse: Lapse) -> str:
    return f"the lease of job {shown(lapse.reaped.job_id)} ({lapse.reaped.task})"


def _costs(lapse: Lapse) -> bool:
    return lapse.reaped.write.event in FAILURES and "shutting down" not in str(lapse.reaped.write.error)
