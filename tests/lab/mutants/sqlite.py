"""Bugs of the store on SQLite: in its statements, for the most part."""

from __future__ import annotations

from typing import Any

from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.sqlite import housekeeping, moving, settling
from tests.lab.mutants.lapses import costs_nothing
from tests.lab.mutants.mutant import Mutant

_ARCHIVED = "holdfast_archive WHERE job_id = ? AND token = ?"
_BY_TIME = "ORDER BY scheduled.run_at, scheduled.job_id"
_TOKEN_OF_MANY = "AND lease.token = substr(:tokens, 16 * known.key + 1, 16)"


def _heeds_no_cancel(real: Any) -> Any:
    def broken(writing: Any, ids: Any) -> Any:
        return {job_id: held._replace(cancel_requested=0) for job_id, held in real(writing, ids).items()}

    return broken


def _frees_though_it_failed(_: Any) -> Any:
    return lambda policy, blocker, state: Write(Event.UNBLOCK, 0)  # noqa: ARG005


ON_SQLITE = (
    Mutant("settle.plain shows any token", "sqlite", (), (("settle.plain", _TOKEN_OF_MANY, ""),), seed=55),
    Mutant(
        "extend shows any token",
        "sqlite",
        (),
        (
            ("extend.lengths", _TOKEN_OF_MANY, ""),
            ("extend.leases", " AND token = substr(:tokens, 16 * known.key + 1, 16)", ""),
        ),
        seed=7,
    ),
    Mutant("progress and checkpoint show any token", "sqlite", (), (("extend.held", "token = ?", "? IS NOT NULL"),), seed=55),
    Mutant("reap does not look at the end", "sqlite", (), (("reap.lapsed", "lease.expires_at <= ?", "? IS NOT NULL"),)),
    Mutant("a lapse costs nothing there", "sqlite", ((housekeeping, "expire", costs_nothing),), seed=7),
    Mutant(
        "fire does not look whether it was fired", "sqlite", (), (("fire.advance", "AND next_at = ?", "AND ? IS NOT NULL"),)
    ),
    Mutant("a claim clears one more than it takes", "sqlite", (), (("claim.remove", "seq <= ?", "seq <= ? + 1"),), seed=2),
    Mutant(
        "a claim takes from queues that are paused", "sqlite", (), (("claim.heads", "NOT EXISTS", "1 OR NOT EXISTS"),), seed=9
    ),
    Mutant("any blocker that ends frees its waiter", "sqlite", (), (("moving.waits", "ended = 0", "ended = 2"),)),
    Mutant("no blocker is found when it ends", "sqlite", (), (("moving.waiters", "ended = 0", "ended = 2"),)),
    Mutant("keys have no holder", "sqlite", (), (("moving.key_holder", "key = ?", "key = ? || 'x'"),), seed=3),
    Mutant("a repeated settlement is not known", "sqlite", (), (("settle.settled_before", "token = ?", "token <> ?"),), seed=7),
    Mutant("a cancel that was asked for is forgotten", "sqlite", ((settling, "_leases", _heeds_no_cancel),), seed=17),
    Mutant("what is due is not promoted", "sqlite", (), (("promote.due", "run_at <= ?", "run_at <= ? - 90000000"),)),
    Mutant("a failed blocker frees its waiter", "sqlite", ((moving, "blocker_write", _frees_though_it_failed),), seed=2),
    Mutant(
        "an end in the archive is not known",
        "sqlite",
        (),
        (("settle.settled_before", _ARCHIVED, f"{_ARCHIVED} AND 0"),),
        seed=8,
    ),
    Mutant("late ends are not marked", "sqlite", (), (("settle.succeed", "lease.expires_at <= :now", "0"),), seed=55),
    Mutant("keys are not freed", "sqlite", (), (("moving.free_key", "until IS NULL", "until IS NULL AND 0"),), seed=35),
    Mutant(
        "what is due last is promoted first",
        "sqlite",
        (),
        (("promote.due", _BY_TIME, "ORDER BY scheduled.run_at DESC"),),
        seed=29,
    ),
    Mutant("the newest is claimed first", "sqlite", (), (("claim.take", "ORDER BY ready.seq\n", "ORDER BY ready.seq DESC\n"),)),
)
