"""OpenTelemetry: one trace from an enqueue over its attempts to the jobs that they enqueue."""

from holdfast.telemetry.tracing import instrument

__all__ = ["instrument"]
