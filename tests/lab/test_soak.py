"""The soak: a short one on each store balances its books, and books that were cooked are found out."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from holdfast.core.job import Policy
from holdfast.core.states import Event, State
from holdfast.store.port import EventView, JobView
from holdfast.store.port.requests import Part, PartState
from lab import page
from lab.faults.catalogue import ROWS
from lab.soak import needs
from lab.soak.blows import Blow, Stall
from lab.soak.books import STEPS, Found, Job, balance, notes
from lab.soak.diary import (
    ASKED,
    CANCEL,
    COMPLETE,
    FAILED,
    HELD,
    KEPT,
    REFUSED,
    TAKEN,
    TRIED,
    UNDONE,
    Asked,
    Diary,
    Told,
)
from lab.soak.faults.table import FAULTS, possible
from lab.soak.lapses import Lapse
from lab.soak.logs import admitted, complaints, unlearnt
from lab.soak.proxy import Way
from lab.soak.pulse import stalls
from lab.soak.reading import job_of
from lab.soak.recovery import ENOUGH, LONGEST, RECONNECTING, Recovery, recoveries, too_long
from lab.soak.telling import faults_table, figures

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


# -- short ones ------------------------------------------------------------------------------------------------------------


def command(store: str, *options: str) -> list[str]:
    seed = os.environ.get("FAULTS_SEED") or str(random.randrange(2**32))
    return [sys.executable, "-m", "lab.soak", "--store", store, "--seed", seed, "--workers", "2", "--rate", "60", *options]


@pytest.mark.parametrize(("store", "rows"), [("sqlite", "1,27,41"), ("postgres", "1,11,24,26,41")])
def test_a_short_soak_balances_its_books(store: str, rows: str, tmp_path: Path) -> None:
    figures = tmp_path / "soak.json"
    options = ["--minutes", "0.06", "--every", "0.5", "--only", rows, "--json", str(figures)]

    run = subprocess.run(command(store, *options), cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    assert "BALANCED" in run.stdout
    assert "./dev soak --minutes 0.06" in run.stdout
    (outcome,) = json.loads(figures.read_text())
    assert outcome["ok"]
    assert all(line["ok"] for line in outcome["books"])
    assert outcome["faults"]["all"]["injected"] == outcome["faults"]["all"]["survived"] > 0
    assert outcome["jobs"] > 50
    assert outcome["notes"]["acknowledged"] > 50
    assert str(ROOT) not in figures.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_an_interrupted_soak_balances_its_books(store: str) -> None:
    with subprocess.Popen(
        command(store, "--minutes", "60", "--every", "2"), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if " faults" in line:  # the first line of status
                run.send_signal(signal.SIGINT)
                break
        lines += run.stdout.readlines()
    assert run.returncode == 0, "".join(lines)
    assert any("interrupted" in line for line in lines)


def test_every_fault_names_rows_of_the_catalogue() -> None:
    assert {row for fault in FAULTS for row in fault.rows.split()} <= set(ROWS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    with pytest.raises(ValueError, match="no fault of row 26 on sqlite; there are 1, "):
        possible("sqlite", "26")
    with pytest.raises(ValueError, match="no fault of row 99 on postgres; there are 1, "):
        possible("postgres", "1, 99")
    assert {fault.name for fault in possible("sqlite", "30, 41")} >= {"a job that kills its worker", "ask a worker to stop"}


def test_the_help_begins_with_a_sentence_for_people() -> None:
    run = subprocess.run([sys.executable, "-m", "lab.soak", "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "\n\nRun producers and workers under faults" in run.stdout
    assert "`" not in run.stdout


# -- books -----------------------------------------------------------------------------------------------------------------


def job(job_id: str, kind: str, state: State = State.SUCCEEDED, attempt: int = 1, **more: Any) -> Job:
    begun = [(number, 10.0 * number) for number in range(1, attempt + 1)]
    fields: dict[str, Any] = {
        "created": 1.0,
        "claims": tuple(begun),
        "ended": 10.0 * attempt + 1.0,
        "result": f"attempt {attempt}",
    } | more
    return Job(job_id, kind, state, attempt, **fields)


def world() -> tuple[Told, Found]:
    """A small run in which everything adds up."""
    waited: dict[str, Any] = {"attempt": 0, "claims": (), "result": None}
    jobs = [
        job("short", "short"),
        job("repeated", "short", attempt=3, failures=2, budget=25, costs=("LEASE_EXPIRED",) * 2),
        job("stumbled", "flaky", attempt=2, failures=1, budget=25, costs=("NOT_YET",)),
        job("report", "report", attempt=3, failures=2, costs=("ConnectionError", "LEASE_EXPIRED"), parts=(1, 1, 2, 3), said=3),
        job("long report", "report", attempt=2, parts=(1, 1, 1, 1), said=1),
        # the second attempt was cut off when it had written the last part, and before it could speak of it
        job("silent report", "report", attempt=3, parts=(1, 1, 1, 2), said=1),
        job("deposit", "deposit", attempt=2, amount=7),
        job("confirm", "confirm"),
        job("check", "check", chain="check", result=None),
        job("charge", "charge", chain="check", amount=5, result=None),
        job("ship", "ship", chain="check"),
        job("part", "part"),
        job("total", "total", after=("part",), claims=((1, 12.0),), ended=13.0),
        job("first user", "user", key="user:1"),
        job("second user", "user", key="user:1", created=20.0, claims=((1, 21.0),), ended=22.0),
        job("third user", "user", State.CANCELED, key="user:2", replaced_by="fourth user", ended=12.0, **waited),
        job("fourth user", "user", key="user:2", created=12.0, claims=((1, 13.0),), ended=14.0),
        job("canceled", "nap", State.CANCELED, result=None, asked_to_stop=True),
        job("maybe canceled", "nap", State.CANCELED, result=None, asked_to_stop=True),
        job("too late", "nap"),
        job("undisturbed", "nap"),
        job("completed", "nap", outside=True, result="outside"),
        job("forgotten", "approve", State.CANCELED, overdue=True, ended=7.1, **waited),
        job("mother", "mother"),
        job("son", "son", parent="mother"),
        job("approve", "approve", attempt=0, outside=True, result="outside"),
        job("line 1", "line", claims=((1, 5.0),)),
        job("line 2", "line", claims=((1, 6.0),)),
        job("poison", "poison", State.FAILED, attempt=2, failures=2, budget=2, result=None, costs=("LEASE_EXPIRED",) * 2),
        job("maybe", "short"),
        job("tick 1", "tick", slot=2.0),
        job("tick 2", "tick", slot=4.0),
    ]
    told = Told(
        acknowledged={one.id: one.kind for one in jobs if one.id not in ("maybe", "charge", "ship", "son", "tick 1", "tick 2")},
        unknown={"maybe": "short", "never": "short"},
        undone={"undone": "confirm"},
        lines=[["line 1", "line 2"]],
        cancels={"canceled": Asked(1, 1, 0), "maybe canceled": Asked(2, 0, 1), "too late": Asked(1, 0, 1)},
        completions={"completed": Asked(1, 1, 0), "approve": Asked(1, 0, 0), "forgotten": Asked(1, 0, 1)},
    )
    found = Found(
        jobs={one.id: one for one in jobs},
        counts=dict(Counter(one.state for one in jobs)),
        ledger=[("deposit", 2, 7), ("charge", 1, 5)],
        orders=["confirm"],
        slots=[2.0, 4.0],
    )
    return told, found


def wrong(told: Told, found: Found) -> set[str]:
    return {line.what for line in balance(told, found) if not line.ok}


def lose(found: Found) -> None:
    del found.jobs["short"]
    found.counts[State.SUCCEEDED] -= 1


def stay(found: Found) -> None:
    found.jobs["short"].state = State.RUNNING
    found.counts[State.SUCCEEDED] -= 1
    found.counts[State.RUNNING] = 1


def fail(found: Found) -> None:
    found.jobs["short"].state = State.FAILED
    found.counts[State.SUCCEEDED] -= 1
    found.counts[State.FAILED] += 1


def smuggle(found: Found) -> None:
    found.jobs["nobody's"] = job("nobody's", "short")
    found.counts[State.SUCCEEDED] += 1


def come_back(found: Found) -> None:
    found.jobs["undone"] = job("undone", "confirm")
    found.orders.append("undone")
    found.counts[State.SUCCEEDED] += 1


def write_late(found: Found) -> None:
    found.jobs["repeated"].result = "attempt 2"


def lose_a_step(found: Found) -> None:
    del found.jobs["ship"]
    found.counts[State.SUCCEEDED] -= 1


def step_twice(found: Found) -> None:
    found.jobs["ship again"] = job("ship again", "ship", chain="check")
    found.counts[State.SUCCEEDED] += 1


def fire_twice(found: Found) -> None:
    found.jobs["tick 2"].slot = 2.0


def fire_too_much(found: Found) -> None:
    found.jobs["tick 3"] = job("tick 3", "tick", slot=6.0)
    found.counts[State.SUCCEEDED] += 1


def two_of_a_key(found: Found) -> None:
    found.jobs["second user"].claims = ((1, 10.2),)


def one_child_more(found: Found) -> None:
    found.jobs["another son"] = job("another son", "son", parent="mother")
    found.counts[State.SUCCEEDED] += 1


def stop(job_id: str, **more: Any) -> Callable[[Found], None]:
    """Return what ends a job as canceled that had succeeded."""

    def cook(found: Found) -> None:
        put(job_id, state=State.CANCELED, result=None, **more)(found)
        found.counts[State.SUCCEEDED] -= 1
        found.counts[State.CANCELED] += 1

    return cook


def put(job_id: str, **values: Any) -> Callable[[Found], None]:
    """Return what changes a job."""

    def cook(found: Found) -> None:
        for name, value in values.items():
            setattr(found.jobs[job_id], name, value)

    return cook


def lapse(*blows: Blow) -> Callable[[Found], None]:
    """Return what makes a lease of the first worker lapse at a cost, with these faults around it."""

    def cook(found: Found) -> None:
        found.jobs["repeated"].lapses = (Lapse("worker-1.1", 10.0, 19.0),)
        found.blows += blows

    return cook


UNASKED = {"jobs canceled that nobody had canceled"}
STALE_PARTS = {"parts and progress of another attempt: stale writes"}
COOKED: dict[str, tuple[Callable[[Found], Any], set[str]]] = {
    "a job is missing": (
        lose,
        {"acknowledged jobs that are in the store", "acknowledged jobs that have ended"},
    ),
    "a job does not end": (stay, {"acknowledged jobs that have ended", "jobs left that have not ended"}),
    "a job is nobody's": (smuggle, {"jobs that nobody can explain"}),
    "a job came of what was rolled back": (come_back, {"jobs whose transaction was rolled back"}),
    "a job failed": (fail, {"jobs that ended as they should not"}),
    "the count is off": (lambda found: found.counts.update({State.SUCCEEDED: 1}), {"succeeded by the store's count"}),
    "a line of the ledger is missing": (
        lambda found: found.ledger.pop(),
        {"effects of succeeded jobs in the ledger", "sum of the ledger"},
    ),
    "a line of the ledger is doubled": (
        lambda found: found.ledger.append(("deposit", 2, 7)),
        {"effects written more than once", "sum of the ledger"},
    ),
    "a line of the ledger is nobody's": (
        lambda found: found.ledger.append(("poison", 1, 1)),
        {"effects of jobs that did not succeed", "sum of the ledger"},
    ),
    "an effect is of a stale attempt": (
        lambda found: found.ledger.__setitem__(0, ("deposit", 1, 7)),
        {"effects of another attempt than the last: stale writes"},
    ),
    "a result is of a stale attempt": (write_late, {"results of another attempt than the last: stale writes"}),
    "a step of a chain is missing": (lose_a_step, {"chains with each of their steps"}),
    "a step of a chain came twice": (step_twice, {"steps of chains that came twice"}),
    "a waiter began too early": (
        lambda found: setattr(found.jobs["total"], "claims", ((1, 3.0),)),
        {"waiters begun before what they wait for had ended"},
    ),
    "a slot is doubled": (
        fire_twice,
        {"slots of the schedule that have a job", "slots of the schedule with more than one job"},
    ),
    "a slot never was": (fire_too_much, {"jobs of no slot"}),
    "a key has two jobs": (two_of_a_key, {"unique keys with two jobs at once"}),
    "a job overtakes": (
        lambda found: setattr(found.jobs["line 2"], "claims", ((1, 4.0),)),
        {"jobs begun before one that stood ahead in its line"},
    ),
    "a row has no job": (lambda found: found.orders.append("lost"), {"rows of the user's own that have their job"}),
    "a job has no row": (lambda found: found.orders.clear(), {"jobs of a user's transaction that have their row"}),
    "a child too many": (one_child_more, {"handlers with too many or too few children"}),
    "a log tells another story": (
        lambda found: setattr(found.jobs["short"], "wrong", "it leads to ready"),
        {"event logs that lead to the state of the row"},
    ),
    "a budget is exceeded": (put("poison", failures=3, costs=("LEASE_EXPIRED",) * 3), {"budgets exceeded"}),
    "a job is given up with budget left": (put("poison", budget=3), {"jobs that failed with budget left"}),
    "a lease lapses, and nothing befell its worker": (
        lapse(Blow("kill", "worker-2.1", at=14.0)),
        {"failures for lapsed leases without a fault"},
    ),
    "a lease lapses long after the fault": (
        lapse(Blow("kill", "worker-1.1", at=30.0)),
        {"failures for lapsed leases without a fault"},
    ),
    "an outage costs a lease": (
        lapse(Blow("away", "", at=11.0, back=14.0, free=True)),
        {"failures for lapsed leases by faults that must be free"},
    ),
    "a stop costs a lease": (
        lapse(Blow("stop", "worker-1.1", at=11.0, free=True), Blow("kill", "worker-2.1", at=12.0)),
        {"failures for lapsed leases by faults that must be free"},
    ),
    "a worker was killed by nobody": (
        lambda found: found.deaths.append(("worker-3.1", -9)),
        {"workers that ended, and nobody knows why"},
    ),
    "a worker gave up by itself": (
        lambda found: found.deaths.append(("worker-1.1", 70)),
        {"workers that ended, and nobody knows why"},
    ),
    "a slot is lost and the next one doubled": (
        lambda found: setattr(found.jobs["tick 1"], "slot", 4.0),
        {"slots of the schedule that have a job", "slots of the schedule with more than one job"},
    ),
    "nobody knows the slot of a job": (
        put("tick 2", slot=None),
        {"slots of the schedule that have a job", "jobs of no slot"},
    ),
    "a result is lost": (put("short", result=None), {"results that are missing"}),
    "a result from outside is lost": (put("completed", result=None), {"results that are missing"}),
    "a nap is canceled by nobody": (stop("undisturbed"), UNASKED),
    "a user is canceled by nobody": (stop("first user"), UNASKED),
    "a user is replaced by nobody": (stop("first user", replaced_by="nobody"), UNASKED),
    "a user is replaced by one of another key": (stop("first user", replaced_by="fourth user"), UNASKED),
    "a job is given up too soon": (put("forgotten", ended=4.0), UNASKED),
    "a cancel that was refused has worked": (stop("too late"), UNASKED),
    "a cancel was acknowledged and forgotten": (
        put("canceled", asked_to_stop=False),
        {"acknowledged cancels that are in the log"},
    ),
    "a job begins again after its cancel": (
        put("canceled", begun_after_stop=True),
        {"jobs begun again after they were canceled"},
    ),
    "a job is completed by nobody": (
        put("maybe", outside=True, result="outside"),
        {"jobs completed from outside that nobody had completed"},
    ),
    "a completion was acknowledged and forgotten": (
        put("completed", outside=False, result="attempt 1"),
        {"acknowledged completions that stand"},
    ),
    "a failure has no attempt": (put("short", failures=1), {"failures that no attempt explains"}),
    "a failure is not counted": (put("stumbled", failures=0), {"failures that no attempt explains"}),
    "an outage costs an attempt": (
        put("short", failures=1, costs=("StoreUnavailable",)),
        {"failures that are not the handler's"},
    ),
    "a part is of an attempt to come": (put("report", parts=(1, 1, 2, 4)), STALE_PARTS),
    "a part is of an attempt that had been followed": (put("report", parts=(1, 2, 1, 3)), STALE_PARTS),
    "a word of progress is of an attempt that had been followed": (put("report", said=2), STALE_PARTS),
    "a word of progress is of an attempt to come": (put("long report", said=3), STALE_PARTS),
    "the last word of progress is lost": (put("report", said=None), STALE_PARTS),
    "a recovery takes too long": (
        lambda found: found.blows.append(Blow("kill", "worker-1.1", at=20.0 - LONGEST - 1, held=(("repeated", 1),))),
        {"recoveries that took too long"},
    ),
    "a worker complains": (
        lambda found: found.complaints.append("an error of its own;"),
        {"complaints of workers about themselves"},
    ),
}


def test_books_that_add_up_are_ok() -> None:
    told, found = world()
    assert set(STEPS) <= {one.kind for one in found.jobs.values()}
    assert wrong(told, found) == set()


@pytest.mark.parametrize("cooked", COOKED)
def test_cooked_books_are_found_out(cooked: str) -> None:
    told, found = world()
    cook, lines = COOKED[cooked]

    cook(found)

    assert wrong(told, found) == lines
    assert all(
        line.shown for line in balance(told, found) if not line.ok and "count" not in line.what and "sum" not in line.what
    )


# -- diaries, logs, recoveries ---------------------------------------------------------------------------------------------


def test_a_diary_tells_what_was_acknowledged_and_what_nobody_knows(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    diary.write(TRIED, [("a", "short"), ("b", "line"), ("c", "user"), ("d", "confirm"), ("e", "short"), ("f", "confirm")])
    diary.write(KEPT, [("a", "short"), ("b", "line")])
    diary.write(HELD, [("c", "user")], "holder")
    diary.write(UNDONE, [("d", "confirm")])
    diary.write(FAILED, [("f", "confirm")], "ConnectionError")
    diary.write(TRIED, [("a", "short")])  # once more, for an answer that was lost
    for sign, answers in ((CANCEL, (ASKED, ASKED, REFUSED)), (COMPLETE, (ASKED, TAKEN))):
        for answer in answers:
            diary.write(sign, [("a", "short")], answer)
    for answer in (ASKED, REFUSED):
        diary.write(CANCEL, [("b", "line")], answer)
    diary.close()
    with (tmp_path / "diary").open("a") as torn:
        torn.write("+ e sho")  # killed in the middle of it

    told = Told()
    told.read(tmp_path / "diary", "line")

    assert told.acknowledged == {"a": "short", "b": "line", "holder": "user"}
    assert told.unknown == {"e": "short", "f": "confirm"}
    assert told.undone == {"d": "confirm"}
    assert (told.held, told.lines) == (1, [["b"]])
    assert told.cancels == {"a": Asked(2, 0, 1), "b": Asked(1, 0, 1)}
    assert told.completions == {"a": Asked(1, 1, 0)}
    assert [told.cancels[one].in_vain for one in "ab"] == [False, True]


def test_a_recovery_is_over_when_the_last_job_has_begun_again_or_ended() -> None:
    jobs = {"a": job("a", "short", attempt=2), "b": job("b", "short"), "c": job("c", "short", State.RUNNING, ended=None)}
    blows = [
        Blow("kill", "worker", at=9.0, held=(("a", 1), ("b", 1))),
        Blow("kill", "worker", at=9.0),
        Blow("freeze", "worker", at=9.0, held=(("c", 1),)),
        Blow("outage", "", at=5.0, back=10.0, held=(("a", 1), ("b", 1))),
        Blow("outage", "", at=5.0, back=10.0, held=(("c", 1),)),
        Blow("outage", "", at=5.0, back=10.0),
    ]

    found = recoveries(blows, jobs)

    assert found["kill"] == Recovery(injected=2, survived=2, measured=1, seconds=(11.0,))
    assert found["freeze"] == Recovery(injected=1, survived=0, measured=1, seconds=())
    assert found["outage"] == Recovery(injected=3, survived=2, measured=2, seconds=(10.0,))
    assert found["kill"].quantile(0.5) == found["kill"].quantile(1.0) == 11.0
    assert found["freeze"].quantile(0.5) is None


def test_a_p99_is_told_where_it_differs_from_the_longest() -> None:
    times = tuple(float(number) for number in range(ENOUGH))
    assert Recovery(ENOUGH, ENOUGH, ENOUGH, times).quantile(0.99) == 99.0
    assert Recovery(ENOUGH, ENOUGH, ENOUGH, times[1:]).quantile(0.99) is None
    assert Recovery(ENOUGH, ENOUGH, ENOUGH, times[1:]).quantile(1.0) == 99.0


def test_a_recovery_that_never_is_over_takes_too_long() -> None:
    jobs = {"a": job("a", "short", attempt=2), "b": job("b", "short", State.RUNNING, ended=None)}

    assert too_long([Blow("kill", "w", at=9.0, held=(("a", 1),)), Blow("cut", "w", at=0.0)], jobs) == []
    (late,) = too_long([Blow("freeze", "w", at=9.0, held=(("b", 1),))], jobs)
    assert "freeze w: b after inf s" in late


def test_a_recovery_is_in_time_when_the_lease_is_over_however_many_jobs_stand_before_it() -> None:
    over = 9.0 + LONGEST
    jobs = {"a": job("a", "short", attempt=2, claims=((1, 8.0), (2, 90.0)), ended=91.0, let_go=((1, over), (2, 91.0)))}
    blow = Blow("kill", "w", at=9.0, held=(("a", 1),))

    assert too_long([blow], jobs) == []
    jobs["a"].let_go = ((1, over + 0.1),)
    assert len(too_long([blow], jobs)) == 1
    blow.grace = 1.0
    assert too_long([blow], jobs) == []


def test_after_an_outage_workers_may_first_have_to_notice_that_it_is_over() -> None:
    over = 20.0 + LONGEST + RECONNECTING
    jobs = {"a": job("a", "short", claims=((1, 8.0),), ended=over)}
    blow = Blow("outage", "", at=9.0, back=20.0, held=(("a", 1),))

    assert too_long([blow], jobs) == []
    jobs["a"].ended = over + 0.1
    assert len(too_long([blow], jobs)) == 1


def test_a_late_recovery_is_excused_only_when_each_who_would_see_to_it_was_struck_too() -> None:
    ended = 9.0 + LONGEST + 3.0
    jobs = {"a": job("a", "short", claims=((1, 8.0),), ended=ended)}
    blow = Blow("kill", "one.1", at=9.0, held=(("a", 1),))
    other = Blow("freeze", "two.4", at=10.0, over=9.0 + LONGEST)
    innocent = [Blow("kill", "two.4", at=8.0), Blow("kill", "one.2", at=ended + 1.0), Blow("kill", "producer-1.1", at=16.0)]

    assert len(too_long([blow, other, *innocent], jobs, ["one", "two"])) == 1, "one was well again"
    again = Blow("kill", "one.2", at=16.0)
    assert len(too_long([blow, again], jobs, ["one", "two"])) == 1, "two was well"
    assert too_long([blow, other, again], jobs, ["one", "two"]) == []
    everybody = Blow("cancel", "", at=16.0)
    assert too_long([blow, everybody], jobs, ["one", "two"]) == []
    everybody.mild = True
    assert len(too_long([blow, everybody], jobs, ["one", "two"])) == 1


def test_a_late_recovery_is_excused_when_the_machine_stood_still_for_all() -> None:
    jobs = {"a": job("a", "short", claims=((1, 8.0),), ended=9.0 + LONGEST + 3.0)}
    blows = [Blow("kill", "one.1", at=9.0, held=(("a", 1),))]

    for held_up in ([Stall("one.1", 18.0, 2.0)], [Stall("", 18.0, 0.6)], [Stall("", 50.0, 2.0)]):
        assert len(too_long(blows, jobs, ["one", "two"], held_up)) == 1
    for held_up in ([Stall("one.1", 18.0, 2.0), Stall("two.4", 19.0, 2.0)], [Stall("", 18.0, 2.0)]):
        assert too_long(blows, jobs, ["one", "two"], held_up) == []


def test_a_lapse_needs_no_other_reason_on_a_machine_that_is_too_busy() -> None:
    told, found = world()
    lapse()(found)
    busy = "failures for lapsed leases that only a busy machine explains"

    for innocent in (Stall("worker-2.1", 14.0, 2.0), Stall("worker-1.1", 30.0, 2.0), Stall("worker-1.1", 14.0, 0.6)):
        found.stalls = [innocent]
        assert wrong(told, found) == {"failures for lapsed leases without a fault"}
    for life in ("worker-1.1", ""):
        found.stalls = [Stall(life, 14.0, 2.0)]
        assert wrong(told, found) == set()
        assert notes(told, found)[busy] == 1


def test_a_lapse_is_explained_by_a_fault_of_its_worker_or_of_all_that_may_cost_one() -> None:
    for blow in (Blow("kill", "worker-3.1 worker-1.1", at=12.0), Blow("lock", "", at=3.0, over=12.0)):
        told, found = world()
        lapse(blow, Blow("stop", "worker-1.1", at=11.0, free=True))(found)
        assert wrong(told, found) == set()


def test_a_lapse_of_a_commit_that_nobody_can_learn_of_is_no_fault_of_an_outage() -> None:
    told, found = world()
    lapse(Blow("away", "", at=11.0, back=14.0, free=True))(found)
    found.unlearnt = {"short"}
    assert wrong(told, found) == {"failures for lapsed leases by faults that must be free"}
    found.unlearnt = {"repeated"}
    assert wrong(told, found) == set()


def test_a_worker_that_had_to_leave_while_the_store_was_away_may_lose_a_lease_and_says_so() -> None:
    told, found = world()
    lapse(Blow("stop", "worker-1.1", at=11.0, free=True))(found)
    found.admitted = {"worker-1.1"}
    assert wrong(told, found) == {"failures for lapsed leases by faults that must be free"}, "one fault alone is no excuse"
    found.blows.append(Blow("away", "", at=11.0, back=14.0, free=True))
    assert wrong(told, found) == set()
    found.admitted = {"worker-2.1"}
    assert wrong(told, found) == {"failures for lapsed leases by faults that must be free"}


def test_what_a_worker_could_not_help_is_read_from_its_log() -> None:
    words = "(deposit), attempt 1: whether its transaction was committed cannot be learnt; its lease may lapse\n"
    left = "holdfast.worker leases whose claim was never answered could not be given back, and will lapse: away\n"

    assert unlearnt(f"2026-11-17 21:05:30,066 ERROR holdfast.worker job 01a1-2465 {words}{QUIET}") == {"01a1-2465"}
    assert admitted(f"{QUIET}2026-11-17 21:05:35,804 WARNING {left}")
    assert (unlearnt(STUMBLED), admitted(STUMBLED + QUIET)) == (set(), False)


def test_the_end_of_a_worker_is_explained_by_poison_or_a_blocked_loop() -> None:
    told, found = world()
    found.jobs["poison"].lapses = (Lapse("worker-1.1", 10.0, 19.0),)
    found.blows = [Blow("a handler holds the interpreter", "worker-2.1", at=10.0), Blow("poison", "worker-1.1", at=11.0)]
    found.deaths = [("worker-1.1", -9), ("worker-2.1", 70)]

    assert wrong(told, found) == set()


def test_a_worker_says_when_the_machine_gave_it_no_turn() -> None:
    log = "pulse: no turn for 1.250 s until 1000.500\n" + QUIET
    now = time.time() - time.monotonic()

    (stall,) = stalls("worker-1.1", log)

    assert (stall.life, stall.seconds) == ("worker-1.1", 1.25)
    assert stall.until == pytest.approx(1000.5 + now, abs=1.0)
    assert complaints(log, worker=True) == []


STUMBLED = """\
2026-11-16 16:00:00,000 WARNING holdfast.worker job 01a1e52a-c98b (flaky), attempt 1: failed: NOT_YET: not yet, 1
Traceback (most recent call last):
  File "tasks.py", line 1, in flaky
holdfast.errors.Retryable: not yet, 1
"""
QUIET = "2026-11-16 16:00:01,000 WARNING holdfast.worker the store answers again after 1.0 s\n"
BAD_LOGS = {
    "an error of its own": "2026-11-16 16:00:01,000 ERROR holdfast.worker claiming: an error of its own; it goes on\n",
    "a handler that cannot have raised": STUMBLED.replace("(flaky)", "(short)"),
    "a traceback of the runtime": STUMBLED.replace("job 01a1e52a-c98b (flaky), attempt 1: failed", "a listener failed"),
    "a traceback without a time": "Traceback (most recent call last):\n  File\nKeyError: 1\n",
    "a task that failed unseen": "2026-11-16 16:00:01,000 ERROR asyncio Task exception was never retrieved\nfuture: x\n",
    "a coroutine that was forgotten": "x.py:1: RuntimeWarning: coroutine 'beat' was never awaited\n",
}


def test_what_handlers_were_made_to_raise_is_no_complaint() -> None:
    assert complaints(STUMBLED + QUIET + STUMBLED, worker=True) == []


@pytest.mark.parametrize("bad", BAD_LOGS)
def test_logs_that_tell_of_an_error_of_the_process_are_found_out(bad: str) -> None:
    assert len(complaints(QUIET + BAD_LOGS[bad] + QUIET, worker=True)) == 1


def test_a_producer_has_no_traceback_at_all() -> None:
    assert len(complaints(STUMBLED, worker=False)) == 1


# -- the way to the server, and the end of a run ---------------------------------------------------------------------------


async def test_an_outcome_that_was_held_is_delivered_although_its_sender_is_gone() -> None:
    heard = asyncio.Queue[bytes]()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            heard.put_nowait(data)
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Way(f"postgresql://nobody@127.0.0.1:{port}/soak") as way:
            _, sender = await asyncio.open_connection("127.0.0.1", urlsplit(way.url).port)
            sender.write(b"something else")
            assert await asyncio.wait_for(heard.get(), 10) == b"something else"
            holding = asyncio.create_task(way.hold(b"the id", b"attempt ", within=10))
            await asyncio.sleep(0)
            sender.write(b"of the id: attempt 1")
            assert await holding
            sender.transport.abort()
            await asyncio.sleep(0.1)  # for nothing to come
            assert heard.empty()
            way.deliver()
            assert await asyncio.wait_for(heard.get(), 10) == b"of the id: attempt 1"
            assert not await way.hold(b"what never comes", within=0.01)


@pytest.mark.parametrize("path", ["nowhere/soak.json", "."])
def test_figures_that_could_not_be_written_are_refused_before_the_run(path: str, tmp_path: Path) -> None:
    options = command("sqlite", "--minutes", "1", "--json", str(tmp_path / path))
    run = subprocess.run(options, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert "is no file, or in a folder that does not exist" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_soak_that_is_given_up_clears_up_and_says_where_the_logs_are(store: str, signals: tuple[signal.Signals, ...]) -> None:
    with subprocess.Popen(
        command(store, "--minutes", "60", "--every", "1"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if " faults" in line:  # the first line of status
                break
        for number in signals:
            run.send_signal(number)
            time.sleep(0.5)  # two at once would be one
        lines += run.stdout.readlines()
    told = "".join(lines)
    assert run.returncode == 130, told
    assert "given up" in told
    assert "Traceback" not in told
    folder = Path(told.rpartition("producers wrote down: ")[2].strip())
    assert list(folder.glob("worker-1.*.log"))
    shutil.rmtree(folder)


def test_what_a_machine_lacks_is_said_with_what_would_change_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(needs, "PROGRAM", tmp_path / "pgbouncer")
    monkeypatch.setattr(needs, "LIBRARIES", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    missing = needs.lacking()

    assert set(missing) == {fault.needs for fault in FAULTS if fault.needs}
    assert missing[needs.POOLER].endswith("apt-get install pgbouncer")
    assert missing[needs.CLOCK].endswith("apt-get install faketime")


# -- what is read ----------------------------------------------------------------------------------------------------------

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def view(**more: Any) -> JobView:
    fields: dict[str, Any] = {
        "task": "report",
        "queue": "default",
        "priority": 5,
        "state": State.SUCCEEDED,
        "args": "{}",
        "attempt": 2,
        "failures": 1,
        "created_at": NOON,
        "lease_seconds": 3.0,
        "policy": Policy(),
    } | more
    return JobView(id=uuid4(), **fields)


def log(*events: tuple[Event, State, str]) -> list[EventView]:
    return [
        EventView(event=event, state=state, at=NOON + timedelta(seconds=number), actor=f"worker-{number}.1", detail=detail)
        for number, (event, state, detail) in enumerate(events)
    ]


def test_what_attempts_cost_is_read_from_the_log() -> None:
    claimed = (Event.CLAIM, State.RUNNING, "")
    events = log(
        (Event.ENQUEUE, State.READY, ""),
        claimed,
        (Event.EXPIRE, State.READY, "LEASE_EXPIRED: the lease lapsed: its worker died, froze or was cut off"),
        claimed,
        (Event.EXPIRE, State.READY, "LEASE_EXPIRED: its worker was shutting down"),
        claimed,
        (Event.ABORT, State.READY, "ABORTED: it stops"),
        claimed,
        (Event.RETRY_LATER, State.SCHEDULED, "ConnectionError: stumbled"),
    )

    read = job_of(view(), events)

    assert read.costs == ("LEASE_EXPIRED", "ConnectionError")
    assert [over - NOON.timestamp() for _, over in read.let_go] == [2.0, 4.0, 6.0, 8.0]
    assert read.lapses == (Lapse("worker-1.1", NOON.timestamp() + 1, NOON.timestamp() + 2),)


def test_who_ended_a_job_is_read_from_the_log() -> None:
    begun = ((Event.ENQUEUE, State.READY, ""), (Event.CLAIM, State.RUNNING, ""))
    cancel = (Event.CANCEL, State.RUNNING, "a change of mind")

    stopped = job_of(view(), log(*begun, cancel, (Event.STOP, State.CANCELED, "CANCELED: canceled while it ran")))
    again = job_of(view(), log(*begun, cancel, (Event.RELEASE, State.READY, ""), begun[1]))
    replaced = [
        job_of(view(), log(begun[0], (Event.CANCEL, State.CANCELED, detail)))
        for detail in ("REPLACED: replaced by job other", "REPLACED: replaced by other")
    ]
    overdue = job_of(view(), log(begun[0], (Event.OVERDUE, State.CANCELED, "EXPIRED: it still waits")))

    assert (stopped.asked_to_stop, stopped.begun_after_stop, stopped.replaced_by) == (True, False, None)
    assert again.begun_after_stop
    assert [(one.replaced_by, one.overdue) for one in replaced] == [("other", False)] * 2
    assert (overdue.asked_to_stop, overdue.overdue) == (False, True)


def test_who_wrote_parts_and_progress_is_read() -> None:
    parts = [
        Part(f"part {number}", PartState.COMPLETED, data=json.dumps({"number": 7, "attempt": attempt}))
        for number, attempt in ((1, 2), (0, 1))
    ]

    read = job_of(view(message="part 1 by 2"), [], parts)

    assert (read.parts, read.said) == ((1, 2), 2)


# -- the page --------------------------------------------------------------------------------------------------------------


def test_the_page_says_how_many_stale_writes_the_books_found() -> None:
    told, found = world()
    lines = [{"what": line.what, "found": line.found} for line in balance(told, found)]

    assert sum(str(line["what"]).endswith(page.STALE_WRITES) for line in lines) == 3
    assert page.accepted(lines) == "none accepted"
    write_late(found)
    assert page.accepted([{"what": line.what, "found": line.found} for line in balance(told, found)]) == "1 ACCEPTED"
    assert page.accepted([]) == "accepted ones were not looked for"


def kept(**more: Any) -> dict[str, Any]:
    """What the page is told of a long run."""
    books = [{"what": line.what} for line in balance(*world())]
    return {"ok": True, "store": "postgres", "seconds": 1801.0, "books": books} | more


@pytest.mark.parametrize("change", [{"ok": False}, {"store": "sqlite"}, {"seconds": 1799.0}])
def test_the_page_needs_a_long_run_on_postgresql_that_balanced(change: dict[str, Any]) -> None:
    long = kept()

    assert page.lacking([long | change, long]) is None
    assert "no soak of at least 30 minutes on PostgreSQL" in (page.lacking([long | change]) or "")
    assert page.lacking([]) is not None


@pytest.mark.parametrize(
    "books", [[], kept()["books"][1:], [*kept()["books"], {"what": "a line of yesterday"}], kept()["books"][::-1]]
)
def test_the_page_refuses_runs_whose_books_are_not_those_of_today(books: list[dict[str, Any]]) -> None:
    assert page.lacking([kept(), kept(store="sqlite", seconds=900.0)]) is None
    assert "on sqlite whose books are not those of today" in (page.lacking([kept(), kept(store="sqlite", books=books)]) or "")
    assert "on postgres whose books are not those of today" in (page.lacking([kept(books=books)]) or "")


def test_the_page_lists_faults_by_their_rows_and_all_of_them_last() -> None:
    found = {
        "the server is away for two leases": Recovery(1, 1, 0, ()),
        "ask a worker to stop": Recovery(1, 1, 1, (0.5,)),
        "kill a worker": Recovery(2, 2, 1, (4.0,)),
    }
    run = {"faults": figures(found)}
    backwards = dict(sorted(run["faults"].items(), reverse=True))

    names = [name for name, _ in sorted(backwards.items(), key=page._by_rows)]

    assert names == list(run["faults"]) == ["kill a worker", "the server is away for two leases", "ask a worker to stop", "all"]
    assert page._fault("all", run["faults"]["all"]) == "|  | all | 4 | 4 | 2 | 4.0 s |  | 4.0 s |"
    assert faults_table(found)[1].split()[:3] == ["1", "2", "3"]


def test_checking_the_page_fails_without_such_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "runs", list)
    monkeypatch.setattr(page, "written", lambda text: text)  # it is not stale
    monkeypatch.setattr(sys, "argv", ["page", "--check"])

    assert page.main() == 1
    assert "holds no soak" in capsys.readouterr().err
