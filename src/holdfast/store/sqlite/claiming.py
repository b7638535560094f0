"""Claiming: ready jobs become leases."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast.core.fairness import Share, Shares, by_age, first_turn, order
from holdfast.core.job import RETRIES, policy_of
from holdfast.core.lease import Claimed, Taken
from holdfast.core.limits import AGAIN
from holdfast.core.rotation import Rotation
from holdfast.core.states import Event, State
from holdfast.errors import UnknownWorker
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.limiting import Rooms
from holdfast.store.sqlite.moving import landing
from holdfast.store.sqlite.offering import Offering
from holdfast.store.sqlite.packing import WIDE, listed, pack
from holdfast.store.sqlite.values import microseconds, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.fairness import Head
    from holdfast.core.limits import Room
    from holdfast.core.rotation import Lap
    from holdfast.store.port import ClaimRequest
    from holdfast.store.sqlite.facade import Executes
    from holdfast.store.sqlite.offering import KeyLane
    from holdfast.store.sqlite.writing import Writing


class Account:
    """What a handle remembers from one claim to the next: whose turn it is."""

    def __init__(self, lot: Callable[[], float]) -> None:
        self._turn = first_turn(lot())
        self.shares = Shares(lot)
        self.rotation = Rotation(lot)
        self.known: dict[int, KeyLane] = {}

    def next_turn(self) -> int:
        """Count a claim."""
        turn, self._turn = self._turn, self._turn + 1
        return turn


class Claim:
    """One claim, in steps that are a transaction each: where very many keys wait, nobody else is kept from writing for long.

    A step offers some of the keys. One that brings nothing is followed by the next, until all keys have been on offer.
    """

    def __init__(self, request: ClaimRequest, account: Account) -> None:
        self._request = request
        self._account = account
        self._turn: int | None = None
        self._begun: dict[int, Lap] | None = None
        self.over = False

    def step(self, writing: Writing) -> Taken:
        """Take ready jobs and receive leases; see the port."""
        request, account = self._request, self._account
        self.over = True
        known = writing.connection.execute(sql("claim.worker"), (request.worker.bytes,)).fetchone()
        if known is None:
            raise UnknownWorker(f"worker {request.worker} is not registered with this store: register it before it claims")
        if request.limit <= 0 or known[0]:
            return Taken()
        if self._turn is None:
            self._turn = account.next_turn()
        rooms = Rooms(writing.connection, writing.now)
        offering = Offering(writing, request, rooms, account.rotation, account.known)
        heads = offering.heads(keys=bool(known[1]), by_age=by_age(self._turn))
        taken = _claim(writing, request, offering, heads, turn=self._turn, shares=account.shares)
        rooms.keep()
        taken.weights = rooms.weights(request.queues)
        if not taken:
            if self._begun is None:
                self._begun = account.rotation.laps(offering.turning)
            # a lane that is not among them any more has no key that waits: nobody goes round there, however long one asks
            turning = {lane: lap for lane, lap in self._begun.items() if lane in offering.turning}
            self.over = account.rotation.went_round(turning)
        return taken


def _claim(
    writing: Writing, request: ClaimRequest, offering: Offering, heads: Sequence[Head], *, turn: int, shares: Shares
) -> Taken:
    """Take from the lanes that are on offer, in their order."""
    taken, over, leasing = Taken(), offering.over, _Leasing(writing, request.worker)
    if offering.full:
        taken.held_back(AGAIN)
    ordered = order(heads, turn, first=request.first, retries_first=request.retries_first)
    spread = shares.spread(ordered, request.limit, turn, retries_first=request.retries_first)
    for head, quota in (*spread, *(Share(head, request.limit) for head, _ in spread if head.weight is not None)):
        if len(taken) >= request.limit:
            break
        before, most = len(taken), min(request.limit, len(taken) + quota)
        if any(room.full for room in over[head.lane]):
            taken.held_back(AGAIN)
            most = before
        for lane in (-head.lane, head.lane):
            if lane not in offering.filled or len(taken) >= most:
                continue
            if not _take(leasing, request, lane, taken, most=most - len(taken), over=over[head.lane]):
                break  # nothing passes a job of an unknown task or one that waits for room, also not from the front to the rest
        shares.took(head.lane, len(taken) - before, request.limit)
        offering.took(head, len(taken) - before)
    leasing.write()
    return taken


def _take(leasing: _Leasing, request: ClaimRequest, place: int, taken: Taken, *, most: int, over: Sequence[Room]) -> bool:
    """Claim from the front or the rest of one lane until enough are claimed. False when it came to a job it may not take."""
    if place in leasing.places:
        leasing.write()  # who comes back to a lane must not find what was taken of it
    writing = leasing.writing
    found = _find(writing.connection, place, most)
    count = next((index for index, one in enumerate(found) if one.task not in request.tasks), len(found))
    if over:
        count = _admitted(found[:count], over, taken)
    if count:
        mine = found[:count]
        tokens = [writing.token() for _ in mine]
        leasing.add(place, mine, tokens)
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


class _Leasing:
    """Jobs on their way from the heads of lanes into leases, written together: under limits a lane often gives but one."""

    def __init__(self, writing: Writing, worker: UUID) -> None:
        self.writing = writing
        self._worker = worker
        self.places: dict[int, list[tuple[_Found, UUID]]] = {}

    def add(self, place: int, found: Sequence[_Found], tokens: Sequence[UUID]) -> None:
        """Take in the first jobs of a lane's front or rest."""
        self.places[place] = list(zip(found, tokens, strict=True))

    def write(self) -> None:
        """Move what was taken in."""
        if not self.places:
            return
        alike: dict[float, list[tuple[int, int, bytes]]] = {}
        for place, jobs in self.places.items():
            for one, token in jobs:
                alike.setdefault(one.lease, []).append((place, one.seq, token.bytes))
        for seconds, rows in alike.items():
            self._lease(seconds, rows)
        connection = self.writing.connection
        connection.executemany(sql("claim.remove"), [(place, jobs[-1][0].seq) for place, jobs in self.places.items()])
        for lane, number in Counter(one.lane for jobs in self.places.values() for one, _ in jobs).items():
            self.writing.count(lane, State.READY, landing(State.READY, Event.CLAIM), number)
        self.places = {}

    def _lease(self, seconds: float, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Write leases of one length."""
        common = {
            "tokens": pack(token for *_, token in rows),
            "worker_id": self._worker.bytes,
            "length": microseconds(seconds),
            "now": self.writing.now,
        }
        place, seqs = rows[0][0], listed([seq for _, seq, _ in rows])
        if rows[0][0] == rows[-1][0]:  # of one lane, as nearly always without limits
            own = {"place": place, "seqs": seqs, "entry": abs(place) & ~RETRIES}
            self.writing.connection.execute(sql("claim.lease"), common | own)
        else:
            places = msgspec.json.encode([(place, seq) for place, seq, _ in rows]).decode()
            self.writing.connection.execute(sql("claim.lease_several"), common | {"places": places})


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
