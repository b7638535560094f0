"""How attempts end under their token."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.outcome import CANCELED, Error
from holdfast.core.settle import Write
from holdfast.core.states import HOLDER_EVENTS, TRANSITIONS, Event, State
from holdfast.errors import BadJob
from holdfast.store.port import CIRCLE, Settled
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.moving import Ended, Held, Standing, key_holder, landing, move, settle_waiters
from holdfast.store.sqlite.packing import listed, pack, places, portions
from holdfast.store.sqlite.producing import Enqueuing, check_blockers, replaceable
from holdfast.store.sqlite.signaling import emitted, wake

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Settlement
    from holdfast.store.sqlite.writing import Writing

SETTLING: Final = frozenset(event for event in HOLDER_EVENTS if TRANSITIONS[State.RUNNING, event] is not State.RUNNING)
"""The holder's events that end an attempt."""


class _Row(NamedTuple):
    """A lease as read for settling."""

    job_id: bytes
    token: bytes
    worker_id: bytes
    attempt: int
    failures: int
    lane: int
    entry: int
    seq: int
    claimed_at: int
    expires_at: int
    keyed: int
    expires: int
    chain_id: bytes | None
    cancel_requested: int
    cancel_reason: str

    @property
    def chain(self) -> bytes:
        """Its chain, known by the first step. A job alone is a chain of one."""
        return self.chain_id or self.job_id


def settle(writing: Writing, settlements: Sequence[Settlement]) -> list[Settled]:
    """End attempts; see the port. Simple successes, by far the most, are written together."""
    simple = True
    for settlement in settlements:
        if (event := settlement.write.event) is not Event.SUCCEED:
            simple = False
            if event not in SETTLING:
                raise ValueError(f"{event!r} does not settle a job")
    answers = _settle_simple(writing, settlements) if simple else _settle_each(writing, settlements)
    settle_waiters(writing)
    told = next((index for index, answer in enumerate(answers) if answer in _WRITTEN), None) if writing.freed else None
    if told is not None:
        answers[told] = Settled.FREED
    return answers


_WRITTEN: Final = frozenset({Settled.APPLIED, Settled.LATE})
"""The answers that may tell of waiters instead. That a cancel has won is not covered by anything."""


def _settle_simple(writing: Writing, settlements: Sequence[Settlement]) -> list[Settled]:
    """End attempts that all succeeded. In which order does not matter: nobody hears of it before all of them are written."""
    ids = [settlement.lease.job_id.bytes for settlement in settlements]
    if len(set(ids)) < len(ids):  # one may come twice: whoever comes first is not the same as the other
        return _settle_each(writing, settlements)
    tokens = pack(settlement.lease.token.bytes for settlement in settlements)
    leases = {"places": listed([0] * len(ids)), "ids": pack(ids), "tokens": tokens, "now": writing.now}
    lanes, others = writing.connection.execute(sql("settle.plain"), leases).fetchone()
    answers = [Settled.APPLIED] * len(ids)
    apart = places(others)
    for place, answer in zip(apart, _settle_each(writing, [settlements[place] for place in apart]), strict=True):
        answers[place] = answer
    written = set(apart)
    _archive(writing, [(ids[place], one.write) for place, one in enumerate(settlements) if place not in written])
    if lanes is not None:
        state = landing(State.RUNNING, Event.SUCCEED)
        for lane, jobs in Counter(lanes.split(",")).items():
            writing.count(int(lane), State.RUNNING, state, jobs)
        writing.ended += [(job_id, state) for place, job_id in enumerate(ids) if place not in written]
    return answers


def _settle_each(writing: Writing, settlements: Sequence[Settlement]) -> list[Settled]:
    """End attempts, looking at each lease; simple successes are written together all the same."""
    keys = [(settlement.lease.job_id.bytes, settlement.lease.token.bytes) for settlement in settlements]
    leases = _leases(writing, [job_id for job_id, _ in keys])
    succeeded: list[tuple[_Row, Write]] = []
    settled: dict[bytes, bytes] = {}
    answers: list[Settled] = []
    for (job_id, token), settlement in zip(keys, settlements, strict=True):
        held = leases.get(job_id)
        if held is None or held.token != token:
            repeated = settled.get(job_id) == token or _settled_before(writing, job_id, token) is not None
            answers.append(Settled.REPEATED if repeated else Settled.STALE)
            continue
        answer = Settled.LATE if held.expires_at <= writing.now else Settled.APPLIED
        if held.cancel_requested and settlement.write.lives_on:
            _cancel(writing, held, settlement.write.failures)
            answer = Settled.CANCELED
        elif settlement.then is not None:
            # what ended earlier in the call may free the key of the next step, or be what it waits for
            _succeed(writing, succeeded)
            succeeded.clear()
            if not _continue(writing, held, settlement.write, settlement.then):
                answers.append(Settled.KEY_TAKEN)
                continue
        elif settlement.write.event is Event.SUCCEED:
            succeeded.append((held, settlement.write))
        else:
            _settle_one(writing, held, settlement.write, settlement.signal)
        del leases[job_id]
        settled[job_id] = token
        answers.append(answer)
    _succeed(writing, succeeded)
    return answers


def _leases(writing: Writing, ids: Sequence[bytes]) -> dict[bytes, _Row]:
    return {
        row[0]: _Row._make(row)
        for statement, chunk in in_chunks("settle.leases", ids)
        for row in writing.connection.execute(statement, chunk)
    }


def settled(writing: Writing, lease: Lease) -> Event | None:
    """Tell how its holder has settled an attempt; see the port. A write, so that it comes after whoever has it in hand."""
    return _settled_before(writing, lease.job_id.bytes, lease.token.bytes)


def _settled_before(writing: Writing, job_id: bytes, token: bytes) -> Event | None:
    found = writing.connection.execute(sql("settle.settled_before"), (job_id, token, job_id, token)).fetchone()
    return None if found is None else Event(found[0])


def _settle_one(writing: Writing, held: _Row, write: Write, signal: str | None) -> None:
    """Write an end that leaves records, and nothing that follows: everything but a simple success and a continuation."""
    _end_attempt(writing, held, write, signal=signal)
    if signal is not None and emitted(writing, signal):
        wake(writing, held.job_id, "store")


def _cancel(writing: Writing, held: _Row, failures: int) -> None:
    """End a job that would live on although its cancellation was promised."""
    _end_attempt(writing, held, Write(Event.STOP, failures, error=Error(CANCELED, held.cancel_reason)))


def _end_attempt(
    writing: Writing, held: _Row, write: Write, *, signal: str | None = None, continued_by: bytes | None = None
) -> None:
    job = Standing(
        held.job_id,
        State.RUNNING,
        held.lane,
        held.entry,
        held.attempt,
        held.failures,
        held.keyed,
        held.expires,
        held.chain_id,
        held=Held(held.token, held.worker_id, held.seq, held.claimed_at, held.expires_at, 0, "", 0),
    )
    ended = Ended(held.token, held.expires_at <= writing.now, continued_by, signal)
    move(writing, job, write, actor=writing.worker_name(held.worker_id), ended=ended)


def _continue(writing: Writing, held: _Row, write: Write, then: NewJob) -> bool:
    """End a step and create the next one. False, and nothing is written, when another job holds the key of that."""
    chain, execute = held.chain, writing.connection.execute
    _check_step(writing, chain, then)
    if _key_taken(writing, chain, then):
        return False
    _end_attempt(writing, held, write, continued_by=then.id.bytes)
    if held.chain_id is None:
        execute(sql("settle.become_chain"), (chain,))
    execute(sql("settle.next_step"), (chain, then.id.bytes))
    enqueuing = Enqueuing(writing, set())
    enqueuing.add(then, step_of=chain)
    enqueuing.write()
    return True


def _check_step(writing: Writing, chain: bytes, then: NewJob) -> None:
    if writing.connection.execute(sql("settle.known_job"), (then.id.bytes,)).fetchone() is not None:
        raise BadJob(f"there is a job {then.id} already", path="then.id", task=then.task)
    check_blockers(writing, [then], set())
    if then.after and _waits_for(writing, chain, then):
        raise BadJob(CIRCLE, path="then.after", task=then.task)


def _waits_for(writing: Writing, chain: bytes, then: NewJob) -> bool:
    """Tell whether a chain would wait for its own end, by itself or through others."""
    seen: set[bytes] = set()
    front = [one.bytes for one in then.after]
    while front:
        if (one := front.pop()) == chain:
            return True
        if one not in seen:
            seen.add(one)
            front += [row[0] for row in writing.connection.execute(sql("settle.chain_waits_for"), (one, one))]
    return False


def _key_taken(writing: Writing, chain: bytes, then: NewJob) -> bool:
    """Tell whether the next step cannot have its key. What a step of its own chain holds is no obstacle."""
    if then.unique is None:
        return False
    holder = key_holder(writing, then.unique.scope, then.unique.key)
    return holder is not None and holder.chain != chain and not replaceable(then.unique, holder)


def _succeed(writing: Writing, succeeded: list[tuple[_Row, Write]]) -> None:
    """Write simple successes, and what else they set free."""
    if not succeeded:
        return
    executemany, state = writing.connection.executemany, landing(State.RUNNING, Event.SUCCEED)
    _archive(writing, [(held.job_id, write) for held, write in succeeded])
    keyed = [(held.job_id,) for held, _ in succeeded if held.keyed]
    keyed += [(held.chain,) for held, _ in succeeded if held.chain != held.job_id]  # the first step's key is the chain's
    if keyed:
        executemany(sql("moving.free_key"), keyed)
    if expiring := [(held.job_id,) for held, _ in succeeded if held.expires]:
        executemany(sql("moving.forget_deadline"), expiring)
    for lane, jobs in Counter(held.lane for held, _ in succeeded).items():
        writing.count(lane, State.RUNNING, state, jobs)
    writing.ended += [(held.chain, state) for held, _ in succeeded]


def _archive(writing: Writing, succeeded: Iterable[tuple[bytes, Write]]) -> None:
    """Move leased jobs to the archive, which keeps the token: so there is no record of the attempt and no line in the log."""
    alike: dict[int, tuple[list[bytes], list[str | None]]] = {}
    for job_id, write in succeeded:
        if (columns := alike.get(write.failures)) is None:
            columns = alike[write.failures] = ([], [])
        columns[0].append(job_id)
        columns[1].append(write.result)
    execute, state = writing.connection.execute, landing(State.RUNNING, Event.SUCCEED)
    for failures, (ids, results) in alike.items():
        for portion in portions(ids, results):
            values = portion._asdict()
            execute(sql("settle.succeed"), values | {"state": state.value, "failures": failures, "now": writing.now})
            execute(sql("settle.leave"), values)
