"""The port can be spoken over a wire: every request and answer survives JSON, and every store has every operation."""

from __future__ import annotations

import inspect
import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast.core.figures import EMPTY, Figure
from holdfast.core.job import NewJob, Policy, Unique
from holdfast.core.lease import Claimed, Extended, Hold, Lease
from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.errors import BadJob
from holdfast.store import port
from holdfast.store.http import HttpStore
from holdfast.store.memory import MemoryStore
from holdfast.store.memory.transaction import MemoryTransaction
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.transacting import PostgresTransaction
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.transaction import SqliteTransaction

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
ID = UUID("01890000-0000-7000-8000-000000000001")
LEASE = Lease(ID, ID)
WRITE = Write(Event.RETRY_LATER, 1, delay=9.5, error=Error("BOOM", "it broke"))
COUNTS = {State.READY: 2, State.FAILED: 1}
JOB = NewJob(
    id=ID,
    task="t",
    run_at=AT,
    unique=Unique(key="k", scope="t", window=5.0),
    after=(UUID(int=1),),
    tags=("a",),
    expires_in=60.0,
)
NEXT = NewJob(id=UUID("01890000-0000-7000-8000-000000000002"), task="t")
SCHEDULE = port.Schedule(name="s", task="t", cron="0 3 * * *", timezone="UTC", next_at=AT)
VIEW = port.JobView(
    id=ID,
    task="t",
    queue="q",
    priority=5,
    state=State.FAILED,
    args="{}",
    attempt=1,
    failures=1,
    created_at=AT,
    lease_seconds=60.0,
    policy=Policy(),
    start_by=AT,
    chain_id=ID,
    continued_by=ID,
    after=(ID,),
    error=Error("BOOM"),
)
CHAIN = port.ChainView(
    id=ID, task="t", queue="q", created_at=AT, tags=("a",), steps=2, step=ID, step_task="u", state=State.SUCCEEDED, result="1"
)
FIGURE = Figure(queue="q", task="t", event=Event.FAIL, code="BOOM", count=3, waited=1.5, ran=2.5, runs=(3, *EMPTY[1:]))
SPOKEN = [
    JOB,
    Claimed(ID, ID, 1, 0, "t", "q", 5, "{}", Policy(), 60.0, AT, AT, AT, chain_id=ID, blockers=2, ready_at=AT),
    Extended(Hold.HELD, AT, cancel_requested=True),
    port.Enqueued(port.Enqueue.EXISTING, ID),
    port.Settlement(LEASE, WRITE),
    port.Settlement(LEASE, Write(Event.CONTINUE, 0), then=NEXT),
    port.Settlement(LEASE, Write(Event.SUSPEND, 0, delay=9.5), signal="paid:42"),
    port.Progress(LEASE, 50.0, "step"),
    port.Checkpoint(LEASE, port.Part("p", port.PartState.COMPLETED, 1.0, 2.0, '"data"')),
    port.ClaimRequest(worker=ID, tasks=frozenset({"t"}), limit=5, queues=frozenset({"q"}), first="q", retries_first=True),
    port.Worker(id=ID, name="w", kind=port.WorkerKind.REMOTE, slots=4, capabilities=("gpu",)),
    port.Beat(worker=ID, counters='{"done":1}'),
    port.Signal(disabled=True, drain=True),
    port.WorkerView(worker=port.Worker(id=ID, name="w"), registered_at=AT, disabled_at=AT, running=1, jobs=(ID,)),
    port.LogLine(lease=LEASE, message="m", level="warning", age=1.5),
    port.LimitView(
        name=LimitName(LimitKind.KEY, "tenants", "a"),
        declared=LimitRule(most=2),
        override=LimitRule(rate=0.5, burst=3),
        override_by="ann",
        override_at=AT,
        running=1,
        tokens=2.5,
    ),
    port.LogView(no=1, at=AT, attempt=1, level="info", logger="app", message="m", fields="{}"),
    port.StageMark(lease=LEASE, name="s", event=Event.STAGE_LEAVE, age=1.5),
    SCHEDULE,
    port.ScheduleView(schedule=SCHEDULE, due_in=-1.5, last_at=AT, last_job=ID),
    port.Firing(name="s", slot=AT, next_at=AT + timedelta(days=1), job=JOB),
    port.Retention(failed=5.0, signals=60.0, enqueues=90.0, workers=120.0),
    port.JobFilter(states=frozenset({State.READY}), created_from=AT, chain_id=ID),
    VIEW,
    port.Page([VIEW], ID, searched_all=False),
    port.RunningView([VIEW], 3),
    CHAIN,
    port.ChainPage([CHAIN], ID, searched_all=False),
    port.BlockerView(chain_id=ID, state=State.FAILED, task="t", error=Error("BOOM")),
    port.ChainsDeleted(answer=port.Answer.NEEDED, chain=ID, needed_by=ID),
    port.Emitted(first=True, jobs=(ID,), queues=frozenset({"q"})),
    port.WorkerPlace(offline_at=None, registered_at=AT, id=ID),
    port.AttemptView(attempt=1, worker_id=ID, worker_name="w", claimed_at=AT, event=Event.FAIL, error=Error("BOOM")),
    port.EventView(event=Event.CLAIM, at=AT, state=State.RUNNING, attempt=1),
    port.QueueView(name="q", counts=COUNTS, oldest_waiting=1.5),
    port.Stats([port.TaskCounts("q", "t", COUNTS)], {"q": 1.5}),
    port.Storage(4096, None),
    port.Promoted(1, frozenset({"q"}), 2.5),
    port.Reaped(ID, "t", "q", 1, ID, WRITE),
    port.Pruned(3, ID),
    port.Key(id="abc123abc123", name="ann", role=port.Role.CLIENT, digest="0" * 64, queues=("q",), expires_at=AT),
    port.Audit(by="ann", action=port.Action.FIRE, targets=("nightly",), detail="by hand"),
    port.AuditLine("ann", port.Action.PAUSE, ("q",), 1, "broken"),
    port.AuditView(no=7, at=AT, actor="ann", action=port.Action.PAUSE, targets=("q",), count=1, detail="broken"),
    FIGURE,
    port.FigureView(at=AT, figure=FIGURE),
    port.FailureView(
        job_id=ID, task="t", queue="q", key="k", attempt=2, at=AT, event=Event.RETRY_LATER, error=Error("BOOM", "it broke")
    ),
]


@pytest.mark.parametrize("value", SPOKEN, ids=lambda value: type(value).__name__)
def test_what_goes_over_the_port_survives_json(value: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


def test_every_struct_of_the_port_is_tried_above() -> None:
    structs = {struct for struct in vars(port).values() if isinstance(struct, type) and issubclass(struct, msgspec.Struct)}
    parts = {port.Part, port.TaskCounts, Error, Policy, Write}  # inside others
    assert structs - parts == {type(value) for value in SPOKEN} & structs


@pytest.mark.parametrize("store", [MemoryStore, SqliteStore, PostgresStore, HttpStore])
def test_every_store_has_every_operation_with_the_ports_parameters(store: type) -> None:
    operations = {name: method for name, method in vars(port.Store).items() if inspect.iscoroutinefunction(method)}
    assert len(operations) > 40
    for name, operation in operations.items():
        asked, given = inspect.signature(operation).parameters, inspect.signature(getattr(store, name)).parameters
        assert list(asked) == list(given), name
        assert [p.default for p in asked.values()] == [p.default for p in given.values()], name


@pytest.mark.parametrize("transaction", [MemoryTransaction, SqliteTransaction, PostgresTransaction])
def test_every_transaction_has_every_operation_with_the_ports_parameters(transaction: type) -> None:
    operations = {
        name: method
        for protocol in (port.Caller, port.Transaction)
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    assert len(operations) == 9
    for name, operation in operations.items():
        asked, given = inspect.signature(operation).parameters, inspect.signature(getattr(transaction, name)).parameters
        assert list(asked) == list(given), name
        assert [(p.kind, p.default) for p in asked.values()] == [(p.kind, p.default) for p in given.values()], name


# -- what a settlement may say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "fields", "path"),
    [
        (Write(Event.CONTINUE, 0), {}, "settlement.then"),
        (Write(Event.SUCCEED, 0), {"then": NEXT}, "settlement.then"),
        (Write(Event.CONTINUE, 0), {"then": JOB}, "id"),
        (Write(Event.CONTINUE, 0), {"then": msgspec.structs.replace(NEXT, chain_id=NEXT.id)}, "id"),
        (Write(Event.SUCCEED, 0), {"signal": "paid:42"}, "settlement.signal"),
        (Write(Event.SUSPEND, 0), {"signal": ""}, "settlement.signal"),
        (Write(Event.SUSPEND, 0), {"signal": "nul \0"}, "settlement.signal"),
    ],
)
def test_a_settlement_that_contradicts_itself_is_refused(write: Write, fields: dict[str, Any], path: str) -> None:
    with pytest.raises(BadJob) as refused:
        port.Settlement(LEASE, write, **fields)
    assert refused.value.path == path


def test_a_write_stands_unless_it_was_refused() -> None:
    refused = {answer for answer in port.Settled if not answer.accepted}
    assert refused == {port.Settled.STALE, port.Settled.KEY_TAKEN}


@pytest.mark.parametrize("age", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("what", ["signals", "enqueues"])
def test_signals_and_lines_are_kept_for_a_number_of_seconds(what: str, age: float) -> None:
    with pytest.raises(BadJob, match=rf"retention\.{what}"):
        port.Retention(**{what: age})


# -- what a worker does, as people see it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "disabled_at", "offline_at", "state"),
    [
        (0, None, None, port.WorkerState.IDLE),
        (1, None, None, port.WorkerState.ACTIVE),
        (2, None, None, port.WorkerState.BUSY),
        (3, None, None, port.WorkerState.BUSY),
        (2, AT, None, port.WorkerState.DISABLED),
        (2, AT, AT, port.WorkerState.OFFLINE),
    ],
)
def test_the_state_of_a_worker_follows_from_what_is_known(
    running: int, disabled_at: datetime | None, offline_at: datetime | None, state: port.WorkerState
) -> None:
    worker = port.Worker(id=ID, name="w", slots=2)
    view = port.WorkerView(worker=worker, registered_at=AT, running=running, disabled_at=disabled_at, offline_at=offline_at)
    assert view.state is state


# -- a log line never fails a job ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [math.nan, math.inf, -math.inf, -5.0])
def test_an_age_that_makes_no_sense_is_none(age: float) -> None:
    assert port.LogLine(lease=LEASE, message="m", age=age).age == 0.0
    assert port.StageMark(lease=LEASE, name="s", event=Event.STAGE_ENTER, age=age).age == 0.0


def test_a_line_that_no_store_could_keep_is_cut_and_cleaned() -> None:
    line = port.LogLine(lease=LEASE, message="\0" + "m" * 99_999, level="\0", logger="\ud800", fields="x" * 99_999)
    assert len(line.message) == port.LOG_LIMIT
    assert "\0" not in line.message + line.level
    assert (line.logger == "\ud800", line.fields) == (False, "{}")
