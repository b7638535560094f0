"""How a job changes its state: the row leaves one table and enters another, as `TRANSITIONS` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.job import OF_KEY, BlockerPolicy, line_of, policy_of
from holdfast.core.outcome import blocker_error
from holdfast.core.settle import Write
from holdfast.core.states import TERMINAL, TRANSITIONS, Event, State
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.values import due, error_columns, uuid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.store.sqlite.writing import Writing

LEAVE: Final = {
    State.BLOCKED: "moving.leave_blocked",
    State.SCHEDULED: "moving.leave_scheduled",
    State.READY: "moving.leave_ready",
    State.RUNNING: "moving.leave_running",
    **dict.fromkeys(TERMINAL, "moving.leave_archive"),
}


class Held(NamedTuple):
    """The lease a running job is held under."""

    token: bytes
    worker_id: bytes
    seq: int
    claimed_at: int
    expires_at: int
    cancel_requested: int
    cancel_reason: str
    free: int


class Standing(NamedTuple):
    """Where a job stands, as read in this transaction."""

    job_id: bytes
    state: State
    lane: int
    entry: int
    attempt: int
    failures: int
    keyed: int
    expires: int
    chain_id: bytes | None = None
    run_at: int | None = None
    held: Held | None = None
    continued_by: bytes | None = None

    @property
    def chain(self) -> bytes:
        """Its chain, known by the first step. A job alone is a chain of one."""
        return self.chain_id or self.job_id

    @property
    def later_step(self) -> bool:
        """Whether it follows another step."""
        return self.chain != self.job_id


class Ended(NamedTuple):
    """How an attempt ended, beside the event: under whose token (`None`: not the holder's doing), and whether late.

    `continued_by` is the next step of its chain, `signal` what the job waits for from now on.
    """

    token: bytes | None = None
    late: bool = False
    continued_by: bytes | None = None
    signal: str | None = None


OUTSIDE: Final = Ended()


def locate(writing: Writing, job_id: bytes) -> Standing | None:
    """Find out where a job stands; `None` when there is no such job."""
    row = writing.connection.execute(sql("moving.locate"), (job_id,)).fetchone()
    if row is None:
        return None
    lane, entry, keyed, expires, chain_id, is_blocked, blocked_run_at, run_at, is_ready, *rest = row
    ended_state, continued_by, attempt, failures, *held = rest
    lease = Held(*held) if held[0] is not None else None
    if lease is not None:
        state = State.RUNNING
    elif is_ready:
        state = State.READY
    elif run_at is not None:
        state = State.SCHEDULED
    elif is_blocked:
        state, run_at = State.BLOCKED, blocked_run_at
    else:
        state = State(ended_state)
    return Standing(job_id, state, lane, entry, attempt, failures, keyed, expires, chain_id, run_at, lease, continued_by)


def last_step(writing: Writing, job: Standing) -> Standing:
    """Return where the chain of a job stands: its last step."""
    if job.chain_id is None:
        return job
    (step, _) = writing.connection.execute(sql("moving.chain"), (job.chain_id,)).fetchone()
    last = job if step == job.job_id else locate(writing, step)
    if last is None:
        raise ValueError(f"chain {uuid_of(job.chain_id)} ends with a step that is not there")
    return last


def key_holder(writing: Writing, scope: str, key: str, prepare: Callable[[], None] | None = None) -> Standing | None:
    """Return the job that holds a unique key: as long as it or its chain is live, or within a window.

    `prepare` is called before that job is looked at: it may not be written yet.
    """
    hold = writing.connection.execute(sql("moving.key_holder"), (scope, key)).fetchone()
    if hold is None or (hold[1] is not None and hold[1] <= writing.now):
        return None
    if prepare is not None:
        prepare()
    holder = locate(writing, hold[0])
    if holder is None:
        raise ValueError(f"the key {key!r} is held by a job that does not exist")
    return holder


def landing(state: State | None, event: Event) -> State:
    """Return where an event leads that does not remove the job."""
    target = TRANSITIONS[state, event]
    if target is None:
        raise ValueError(f"{event} removes a job instead of moving it")
    return target


def move(writing: Writing, job: Standing, write: Write, *, actor: str, ended: Ended = OUTSIDE) -> None:
    """Let an event that is legal where the job stands happen to it: rows, counts, records, log, key.

    Waiters hear of it in `settle_waiters`. Not for events that remove a job, nor for a simple success, which leaves no records.
    """
    target = landing(job.state, write.event)
    execute = writing.connection.execute
    execute(sql(LEAVE[job.state]), (job.job_id,))
    if job.held is not None:
        execute(
            sql("moving.record_attempt"),
            (
                job.job_id,
                job.attempt,
                job.held.worker_id,
                job.held.claimed_at,
                writing.now,
                write.event.value,
                ended.token,
                int(ended.late),
                *error_columns(write.error),
            ),
        )
    if target is State.READY:
        lane = line_of(job.lane, job.entry, write.failures)
        if write.front and job.held is not None:
            # released jobs go back to their old place, in front of all that came later
            lane, seq = -lane, job.held.seq
        else:
            seq = writing.number()
        execute(sql("moving.enter_ready"), (lane, seq, job.job_id, job.attempt, write.failures, writing.now))
        if job.entry & OF_KEY:
            execute(sql("enqueue.waiting_key"), (job.lane, job.entry))
    elif target is State.SCHEDULED:
        run_at = job.run_at if job.run_at is not None else due(writing.now, write.delay, write.run_at)
        execute(sql("moving.enter_scheduled"), (run_at, job.job_id, job.attempt, write.failures, ended.signal))
        if job.expires and write.event is Event.SUSPEND:  # it has begun, and so was not too late
            execute(sql("moving.forget_deadline"), (job.job_id,))
    else:
        _enter_archive(writing, job, write, target, ended)
    writing.count(job.lane, job.state, target)
    writing.log(job.job_id, write.event, target, job.attempt, actor, error=write.error)


def _enter_archive(writing: Writing, job: Standing, write: Write, state: State, ended: Ended) -> None:
    execute = writing.connection.execute
    worker_id, claimed_at = None, None
    if job.held is not None:
        worker_id, claimed_at = job.held.worker_id, job.held.claimed_at
    elif job.attempt:
        worker_id, claimed_at = execute(sql("moving.last_attempt"), (job.job_id,)).fetchone()
    row = (job.job_id, state.value, job.attempt, write.failures, writing.now, claimed_at, worker_id, None, int(ended.late))
    execute(sql("moving.enter_archive"), (*row, *error_columns(write.error), write.result, ended.continued_by))
    if job.expires:
        execute(sql("moving.forget_deadline"), (job.job_id,))
    goes_on = ended.continued_by is not None
    # the first step's key is the chain's: held until that has ended
    if job.keyed and (job.later_step or not goes_on):
        execute(sql("moving.free_key"), (job.job_id,))
    if not goes_on:
        if job.later_step:
            execute(sql("moving.free_key"), (job.chain,))
        writing.ended.append((job.chain, state))


def remove(writing: Writing, job: Standing) -> None:
    """Remove a job, wherever it stands, with all its records; those of its chain are `remove_chain`'s."""
    execute = writing.connection.execute
    execute(sql(LEAVE[job.state]), (job.job_id,))
    for records in ("blockers", "attempts", "events", "log", "parts", "progress", "deadline", "key", "job"):
        execute(sql(f"moving.forget_{records}"), (job.job_id,))
    writing.count(job.lane, job.state, None)


def steps(writing: Writing, chain: bytes) -> list[bytes]:
    """Return the steps of a chain; none where there is no such chain, also where the id is that of a later step."""
    return [step for (step,) in writing.connection.execute(sql("moving.steps"), {"chain": chain})]


def remove_chain(writing: Writing, chain: bytes) -> list[bytes]:
    """Remove a chain with all its steps, which are returned."""
    gone = steps(writing, chain)
    for step in gone:
        job = locate(writing, step)
        if job is not None:
            remove(writing, job)
    writing.connection.execute(sql("moving.forget_chain"), (chain,))
    return gone


def settle_waiters(writing: Writing) -> None:
    """Let the chains that ended in this transaction act on who waits for them, to any depth; every operation's last step.

    In waves, not by recursion: waiters of waiters may go deeper than the stack.
    """
    if writing.ended and writing.connection.execute(sql("moving.any_blocked")).fetchone() is None:
        writing.ended.clear()
    while writing.ended:
        ended, writing.ended = dict(writing.ended), []
        for waiter_id, blockers in _waiters(writing, ended):
            _heed(writing, waiter_id, blockers)


def _waiters(writing: Writing, ended: Mapping[bytes, State]) -> list[tuple[bytes, list[tuple[bytes, State]]]]:
    """Return who waits for these chains, by id, each with its ended blockers in the order it named them."""
    waiting: dict[bytes, list[tuple[int, bytes, State]]] = {}
    for statement, ids in in_chunks("moving.waiters", ended):
        for waiter_id, position, blocker_id in writing.connection.execute(statement, ids):
            waiting.setdefault(waiter_id, []).append((position, blocker_id, ended[blocker_id]))
    return [(waiter, [(blocker, state) for _, blocker, state in sorted(waiting[waiter])]) for waiter in sorted(waiting)]


def _heed(writing: Writing, waiter_id: bytes, blockers: list[tuple[bytes, State]]) -> None:
    """Let ended blockers act on a blocked job: one fewer to wait for each, or its end by the first that ended badly."""
    job = locate(writing, waiter_id)
    if job is None or job.state is not State.BLOCKED:
        return
    (text,) = writing.connection.execute(sql("moving.policy"), (waiter_id,)).fetchone()
    policy = policy_of(text).on_blocker_failure
    for blocker_id, state in blockers:
        if state is not State.SUCCEEDED and policy is not BlockerPolicy.RUN:
            move(writing, job, blocker_write(policy, blocker_id, state), actor="store")
            return
        writing.connection.execute(sql("moving.end_blocker"), (blocker_id, waiter_id))
    if writing.connection.execute(sql("moving.waits"), (waiter_id,)).fetchone() is None:
        writing.freed = True
        later = job.run_at is not None and job.run_at > writing.now
        move(writing, job, Write(Event.UNBLOCK_LATER if later else Event.UNBLOCK, job.failures), actor="store")


def blocker_write(policy: BlockerPolicy, blocker_id: bytes, state: State) -> Write:
    """Return what ends a job whose blocker ended badly."""
    event = Event.BLOCKER_CANCEL if policy is BlockerPolicy.CANCEL else Event.BLOCKER_FAIL
    return Write(event, 0, error=blocker_error(uuid_of(blocker_id), state, policy))
