"""The account: what became of every job, from the store alone, job by job against the plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast.core.states import TERMINAL, Event, State
from holdfast.runtime.counters import STALE
from holdfast.store.port import PartState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.demo.plan import Planned
    from holdfast.store.port import AttemptView, EventView, JobView, Part, Store, WorkerView

LAPSES: Final = frozenset({Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL, Event.EXPIRE_CANCEL})
OUTCOMES: Final = frozenset({Event.SUCCEED, Event.FAIL, Event.RETRY, Event.RETRY_LATER})
"""How the attempts of the demonstration's own tasks end."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A fault that was dealt: to which worker, and the job and attempt of every lease it broke."""

    worker: str
    broken: Mapping[UUID, int]


class Problem(msgspec.Struct, frozen=True):
    """Something that does not add up."""

    what: str
    job: UUID | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every job."""

    enqueued: int
    succeeded: int
    failed_as_intended: int
    canceled: int
    lost: int
    """Jobs of the plan that the store does not know, or that have not ended."""
    wrong: int
    """Jobs that ended otherwise than intended, or more than once."""
    recovered: int
    """Jobs that were taken from a worker whose lease had lapsed."""
    attempts: int
    parts_kept: int
    """Parts that the last attempt found done by those before it."""
    parts_redone: int
    stale_writes_refused: int
    stale_writes: dict[str, int]
    """By kind."""
    killed: str | None
    killed_holding: int
    frozen: str | None
    frozen_holding: int
    problems: list[Problem]
    adds_up: bool
    """Every job is accounted for as intended, every broken lease led to a recovery: there are no problems."""
    store: str = ""
    seconds: float = 0.0


async def take_account(store: Store, plan: Sequence[Planned], *, killed: Blow | None, frozen: Blow | None) -> Account:
    """Read what became of every job of the plan, and of the leases that were broken."""
    entries = await _entries(store, plan)
    killed, frozen = (blow and _dealt(blow, entries) for blow in (killed, frozen))
    stale = _stale_writes(await store.workers())
    problems = [problem for entry in entries for problem in _problems(entry)]
    wrong = {problem.job for entry in entries if not entry.lost for problem in _wrong(entry)}
    broken = [problem for blow in (killed, frozen) if blow for problem in _unrecovered(blow, entries)]
    if killed is None or frozen is None:
        broken.append(Problem("the jobs had ended before a worker could be killed and another frozen: try more --jobs"))
    elif not stale:
        broken.append(Problem(f"{frozen.worker} was frozen and thawed, and none of its writes was refused"))
    ends = Counter(entry.view.state for entry in entries if entry.view is not None and entry.planned.id not in wrong)
    return Account(
        enqueued=len(plan),
        succeeded=ends[State.SUCCEEDED],
        failed_as_intended=ends[State.FAILED],
        canceled=sum(entry.view is not None and entry.view.state is State.CANCELED for entry in entries),
        lost=sum(entry.lost for entry in entries),
        wrong=len(wrong),
        recovered=sum(any(event.event in LAPSES for event in entry.events) for entry in entries),
        attempts=sum(entry.view.attempt for entry in entries if entry.view is not None),
        parts_kept=sum(_kept(entry) for entry in entries),
        parts_redone=sum(len(_redone(entry)) for entry in entries),
        stale_writes_refused=sum(stale.values()),
        stale_writes=stale,
        killed=killed.worker if killed else None,
        killed_holding=len(killed.broken) if killed else 0,
        frozen=frozen.worker if frozen else None,
        frozen_holding=len(frozen.broken) if frozen else 0,
        problems=[*problems, *broken],
        adds_up=not problems and not broken,
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One job of the plan, and all the store knows of it."""

    planned: Planned
    view: JobView | None
    events: Sequence[EventView]
    attempts: Sequence[AttemptView]
    parts: Sequence[Part]

    @property
    def lost(self) -> bool:
        return self.view is None or self.view.state not in TERMINAL


async def _entries(store: Store, plan: Sequence[Planned]) -> list[_Entry]:
    views = await store.get([planned.id for planned in plan])
    return [
        _Entry(
            planned,
            view,
            await store.events(planned.id) if view else (),
            await store.attempts(planned.id) if view else (),
            await store.parts(planned.id) if view and view.task == "render" else (),
        )
        for planned, view in zip(plan, views, strict=True)
    ]


def _stale_writes(workers: Sequence[WorkerView]) -> dict[str, int]:
    """Return how many writes the store refused, by kind, as the workers counted them."""
    refused: Counter[str] = Counter()
    for worker in workers:
        for name, value in msgspec.json.decode(worker.counters, type=dict[str, int]).items():
            kind, _, label = name.partition(":")
            if kind == STALE:
                refused[label] += value
    return dict(refused)


def _problems(entry: _Entry) -> Iterator[Problem]:
    planned, view = entry.planned, entry.view
    if view is None:
        yield Problem(f"{planned.task}: lost, the store does not know it", planned.id)
    elif entry.lost:
        yield Problem(f"{planned.task}: lost, it is still {view.state}", planned.id)
    else:
        yield from _wrong(entry)
    if redone := _redone(entry):
        yield Problem(f"{planned.task}: done twice: {', '.join(redone)}", planned.id)


def _wrong(entry: _Entry) -> Iterator[Problem]:
    """Compare the end of a job with the intended one."""
    planned, view = entry.planned, entry.view
    if view is None:
        return
    code = view.error.code if view.error else None
    if (view.state, code, view.result) != (planned.state, planned.code, planned.result):
        ended = f"{view.state} ({code or view.result})"
        yield Problem(
            f"{planned.task}: ended as {ended}, not as {planned.state} ({planned.code or planned.result})", planned.id
        )
    claims = sum(event.event is Event.CLAIM for event in entry.events)
    if claims != view.attempt:
        yield Problem(f"{planned.task}: claimed {claims} times, and counts {view.attempt} attempts", planned.id)
    ends = [event.event for event in entry.events if event.state in TERMINAL]
    if len(ends) != 1:
        yield Problem(f"{planned.task}: ended {len(ends)} times: {', '.join(ends)}", planned.id)


def _redone(entry: _Entry) -> list[str]:
    """Return the parts that were entered again after they had been left: work that was done twice."""
    left: set[str] = set()
    redone = []
    for event in entry.events:
        if event.event is Event.STAGE_LEAVE:
            left.add(event.detail)
        elif event.event is Event.STAGE_ENTER and event.detail in left:
            redone.append(event.detail)
    return redone


def _kept(entry: _Entry) -> int:
    return 0 if entry.view is None else sum(made_before(part, entry.view.attempt) for part in entry.parts)


class _Made(msgspec.Struct, frozen=True):
    attempt: int


def made_before(part: Part, attempt: int) -> bool:
    """Tell whether a part of a picture was made by an attempt before this one."""
    if part.state is not PartState.COMPLETED or part.data is None:
        return False
    return msgspec.json.decode(part.data, type=_Made).attempt < attempt


def _dealt(blow: Blow, entries: Sequence[_Entry]) -> Blow:
    """Leave out the leases that their worker had ended in time: the outcome was on its way when the worker was struck."""
    ended = {
        (entry.planned.id, view.attempt)
        for entry in entries
        for view in entry.attempts
        if view.event in OUTCOMES and not view.late
    }
    return Blow(blow.worker, {job_id: attempt for job_id, attempt in blow.broken.items() if (job_id, attempt) not in ended})


def _unrecovered(blow: Blow, entries: Sequence[_Entry]) -> Iterator[Problem]:
    """Find broken leases that nobody recovered."""
    for entry in entries:
        attempt = blow.broken.get(entry.planned.id)
        lapses = {event.attempt for event in entry.events if event.event in LAPSES}
        if attempt is not None and attempt not in lapses:
            what = f"{entry.planned.task}: {blow.worker} lost it at attempt {attempt}, and its lease never lapsed"
            yield Problem(what, entry.planned.id)
