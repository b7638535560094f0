"""Replaying event logs: what is accepted, and how a log that lies is named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.core.states import Event, State
from holdfast.store.port import EventView
from holdfast.store.replay import replay


def log(*lines: tuple[Event, State | None]) -> list[EventView]:
    return [EventView(event=event, at=datetime(2026, 3, 1, tzinfo=UTC), state=state) for event, state in lines]


def test_no_events_give_no_job() -> None:
    assert replay([]) is None


def test_a_life_is_replayed_to_its_last_state() -> None:
    lines = log(
        (Event.ENQUEUE_LATER, State.SCHEDULED),
        (Event.PROMOTE, State.READY),
        (Event.CLAIM, State.RUNNING),
        (Event.CANCEL, State.RUNNING),
        (Event.STOP, State.CANCELED),
        (Event.REOPEN, State.READY),
    )
    assert replay(lines) is State.READY
    assert replay(lines[:5]) is State.CANCELED


def test_stages_leave_a_job_running() -> None:
    lines = log(
        (Event.ENQUEUE, State.READY),
        (Event.CLAIM, State.RUNNING),
        (Event.STAGE_ENTER, State.RUNNING),
        (Event.STAGE_FAIL, State.RUNNING),
        (Event.ABORT, State.READY),
        (Event.OVERDUE, State.CANCELED),
    )
    assert replay(lines[:4]) is State.RUNNING
    assert replay(lines) is State.CANCELED


def test_a_stage_of_a_job_that_does_not_run_is_named() -> None:
    with pytest.raises(ValueError, match="line 2: 'stage:entered' cannot happen to a job that is ready"):
        replay(log((Event.ENQUEUE, State.READY), (Event.STAGE_ENTER, State.RUNNING)))


def test_a_removed_job_is_gone() -> None:
    assert replay(log((Event.ENQUEUE, State.READY), (Event.DELETE, None))) is None


def test_a_step_the_table_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="line 2: 'succeeded' cannot happen to a job that is ready"):
        replay(log((Event.ENQUEUE, State.READY), (Event.SUCCEED, State.SUCCEEDED)))


def test_a_log_without_its_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1: 'claimed' cannot happen to a job that is not there"):
        replay(log((Event.CLAIM, State.RUNNING)))


def test_a_line_that_claims_another_state_than_the_table_is_named() -> None:
    with pytest.raises(ValueError, match="line 1: 'enqueued' leads from not there to ready, but the line says scheduled"):
        replay(log((Event.ENQUEUE, State.SCHEDULED)))
