"""Durable steps: what a handler does once across its attempts, and where it waits.

Works out what is to be stored and what was; the job stores it. Each is a part of the job, `step:…`, `sleep:…` or `wait:…`.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.outcome import Suspended
from holdfast.errors import BadJob, BadResult, BadTask
from holdfast.store.port import Part, PartState
from holdfast.tasks.codec import DEFAULT_MAX_BYTES, ResultCodec
from holdfast.tasks.shape import UnsupportedTypeError, shape_of
from holdfast.tasks.suspending import checked_seconds, deadline_of, opened_wait, part_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime, timedelta

STEP: Final = "step"
SLEEP: Final = "sleep"
WAIT: Final = "wait"


class Steps:
    """The steps, sleeps and waits of one attempt of a task's job; `parts` are those written so far, by whom ever."""

    __slots__ = ("_called", "_parts", "_signals", "_sleeps", "_task", "_under_way", "_waits")

    def __init__(self, task: str, parts: Mapping[str, Part], signals: Mapping[str, str]) -> None:
        self._task = task
        self._parts = parts
        self._signals = signals
        self._called: dict[str, tuple[Any, ...]] = {}
        """What each step of this attempt was called with."""
        self._under_way: set[str] = set()
        self._sleeps: set[str] = set()
        """The sleeps this attempt came to."""
        self._waits = False
        """Whether a sleep or a wait is under way: the attempt is about to end there."""

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Refuse to wait beside something else: what gives the slot back leaves that behind, and would not hear of it."""
        if self._under_way or self._waits:
            beside = f"{min(self._under_way)!r} is" if self._under_way else "another sleep or wait is"
            raise self._refusal(
                f"job.{what} ends the attempt, and {beside} under way beside it: await one after another, not side by side"
            )
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def step(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step:
        """Return a step: to be recalled where it is stored, to be run otherwise. A name means one call."""
        part = part_name(STEP, name, self._task)
        given: object = function
        if not callable(given):
            if inspect.iscoroutine(given):
                given.close()
            raise self._refusal(
                f"the step {name!r} needs a function and its args, as in job.step({name!r}, function, 1), and not what a call "
                "gives: it would be made before it is known whether it has to be"
            )
        if self._waits:
            raise self._refusal(f"the step {name!r} begins beside a sleep or a wait, which ends the attempt: await that first")
        before = self._called.setdefault(part, (function, args, kwargs))
        if not _same(before, (function, args, kwargs)):
            raise self._refusal(
                f"the step {name!r} was called before in this attempt with another function or other args: a step is known by "
                "its name, so give each a name of its own, such as one that says its args"
            )
        if part in self._under_way:
            raise self._refusal(f"the step {name!r} is under way already: await the first before the second")
        return Step(part, _codec_of(name, function, self._task), self._parts.get(part), self._under_way)

    def sleep(self, seconds: float | timedelta, name: str | None, now: datetime) -> tuple[Part | None, Suspended | None]:
        """Return what is to be stored of a sleep, and how the job waits; `None`: it has slept."""
        length = checked_seconds(seconds, SLEEP, self._task)
        key = part_name(SLEEP, str(len(self._sleeps) + 1) if name is None else name, self._task)
        if key in self._sleeps:
            raise self._refusal(f"there are two sleeps named {name!r} in this attempt: give each a name of its own, or none")
        self._sleeps.add(key)
        part = self._parts.get(key)
        if part is None:
            if not length:
                return None, None
            part = opened_wait(key, now, length)
            return part, Suspended(until=deadline_of(part))
        if part.state is PartState.COMPLETED:
            return None, None
        until = deadline_of(part)
        if until is not None and now < until:  # woken too early: by a retry, or after a failure in a neighbour's task
            return None, Suspended(until=until)
        return Part(key, PartState.COMPLETED, data=part.data), None

    def wait(self, signal: str, timeout: float | timedelta | None, now: datetime) -> tuple[Part | None, Suspended | None]:
        """Return what is to be stored of a wait, and how the job waits; `None`: it is over, see `received`."""
        key = part_name(WAIT, signal, self._task)
        part = self._parts.get(key)
        if part is None:
            length = None if timeout is None else checked_seconds(timeout, "wait_for.timeout", self._task)
            part = opened_wait(key, now, length)
            return part, Suspended(deadline_of(part), signal)
        if part.state is not PartState.IN_PROGRESS:
            return None, None
        if (text := self._signals.get(signal)) is not None:
            return Part(key, PartState.COMPLETED, data=text), None
        until = deadline_of(part)
        if until is not None and now >= until:
            return Part(key, PartState.FAILED, data=part.data, error=_timed_out(signal)), None
        return None, Suspended(until, signal)

    def received(self, signal: str, annotation: Any) -> Any:
        """Return what a signal carried whose wait is over; raises `TimeoutError` where it did not come in time."""
        part = self._parts[part_name(WAIT, signal, self._task)]
        if part.state is PartState.FAILED:
            raise TimeoutError(part.error or _timed_out(signal))
        try:
            codec = ResultCodec(annotation, shape_of(annotation), task=self._task, max_bytes=DEFAULT_MAX_BYTES, sealer=None)
            return codec.decode(part.data or "null")
        except UnsupportedTypeError as error:
            raise BadJob(f"nothing of this type can be received: {error}", path="wait_for.type", task=self._task) from error
        except BadResult as error:
            where = error.path.replace("result", f"signal {signal!r}", 1)
            raise BadJob(f"what it carried is not of the type that was asked for: {error.reason}", path=where) from error

    def _refusal(self, reason: str) -> BadJob:
        return BadJob(reason, path=STEP, task=self._task)


class Step:
    """One step: recalled, or run and remembered."""

    __slots__ = ("_codec", "_name", "_part", "_under_way")

    def __init__(self, name: str, codec: ResultCodec, part: Part | None, under_way: set[str]) -> None:
        self._name = name
        self._codec = codec
        self._part = part if part is not None and part.state is PartState.COMPLETED else None
        self._under_way = under_way

    @property
    def stored(self) -> bool:
        """Whether an earlier attempt, or this one, has run it."""
        return self._part is not None

    def recalled(self) -> Any:
        """Return what was stored. Raises `BadResult` where the function's annotation no longer takes it."""
        data = None if self._part is None else self._part.data
        return self._codec.decode(data or "null")

    def __enter__(self) -> None:
        self._under_way.add(self._name)

    def __exit__(self, *_: object) -> None:
        self._under_way.discard(self._name)

    def given(self, value: Any) -> Part:
        """Return the part to store. Raises `BadResult` for what would not come back as it is."""
        return Part(self._name, PartState.COMPLETED, data=self._codec.encode(value))


def open_waits(parts: Mapping[str, Part]) -> list[str]:
    """Return the signals that a job still waits for."""
    prefix = f"{WAIT}:"
    return [
        name.removeprefix(prefix)
        for name, part in parts.items()
        if part.state is PartState.IN_PROGRESS and name.startswith(prefix)
    ]


def _codec_of(name: str, function: Callable[..., Any], task: str) -> ResultCodec:
    where = f"{task}, step {name}"
    try:
        inspect.signature(function)
    except (TypeError, ValueError):  # a function of C that says nothing of itself: plain JSON
        return ResultCodec(Any, shape_of(Any), task=where, max_bytes=DEFAULT_MAX_BYTES, sealer=None)
    try:
        return ResultCodec.of(function, task=where)
    except BadTask as error:
        raise BadJob(f"its result cannot be stored: {error}", path=f"{STEP} {name!r}", task=task) from error


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001  the args are the user's: what cannot be compared is another
        return False


def _timed_out(signal: str) -> str:
    return f"the signal {signal!r} was not emitted in time"
