"""The table of transitions: its shape, whatever it says in detail."""

from __future__ import annotations

import pytest

from holdfast.core.states import (
    HOLDER_EVENTS,
    LIVE,
    STAGE_EVENTS,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    Event,
    State,
    legal,
    origins,
    target,
)


def test_live_and_terminal_share_out_all_states() -> None:
    assert set(State) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert WAITING | {State.RUNNING} == LIVE


def test_every_state_is_reached_from_the_beginning() -> None:
    reached: set[State | None] = {None}
    while more := {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached:
        reached |= more
    assert reached == {None, *State}


def test_every_state_can_end_in_each_terminal_state_and_be_gone() -> None:
    for state in LIVE:
        ends: set[State | None] = {state}
        while more := {after for (before, _), after in TRANSITIONS.items() if before in ends and before is not None} - ends:
            ends |= more
        assert ends >= {*TERMINAL, None}


def test_every_event_happens_somewhere() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_terminal_is_final_but_for_reopening_and_removal() -> None:
    for state in TERMINAL:
        assert {event for before, event in TRANSITIONS if before is state} == {Event.REOPEN, Event.DELETE, Event.PRUNE}
        assert target(state, Event.REOPEN) is State.READY
        assert target(state, Event.DELETE) is None
        assert target(state, Event.PRUNE) is None


def test_events_of_the_holder_happen_only_to_running_jobs() -> None:
    assert {before for before, event in TRANSITIONS if event in HOLDER_EVENTS} == {State.RUNNING}


def test_what_others_do_to_a_running_job_is_no_event_of_the_holder() -> None:
    others = {event for before, event in TRANSITIONS if before is State.RUNNING} - HOLDER_EVENTS
    assert others == {
        Event.CANCEL,
        Event.COMPLETE_OUTSIDE,
        Event.FAIL_OUTSIDE,
        Event.DELETE,
        Event.EXPIRE,
        Event.EXPIRE_LATER,
        Event.EXPIRE_FAIL,
        Event.EXPIRE_CANCEL,
    }


def test_stages_and_log_lines_leave_a_job_running() -> None:
    assert HOLDER_EVENTS > STAGE_EVENTS
    for event in (*STAGE_EVENTS, Event.LOG):
        assert target(State.RUNNING, event) is State.RUNNING


def test_only_a_job_that_waits_can_be_overdue() -> None:
    assert set(origins(Event.OVERDUE)) == WAITING
    assert target(State.READY, Event.OVERDUE) is State.CANCELED


def test_a_step_that_continues_has_succeeded_and_one_that_is_suspended_waits() -> None:
    assert {Event.CONTINUE, Event.SUSPEND} <= HOLDER_EVENTS
    assert target(State.RUNNING, Event.CONTINUE) is State.SUCCEEDED
    assert target(State.RUNNING, Event.SUSPEND) is State.SCHEDULED


def test_only_a_job_that_is_scheduled_is_woken() -> None:
    assert Event.WAKE not in HOLDER_EVENTS
    assert origins(Event.WAKE) == (State.SCHEDULED,)
    assert target(State.SCHEDULED, Event.WAKE) is State.READY


def test_only_a_claim_makes_a_job_running() -> None:
    entering = {(before, event) for (before, event), after in TRANSITIONS.items() if after is State.RUNNING is not before}
    assert entering == {(State.READY, Event.CLAIM)}


def test_an_event_leads_to_one_state_wherever_it_happens_except_a_cancel_of_a_running_job() -> None:
    for event in Event:
        targets = {after for (_, one), after in TRANSITIONS.items() if one is event}
        if event is Event.CANCEL:
            assert targets == {State.RUNNING, State.CANCELED}
        else:
            assert len(targets) == 1


def test_only_a_job_that_is_not_there_can_be_enqueued() -> None:
    enqueuing = {event for before, event in TRANSITIONS if before is None}
    assert enqueuing == {Event.ENQUEUE, Event.ENQUEUE_LATER, Event.ENQUEUE_BLOCKED}
    assert all(origins(event) == () for event in enqueuing)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[State.READY, Event.SUCCEED] = State.SUCCEEDED  # type: ignore[index]


def test_what_is_not_in_the_table_is_illegal() -> None:
    assert not legal(State.READY, Event.SUCCEED)
    with pytest.raises(KeyError):
        target(State.READY, Event.SUCCEED)


def test_origins_are_listed_in_the_order_of_a_life() -> None:
    assert origins(Event.CANCEL) == (State.BLOCKED, State.SCHEDULED, State.READY, State.RUNNING)
    assert origins(Event.CLAIM) == (State.READY,)
    assert origins(Event.DELETE) == tuple(State)


def test_states_and_events_read_like_plain_words() -> None:
    assert f"{State.READY}" == "ready"
    assert f"{Event.RETRY_LATER}" == "retried:later"
