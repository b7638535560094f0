"""Claiming: ready jobs become leases."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast.core.fairness import Head, Share, order
from holdfast.core.job import policy_of
from holdfast.core.lease import Claimed, Taken
from holdfast.core.limits import AGAIN
from holdfast.core.needs import needs_of, suits
from holdfast.core.states import Event, State
from holdfast.errors import UnknownWorker
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.limiting import Rooms
from holdfast.store.sqlite.moving import landing
from holdfast.store.sqlite.packing import WIDE, listed, pack
from holdfast.store.sqlite.values import microseconds, moment, names_of, names_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.fairness import Shares
    from holdfast.core.limits import Room
    from holdfast.store.port import ClaimRequest
    from holdfast.store.sqlite.facade import Executes
    from holdfast.store.sqlite.writing import Writing


def claim(writing: Writing, request: ClaimRequest, next_turn: Callable[[], int], shares: Shares) -> Taken:
    """Take ready jobs and receive leases; see the port."""
    known = writing.connection.execute(sql("claim.worker"), (request.worker.bytes,)).fetchone()
    if known is None:
        raise UnknownWorker(f"worker {request.worker} is not registered with this store: register it before it claims")
    if request.limit <= 0 or known[0]:
        return Taken()
    taken, turn, rooms = Taken(), next_turn(), Rooms(writing.connection, writing.now)
    over: dict[int, list[Room]] = {}
    filled: set[int] = set()
    ordered = order(
        _heads(writing, request, rooms, over, filled), turn, first=request.first, retries_first=request.retries_first
    )
    spread = shares.spread(ordered, request.limit, turn)
    for head, quota in (*spread, *(Share(head, request.limit) for head, _ in spread if head.weight is not None)):
        if len(taken) >= request.limit:
            break
        if any(room.full for room in over[head.lane]):
            taken.held_back(AGAIN)
            continue
        before, most = len(taken), min(request.limit, len(taken) + quota)
        for lane in (-head.lane, head.lane):
            if lane not in filled or len(taken) >= most:
                continue
            if not _take(writing, request, lane, taken, most=most - len(taken), over=over[head.lane]):
                break  # nothing passes a job of an unknown task or one that waits for room, also not from the front to the rest
        shares.took(head.lane, len(taken) - before, request.limit)
    rooms.keep()
    return taken


def _heads(writing: Writing, request: ClaimRequest, rooms: Rooms, over: dict[int, list[Room]], filled: set[int]) -> list[Head]:
    """Return the lanes this worker may claim from, each with its first job.

    Tells besides which limits are `over` each of them, and what is `filled`: lanes and fronts that hold anything.
    """
    connection = writing.connection
    found: dict[int, tuple[int, Head]] = {}
    # fronts have negative numbers and so come first: where there is one, it holds the lane's head
    for place, seq, ready_at, queue, task, priority, requires in connection.execute(
        sql("claim.heads"), (names_text(tuple(sorted(request.tasks))) or "[]",)
    ):
        filled.add(place)
        if (
            (number := abs(place)) not in found
            and (request.queues is None or queue in request.queues)
            and suits(needs := needs_of(names_of(requires)), request.capabilities, request.idle, (writing.now - ready_at) / 1e6)
        ):
            head = Head(number, priority, moment(ready_at), queue, number % 2 == 1, rooms.weight(needs))
            found[number] = (seq, head)
            over[number] = rooms.over(queue, task, needs)
            if not task and connection.execute(sql("claim.head_task"), (place, seq)).fetchone()[0] not in request.tasks:
                found[number] = (seq, _NO_HEAD)
    # jobs of one enqueue are ready at the same moment: among those the place decides, for `order` keeps ties as they are
    return [head for _, head in sorted(found.values()) if head is not _NO_HEAD]


_NO_HEAD: Final = Head(0, 0, moment(0))
"""Stands for a fifo lane whose first job is of a task this worker does not know."""


def _take(writing: Writing, request: ClaimRequest, place: int, taken: Taken, *, most: int, over: Sequence[Room]) -> bool:
    """Claim from the front or the rest of one lane until enough are claimed. False when it came to a job it may not take."""
    found = _find(writing.connection, place, most)
    count = next((index for index, one in enumerate(found) if one.task not in request.tasks), len(found))
    if over:
        count = _admitted(found[:count], over, taken)
    if count:
        mine = found[:count]
        tokens = [writing.token() for _ in mine]
        _lease(writing, request.worker, place, mine, tokens)
        taken += _claims(writing, mine, tokens, limited=bool(over))
    return count == len(found)


def _admitted(found: Sequence[_Found], over: Sequence[Room], taken: Taken) -> int:
    """Count jobs for the limits over their lane until one holds the next back, and return how many that are."""
    for count, one in enumerate(found):
        cost = policy_of(one.policy).cost
        waits = [room.again(cost) for room in over if not room.admits(cost)]
        if waits:
            taken.held_back(max(waits))
            return count
        for room in over:
            room.take(cost)
    return len(found)


class _Found(msgspec.Struct, array_like=True):
    """A job as found at the head of a lane: what comes through JSON, and what is filled in beside it."""

    seq: int
    attempt: int
    failures: int
    task: str
    queue: str
    priority: int
    lane: int
    policy: str | None
    created_at: int
    chain: str
    trace: str | None
    blockers: int | None
    start_by: int | None
    ready_at: int | None
    args: str | None
    job_id: bytes = b""
    lease: float = 0.0


_decoder: Final = msgspec.json.Decoder(list[_Found])


def _find(connection: Executes, place: int, limit: int) -> list[_Found]:
    """Return the first jobs of a lane's front or rest, in order."""
    wanted = {"place": place, "limit": limit, "wide": WIDE}
    ids_text, shortest, longest, text = connection.execute(sql("claim.take"), wanted).fetchone()
    found = _decoder.decode(text)
    ids = bytes.fromhex(ids_text or "")
    for index, one in enumerate(found):
        one.job_id = ids[16 * index : 16 * index + 16]
        one.lease = shortest
        if one.args is None:
            (one.args,) = connection.execute(sql("claim.args"), (one.job_id,)).fetchone()
    if shortest != longest:
        for one, (length,) in zip(found, connection.execute(sql("claim.lengths"), wanted).fetchall(), strict=True):
            one.lease = length
    return found


def _lease(writing: Writing, worker: UUID, place: int, found: Sequence[_Found], tokens: Sequence[UUID]) -> None:
    """Move jobs from the head of a lane into leases."""
    execute = writing.connection.execute
    alike: dict[float, list[tuple[bytes, int]]] = {}
    for one, token in zip(found, tokens, strict=True):
        alike.setdefault(one.lease, []).append((token.bytes, one.seq))
    for seconds, jobs in alike.items():
        leases = {
            "tokens": pack(token for token, _ in jobs),
            "seqs": listed([seq for _, seq in jobs]),
            "place": place,
            "worker_id": worker.bytes,
            "entry": abs(place) & ~1,
            "length": microseconds(seconds),
            "now": writing.now,
        }
        execute(sql("claim.lease"), leases)
    execute(sql("claim.remove"), (place, found[-1].seq))
    for lane, number in Counter(one.lane for one in found).items():
        writing.count(lane, State.READY, landing(State.READY, Event.CLAIM), number)


def _claims(writing: Writing, found: Sequence[_Found], tokens: Sequence[UUID], *, limited: bool) -> list[Claimed]:
    now, claimed_at = writing.now, moment(writing.now)
    created = {stamp: moment(stamp) for stamp in {one.created_at for one in found}}
    ends = {seconds: moment(now + microseconds(seconds)) for seconds in {one.lease for one in found}}
    return [
        Claimed(
            UUID(bytes=one.job_id),
            token,
            one.attempt + 1,
            one.failures,
            one.task,
            one.queue,
            one.priority,
            one.args or "",
            policy_of(one.policy),
            one.lease,
            created[one.created_at],
            claimed_at,
            ends[one.lease],
            UUID(one.chain) if one.chain else None,
            one.trace,
            one.start_by is not None and one.start_by <= now,
            one.blockers or 0,
            None if one.ready_at is None else moment(one.ready_at),
            limited,
        )
        for one, token in zip(found, tokens, strict=True)
    ]
