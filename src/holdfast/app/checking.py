"""What an app is asked with: checked before a store sees it, so that every store refuses the same in the same words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.core.states import STATE_GROUPS, State
from holdfast.core.text import flaw, name_flaw
from holdfast.errors import BadSetting
from holdfast.store.port import JobFilter
from holdfast.tasks.handle import Handle
from holdfast.tasks.task import Task
from holdfast.tasks.values import short

if TYPE_CHECKING:
    from collections.abc import Mapping


def id_of(value: object, path: str = "") -> UUID:
    """Return a job's id: itself, its text, or that of a handle. Raises `BadSetting`."""
    if isinstance(value, Handle):
        return value.id
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise BadSetting(f"{path and path + '='}{_shown(value)} is no job id: a job id is a UUID, or its text")


def text_of(value: object, path: str, *, empty: bool = True) -> str:
    """Return a text that every store can keep. Raises `BadSetting`."""
    if not isinstance(value, str):
        raise BadSetting(f"{path}= must be a text, not {_shown(value)}")
    if not value and not empty:
        raise BadSetting(f"{path}= must not be empty")
    if (reason := flaw(value)) is not None:
        raise BadSetting(f"{path}= has a {reason}")
    return value


def limit_of(value: object) -> int:
    """Return how long a page may be. Raises `BadSetting`: a page of nothing would look like the last one."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadSetting(f"limit= must be a whole number from 1, not {_shown(value)}")
    return value


def filter_of(given: Mapping[str, Any]) -> JobFilter:
    """Return the filter that the parameters of `app.chains` describe. Raises `BadSetting`."""
    for field in ("task", "queue", "tag", "key"):
        named = given[field]
        if not (field == "task" and isinstance(named, Task)) and named is not None and (reason := name_flaw(named)) is not None:
            raise BadSetting(f"{field}= cannot be {_shown(named)}: {reason}")
    for field in ("created_from", "created_before"):
        at = given[field]
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise BadSetting(f"{field}= must be a datetime with a time zone, as datetime.now(UTC) gives, not {_shown(at)}")
    task, states = given["task"], given["states"]
    return JobFilter(
        **{
            **given,
            "task": task.name if isinstance(task, Task) else task,
            "states": None if states is None else states_of(states),
        }
    )


def _shown(value: object) -> str:
    return short(repr(value))


def states_of(states: Iterable[State | str] | str) -> frozenset[State]:
    """Return the states that are named, each by itself or by a word for several. Raises `BadSetting`."""
    if not isinstance(states, Iterable):
        raise BadSetting(f"states= must be a list of states, not {_shown(states)}")
    found: frozenset[State] = frozenset()
    for one in [states] if isinstance(states, str) else states:
        if one in STATE_GROUPS:
            found |= STATE_GROUPS[one]
        elif one in set(State):
            found |= {State(one)}
        else:
            known = f"{', '.join(State)}, and {', '.join(STATE_GROUPS)} for several"
            raise BadSetting(f"states= has {_shown(one)}; there are {known}")
    return found
