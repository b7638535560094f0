"""One trace from an enqueue over its attempts to the jobs that they enqueue, wherever and whenever they run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import BadSetting, Cancel, Holdfast, Job, Reschedule, State
from holdfast.telemetry import instrument
from holdfast.telemetry.tracing import context_of, current
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

WAIT = 20.0


class Traced:
    """An app, and the spans that it gave."""

    def __init__(self, url: str) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.app = Holdfast(url)
        self.tracer = provider.get_tracer("the caller")
        instrument(self.app, provider=provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


@pytest.fixture(params=["memory", "sqlite"])
async def traced(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Traced]:
    traced = Traced("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}")
    yield traced
    await traced.app.close()


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    number: int = span.context.span_id
    return number


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_an_attempt_is_below_its_enqueue_and_a_child_below_the_attempt(traced: Traced) -> None:
    @traced.app.task(name="child")
    async def child() -> None: ...

    @traced.app.task(name="parent")
    async def first() -> str:
        return str((await child.enqueue()).id)

    with traced.tracer.start_as_current_span("request") as request:
        handle = await first.enqueue()
    async with traced.app.worker():
        child_id = await handle.result(timeout=WAIT)
        await traced.app.job(child_id).result(timeout=WAIT)

    enqueued, ran = traced.span("enqueue parent"), traced.span("run parent")
    below, child_ran = traced.span("enqueue child"), traced.span("run child")
    assert parent(enqueued) == request.get_span_context().span_id
    assert parent(ran) == own(enqueued)
    assert parent(below) == own(ran)
    assert parent(child_ran) == own(below)
    everything = (enqueued, ran, below, child_ran)
    assert {span.context.trace_id for span in everything if span.context} == {request.get_span_context().trace_id}
    assert [span.kind for span in (enqueued, ran)] == [SpanKind.PRODUCER, SpanKind.CONSUMER]
    assert attributes(ran) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": str(handle.id),
        "holdfast.task": "parent",
        "holdfast.attempt": 1,
        "holdfast.failures": 0,
        "holdfast.outcome": "succeeded",
    }


async def test_the_next_step_of_a_chain_is_below_the_step_before(traced: Traced) -> None:
    @traced.app.task(name="second")
    async def second() -> str:
        return "done"

    @traced.app.task(name="first", continues_with=[second])
    async def first(*, job: Job) -> str:
        return job.continue_with(second)

    chain = await first.start_chain()
    async with traced.app.worker():
        assert await chain.result(timeout=WAIT) == "done"

    assert parent(traced.span("run second")) == own(traced.span("run first"))
    assert attributes(traced.span("run first"))["holdfast.outcome"] == "continued"


async def test_every_attempt_is_a_span_and_a_failed_one_says_why_without_secrets(traced: Traced) -> None:
    @traced.app.task(name="flaky", retry=2)
    async def flaky(*, job: Job) -> None:
        if job.attempt == 1:
            raise ValueError("password=hunter2")

    handle = await flaky.options(retry=2).enqueue()
    async with traced.app.worker():

        async def failed_once() -> bool:
            return (await handle.view()).failures == 1

        await until(failed_once)
        await traced.app.client().store.rewind(3600)
        await handle.result(timeout=WAIT)

    failed, succeeded = sorted(traced.spans("run flaky"), key=lambda span: attributes(span)["holdfast.attempt"])
    assert parent(failed) == parent(succeeded) == own(traced.span("enqueue flaky"))
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "ValueError: password=[redacted]"
    assert [(event.name, dict(event.attributes or {})) for event in failed.events] == [
        ("exception", {"exception.type": "ValueError", "exception.message": "password=[redacted]"})
    ]
    assert succeeded.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("raised", "outcome", "state"),
    [(Cancel("enough"), "canceled", State.CANCELED), (Reschedule(after=600), "rescheduled", State.SCHEDULED)],
)
async def test_what_is_no_failure_is_no_error_of_its_span(
    traced: Traced, raised: Exception, outcome: str, state: State
) -> None:
    @traced.app.task(name="odd")
    async def odd() -> None:
        raise raised

    handle = await odd.enqueue()
    async with traced.app.worker():

        async def there() -> bool:
            return await handle.state() is state

        await until(there)

    assert traced.span("run odd").status.status_code is StatusCode.UNSET
    assert attributes(traced.span("run odd"))["holdfast.outcome"] == outcome


async def test_a_batch_is_one_span_and_each_job_has_its_context(traced: Traced) -> None:
    @traced.app.task(name="one")
    async def one(n: int) -> None: ...

    @traced.app.task(name="two", queue="other")
    async def two() -> None: ...

    handles = await traced.app.enqueue_many([one.call(1), one.call(2), two.call()])
    views = [await handle.view() for handle in handles]

    span = traced.span("enqueue")
    assert attributes(span)["messaging.batch.message_count"] == 3
    assert attributes(span)["holdfast.tasks"] == ("one", "two")
    stored = {view.trace for view in views}
    assert len(stored) == 1
    assert f"-{own(span):016x}-" in (stored.pop() or "")


async def test_a_trace_that_the_caller_gives_stands(traced: Traced) -> None:
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 vendor=value"

    @traced.app.task(name="given")
    async def task() -> None: ...

    handle = await task.options(trace=given).enqueue()
    async with traced.app.worker():
        await handle.result(timeout=WAIT)

    span = traced.span("run given")
    assert (parent(span), span.context and f"{span.context.trace_id:032x}") == (
        0xB7AD6B7169203331,
        "0af7651916cd43dd8448eb211c80319c",
    )
    assert span.context is not None
    assert span.context.trace_state.to_header() == "vendor=value"


async def test_blocking_code_is_followed_too(traced: Traced) -> None:
    @traced.app.task(name="blocking")
    async def task() -> None: ...

    def enqueue() -> None:
        with traced.tracer.start_as_current_span("request"):
            task.enqueue_sync()
        traced.app.close_sync()

    thread = threading.Thread(target=enqueue)
    thread.start()
    thread.join()

    assert parent(traced.span("enqueue blocking")) == own(traced.span("request"))


@pytest.mark.parametrize("stored", [None, "", "nonsense", "00-zz-zz-01", "a b c", "🎈"])
async def test_a_context_that_cannot_be_read_begins_a_trace_of_its_own(traced: Traced, stored: str | None) -> None:
    with traced.tracer.start_as_current_span("run", context=context_of(stored)) as span:
        assert getattr(span, "parent", None) is None
        assert current() is not None


async def test_nothing_is_stored_where_nothing_is_traced(traced: Traced) -> None:
    assert current() is None
    plain = Holdfast("memory://")

    @plain.task()
    async def task() -> None: ...

    view = await (await task.enqueue()).view()
    assert view is not None
    assert view.trace is None
    await plain.close()


async def test_an_app_is_instrumented_once(traced: Traced) -> None:
    with pytest.raises(BadSetting, match="instrumented already"):
        instrument(traced.app)
