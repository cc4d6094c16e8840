"""What a test of telemetry has exported."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from goaitools_py.telemetry import Telemetry


class Seen:
    """What was exported, and a `Telemetry` that exports it."""

    def __init__(self) -> None:
        self.spans_out = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans_out))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self.reader])

    def telemetry(self, **options: Any) -> Telemetry:
        return Telemetry(self.tracers, self.meters, **options)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.spans_out.get_finished_spans()

    def of(self, operation: str) -> list[ReadableSpan]:
        found = [
            one for one in self.spans if (one.attributes or {}).get("gen_ai.operation.name") == operation
        ]
        return sorted(found, key=lambda one: one.start_time or 0)

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
