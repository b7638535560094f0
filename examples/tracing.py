"""One trace from an enqueue over its attempts to the jobs that they enqueue. Prints its spans instead of exporting them."""

import asyncio
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Holdfast
from holdfast.telemetry import instrument

spans = InMemorySpanExporter()
provider = TracerProvider()  # with the exporter of your choice: OTLP, Jaeger, a vendor's
provider.add_span_processor(SimpleSpanProcessor(spans))

app = Holdfast("memory://")
instrument(app, provider=provider)  # or instrument(app), with opentelemetry's global provider


@app.task(name="thumbnail")
async def thumbnail(video: int) -> str:
    return f"{video}.jpg"


@app.task(name="publish")
async def publish(video: int) -> str:
    handle = await thumbnail.enqueue(video)
    return str(handle.id)


async def main() -> None:
    with provider.get_tracer("shop").start_as_current_span("POST /videos"):
        handle = await publish.enqueue(7)
    async with app.worker():
        child = await handle.result(timeout=10)
        await app.job(child).result(timeout=10)
    await app.close()
    show(spans.get_finished_spans(), parent=None, depth=0)


def show(found: Sequence[ReadableSpan], parent: int | None, depth: int) -> None:
    for span in found:
        if (span.parent.span_id if span.parent else None) == parent and span.context is not None:
            print("  " * depth + span.name)
            show(found, span.context.span_id, depth + 1)


if __name__ == "__main__":
    asyncio.run(main())
