"""Spans around enqueues and attempts. What belongs together is told by the W3C context that is stored with each job."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.redact import redact
from holdfast.errors import Aborted, BadSetting, Cancel, MissingExtra, Reschedule
from holdfast.tasks.continuing import Continue
from holdfast.tasks.suspending import suspension_of

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra("telemetry", "tracing", "opentelemetry-api") from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from holdfast.app import Holdfast
    from holdfast.core.job import NewJob
    from holdfast.tasks.bound import Call
    from holdfast.tasks.context import Job

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
SYSTEM: Final = "holdfast"
OUTCOME: Final = "holdfast.outcome"
_W3C: Final = TraceContextTextMapPropagator()


def instrument(app: Holdfast, *, provider: TracerProvider | None = None) -> None:
    """Have every enqueue and every attempt of an app traced, by the global provider unless one is given. Call it once.

    An enqueue is a span of kind PRODUCER; its context is stored with the jobs. Every attempt is a span of kind CONSUMER below
    it, wherever and however much later it runs, and what an attempt enqueues or continues with is below the attempt.
    """
    from holdfast import __version__  # noqa: PLC0415  of a package that may just be loading this

    if app.tracing is not None:
        raise BadSetting("this app is instrumented already: call instrument(app) once")
    tracing = Spans(trace.get_tracer("holdfast", __version__, tracer_provider=provider))
    app.tracing = tracing
    app.middleware(tracing.attempt)


class Spans:
    """Makes the spans."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def enqueuing(self, calls: Sequence[Call[Any]]) -> Iterator[None]:
        """Wrap an enqueue, and give its jobs the context of the span unless they have one."""
        tasks = sorted({call.job.task for call in calls})
        name = f"enqueue {tasks[0]}" if len(tasks) == 1 else "enqueue"
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            "messaging.batch.message_count": len(calls),
            "holdfast.tasks": tasks,
        }
        queues = {call.job.queue for call in calls}
        if len(queues) == 1:
            attributes["messaging.destination.name"] = min(queues)
        if len(calls) == 1:
            attributes["messaging.message.id"] = str(calls[0].job.id)
        with self._tracer.start_as_current_span(name, kind=trace.SpanKind.PRODUCER, attributes=attributes):
            stamp = current()
            for call in calls:
                if stamp is not None and call.job.trace is None:
                    call.job = _stamped(call.job, stamp)
            yield

    async def attempt(self, job: Job, call_next: Callable[[Job], Awaitable[Any]]) -> Any:
        """Wrap an attempt. It is below the enqueue that made the job, not below whatever the worker does."""
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "run",
            "messaging.operation.type": "process",
            "messaging.destination.name": job.queue,
            "messaging.message.id": str(job.id),
            "holdfast.task": job.task,
            "holdfast.attempt": job.attempt,
            "holdfast.failures": job.failures,
        }
        with self._tracer.start_as_current_span(
            f"run {job.task}",
            context=context_of(job.trace),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                value = await call_next(job)
            except BaseException as error:
                _note(span, error)
                raise
            span.set_attribute(OUTCOME, "continued" if isinstance(value, Continue) else "succeeded")
            if isinstance(value, Continue) and value.job.trace is None and (stamp := current()) is not None:
                value = Continue(_stamped(value.job, stamp), value.call)
            return value


def current() -> str | None:
    """Return the context of the current span as it is stored with a job: `traceparent`, and `tracestate` after a blank."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    if PARENT not in carrier:
        return None
    return f"{carrier[PARENT]} {carrier[STATE]}" if carrier.get(STATE) else carrier[PARENT]


def context_of(stored: str | None) -> Context:
    """Return the context that was stored with a job; an empty one where there is none, or it cannot be read."""
    parent, _, state = (stored or "").partition(" ")
    return _W3C.extract({PARENT: parent, STATE: state} if state else {PARENT: parent})


def _stamped(job: NewJob, stamp: str) -> NewJob:
    return msgspec.structs.replace(job, trace=stamp)


def _note(span: Span, error: BaseException) -> None:
    """Tell how an attempt ended that gave nothing. Errors are told without what must not be seen."""
    if isinstance(error, (Aborted, asyncio.CancelledError)):
        span.set_attribute(OUTCOME, "aborted")
    elif isinstance(error, Cancel):
        span.set_attribute(OUTCOME, "canceled")
    elif isinstance(error, Reschedule):
        span.set_attribute(OUTCOME, "rescheduled")
    elif suspension_of(error) is not None:
        span.set_attribute(OUTCOME, "suspended")
    else:
        kind, text = type(error).__qualname__, redact(str(error))
        span.set_attribute(OUTCOME, "failed")
        span.add_event("exception", {"exception.type": kind, "exception.message": text})
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"{kind}: {text}"))
