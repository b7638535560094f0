"""Bugs of clients and workers."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from holdfast.core.abort import AbortReason
from holdfast.core.outcome import Rescheduled
from holdfast.errors import StoreUnavailable
from holdfast.runtime import claimer, heartbeat, settling, slots
from holdfast.runtime.attempt import Attempt as RunningAttempt
from holdfast.runtime.enqueuing import Enqueuer
from holdfast.runtime.housekeeping import Promoter
from holdfast.runtime.recalling import NOTHING, recalled
from holdfast.runtime.reporter import Reporter
from holdfast.runtime.settler import Settler
from holdfast.store.port import Enqueue, Enqueued
from tests.lab.mutants.mutant import Mutant


def _answers_first(real: Any) -> Any:
    async def broken(self: Enqueuer, batch: Any) -> None:
        for asked in batch:
            if not asked.future.done():
                asked.future.set_result([Enqueued(Enqueue.CREATED, job.id) for job in asked.jobs])
        with suppress(Exception):  # the bug
            await real(self, batch)

    return broken


def _fails_afterwards(real: Any) -> Any:
    async def broken(self: Promoter) -> float | None:
        await real(self)
        raise ValueError("the bug")

    return broken


def _takes_twice(real: Any) -> Any:
    async def broken(self: claimer.Claimer, limit: int, *, look: bool, hurry: bool) -> Any:
        take = self._take

        def twice(claimed: Any, at: float) -> None:
            take(claimed, at)
            take(claimed, at)

        with patch.object(self, "_take", twice):
            return await real(self, limit, look=look, hurry=hurry)

    return broken


def _claims_two_more(real: Any) -> Any:
    return lambda self: real(self) + 2


def _gives_everything_back(real: Any) -> Any:
    async def broken(self: claimer.Claimer) -> None:
        with patch.object(self, "_held", set):
            await real(self)

    return broken


def _gives_nothing_back(_: Any) -> Any:
    async def broken(self: claimer.Claimer) -> None:
        self._unsure = False

    return broken


def _counts_from_the_answer(real: Any) -> Any:
    def broken(self: slots.Slots, claims: Any, asked_at: float) -> None:
        del asked_at
        real(self, claims, self._environment.monotonic())

    return broken


def _never_too_late(_: Any) -> Any:
    return property(lambda self: -math.inf)  # noqa: ARG005


def _never_stops(_: Any) -> Any:
    return lambda hold: None  # noqa: ARG005


def _stops_too_late(_: Any) -> Any:
    return property(lambda self: -1.5)  # noqa: ARG005


def _has_no_deadline(_: Any) -> Any:
    def broken(self: RunningAttempt, now: float) -> None:
        self.started_at = now

    return broken


def _waits_for_ever(real: Any) -> Any:
    def broken(self: slots.Slots, attempt: Any, outcome: Any) -> None:
        if attempt.abort.reason is not AbortReason.TIMEOUT:
            real(self, attempt, outcome)

    return broken


def _extends_one(real: Any) -> Any:
    async def broken(self: heartbeat.Heartbeat, store: Any, attempts: Any, given_up_at: Any) -> None:
        await real(self, store, list(attempts)[:1], given_up_at)
        for attempt in list(attempts)[1:]:
            attempt.asked(self._environment.monotonic())

    return broken


def _begins_without(_: Any) -> Any:
    async def broken(self: slots.Slots, attempt: Any) -> Any:
        try:
            return await recalled(self._base.store, attempt.claimed)
        except StoreUnavailable:
            return NOTHING

    return broken


def _does_not_wait(_: Any) -> Any:
    async def broken(self: Reporter) -> None:
        del self

    return broken


def _tries_once(_: Any) -> Any:
    async def broken(self: Settler, settlements: Any) -> Any:
        try:
            return await self._store.settle(settlements)
        except StoreUnavailable:
            return [None] * len(settlements)

    return broken


def _costs_a_failure(real: Any) -> Any:
    def broken(outcome: Any, retry: Any, failures: int, *rest: Any) -> Any:
        return real(outcome, retry, failures + isinstance(outcome, Rescheduled), *rest)

    return broken


def _drops_what_is_buffered(real: Any) -> Any:
    async def broken(self: slots.Slots, timeout: float, *, until: Any) -> None:
        for attempt in list(self._buffer):
            self._drop(attempt)
        self._buffer.clear()
        await real(self, timeout, until=until)

    return broken


WORKERS = (
    Mutant("an enqueue is answered before its commit", "memory", ((Enqueuer, "_write", _answers_first),)),
    Mutant("a part of the worker fails by itself", "memory", ((Promoter, "tick", _fails_afterwards),)),
    Mutant("what is claimed is run twice", "memory", ((claimer.Claimer, "_claim", _takes_twice),), seed=1),
    Mutant("a worker claims two more than it has room for", "memory", ((slots.Slots, "room", _claims_two_more),), seed=4),
    Mutant(
        "after a claim whose answer was lost all is given back",
        "memory",
        ((claimer.Claimer, "_give_back_unknown", _gives_everything_back),),
        seed=10,
    ),
    Mutant(
        "after a claim whose answer was lost nothing is given back",
        "memory",
        ((claimer.Claimer, "_give_back_unknown", _gives_nothing_back),),
        seed=193,
    ),
    Mutant("a lease is counted from the answer", "memory", ((slots.Slots, "take", _counts_from_the_answer),), seed=360),
    Mutant(
        "a worker that lost its lease goes on",
        "memory",
        ((RunningAttempt, "margin", _never_too_late), (heartbeat, "reason_of", _never_stops)),
        seed=46,
    ),
    Mutant("a handler is stopped after its lease has ended", "memory", ((RunningAttempt, "margin", _stops_too_late),), seed=62),
    Mutant("time-outs never strike", "memory", ((RunningAttempt, "start", _has_no_deadline),), seed=2),
    Mutant("a handler that does not stop keeps its job", "memory", ((slots.Slots, "_detach", _waits_for_ever),), seed=2),
    Mutant("the first of several leases is extended", "memory", ((heartbeat.Heartbeat, "_extend", _extends_one),), seed=2),
    Mutant("a handler begins without what was done before", "memory", ((slots.Slots, "_recall", _begins_without),), seed=507),
    Mutant("a settlement does not wait for the reports", "memory", ((Reporter, "flush", _does_not_wait),), seed=4),
    Mutant("a settlement is tried once", "memory", ((Settler, "_write", _tries_once),), seed=167),
    Mutant("what puts itself off has failed", "memory", ((settling, "settle", _costs_a_failure),), seed=20),
    Mutant(
        "a worker that stops drops what it has not begun",
        "memory",
        ((slots.Slots, "drain", _drops_what_is_buffered),),
        seed=398,
    ),
)
