"""The checker: what the replay says, and whether what ran and what is left at the end is what was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.sim.checker import lapses, rows, runs
from lab.sim.ills import Ill
from lab.sim.replay import Replay

if TYPE_CHECKING:
    from lab.sim.history import Found, History
    from lab.sim.plan import Plan


def check(plan: Plan, history: History, found: Found) -> list[str]:
    """Return what is wrong."""
    replayed = Replay(history)
    wrong = [*replayed.wrong, *rows.check(plan, history, replayed, found), *runs.check(plan, history, replayed)]
    if not any(fault.ill is Ill.CLOCK for fault in plan.faults):
        # a clock that is set ahead ends leases early, which costs a repetition; one that is set back puts things off
        wrong += replayed.by_clock
        wrong += rows.check_slots(history, replayed)
        wrong += runs.check_by_clock(history, replayed)
        if plan.store == "memory" or not any(known.job.task == "effect" for known in replayed.jobs.values()):
            # the transaction of a handler keeps every other writer of a file waiting, for longer than a lease is here
            wrong += lapses.check(history, replayed)
            wrong += lapses.check_in_time(history, replayed)
            wrong += lapses.check_in_vain(history, replayed)
            wrong += runs.check_canceled(history, replayed)
            wrong += rows.check_expired_in_time(history, replayed, found)
    return wrong
