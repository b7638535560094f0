"""The catalogue: every fault that Holdfast must survive, by its number, with what must hold afterwards.

A test says which rows it proves with `@pytest.mark.row(5)`; `tests/lab/test_catalogue.py` sees to it that none is without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """One fault."""

    key: str
    """Its number, as tests and the command line name it."""
    fault: str
    holds: str
    """What a test of it asserts."""
    packages: tuple[str, ...] = ()
    """Debian packages that some of its tests need, and root with them."""
    remark: str = ""
    """What to know before it is run."""


def _row(key: str, fault: str, holds: str, *packages: str, remark: str = "") -> tuple[str, Row]:
    return key, Row(key, fault, holds, packages, remark)


ROWS: Final = dict(
    [
        _row("1", "a worker is killed after its claim has committed", "its jobs run elsewhere within lease and scan"),
        _row(
            "2",
            "a worker is killed after the effect, before the outcome is written",
            "an effect in the job's transaction counts once",
        ),
        _row("3", "a worker is killed with outcomes still unwritten", "jobs run again, none vanishes"),
        _row("4", "a worker dies, its child processes live", "children take nothing new, and end"),
        _row("5", "a worker is frozen for longer than its lease, then goes on", "every write of it is refused"),
        _row(
            "6",
            "a handler blocks the event loop or holds the interpreter",
            "heartbeats go on, the blocker is named, a lost lease is respected",
        ),
        _row("7", "the heartbeat is fine, the handler hangs", "the time-out ends it, whatever the lease"),
        _row("8", "a reaper against a heartbeat", "one of the two wins, by one guarded statement"),
        _row("9", "a reaper against an outcome", "one of the two wins; what has ended never changes"),
        _row("10", "two reapers, one of them frozen", "a lease is ended once"),
        _row("11", "a commit whose answer is lost", "nothing lost, nothing doubled"),
        _row("11b", "the database is away for longer than the lease", "no failure is counted, nothing is reaped too early"),
        _row("12", "a standby that lacks the tail is promoted", "only the tail is lost; no old token fits a new lease"),
        _row("13", "a connection is half open", "found and replaced in less than a lease"),
        _row(
            "14",
            "a worker or a whole host is cut off from the database",
            "it stops its handlers before the lease ends, others take over, and its late writes are refused",
            "iproute2",
        ),
        _row("15", "handlers take every connection", "heartbeats and outcomes still go through"),
        _row(
            "16",
            "PgBouncer in transaction mode stands between",
            "everything works",
            "pgbouncer",
            remark="(the whole conformance suite on either version of PostgreSQL: more than 2,000 tests)",
        ),
        _row("17", "the connection that listens is silently dead", "jobs are picked up by polling; a metric shows it"),
        _row("18", "the queue of notifications is full, or a hint too large", "no enqueue fails because of a hint"),
        _row("19", "the clock of a worker is off, and steps", "nothing changes", "faketime"),
        _row("20", "the clock of the database jumps", "an early lapse costs a repetition and no stale write", "faketime"),
        _row("21", "daylight saving begins and ends", "schedules fire as documented", "faketime"),
        _row("22", "several schedulers fire the same slot", "one job", "faketime"),
        _row("23", "an old snapshot stops vacuum", "claims stay as quick"),
        _row("24", "deadlocks and serialization failures", "the whole operation is repeated"),
        _row("25", "the disk is full", "a loud error, nothing lost, and it goes on when there is room", "mount"),
        _row("26", "a statement is cancelled half way", "all or nothing"),
        _row(
            "27",
            "SQLite: a busy file, a kill inside a write, a fork, a copy",
            "the file stays whole, and nothing acknowledged is lost",
        ),
        _row(
            "28",
            "Redis is flushed, killed, restarted, frozen, slowed, evicting or full",
            "hints are lost and jobs are not; they are found within the sweep (5 s)",
        ),
        _row(
            "29",
            "Redis tells of a job twice, or of one that somebody runs",
            "the claim in the database decides: nothing runs twice",
        ),
        _row("30", "a job that kills whoever runs it", "an attempt each, then it is put away; neighbours are unharmed"),
        _row("31", "arguments that no store can keep", "refused at enqueue, alike on every store"),
        _row("32", "a result or an error that cannot be stored", "the job ends as documented, and the worker lives"),
        _row("33", "an unknown task, or arguments that no longer fit", "the job waits where it can be seen"),
        _row("34", "cancel, delete or retry against claim or outcome", "exactly one wins"),
        _row("35", "races for a unique key", "at most one live job has it"),
        _row("36", "limits while workers fetch ahead", "never more at once than allowed"),
        _row(
            "38",
            "200 workers meet a store that comes back, or comes and goes",
            "they ask one after the other, workers do not come and go with it, and no failure is counted",
        ),
        _row("39", "a backlog of millions, and low priorities behind it", "claims stay as quick, and nobody waits for ever"),
        _row(
            "41",
            "a worker is asked to stop, twice, or while it claims",
            "unstarted jobs go back at no cost, outcomes are written",
        ),
        _row("42", "connected to a replica", "refused, with what to do"),
        _row(
            "43", "an uploaded archive climbs out, links out, or is a bomb", "nothing outside its folder, and its limits hold"
        ),
    ]
)
"""By number."""


def chosen(text: str) -> list[str]:
    """Return the rows that a list as `5,11` names, all for `all`; raises `ValueError` with the ones that there are."""
    if text == "all":
        return list(ROWS)
    keys = [key.strip() for key in text.split(",") if key.strip()]
    if not keys:
        raise ValueError(f"no row is named; there are {', '.join(ROWS)}")
    if unknown := [key for key in keys if key not in ROWS]:
        raise ValueError(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return keys
