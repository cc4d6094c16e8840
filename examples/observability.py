"""See what a turn did: its records in the log, its spans, and what it cost.

Install: pip install 'goaitools-py[otel]' opentelemetry-sdk
"""

import logging

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from goaitools_py import Chat, tool
from goaitools_py.telemetry import Telemetry


@tool
def get_score(team: str) -> int:
    """Current score of one team."""
    return {"Red": 30}[team]


def main() -> None:
    """Run one turn, and print what was seen of it."""
    print("(simulated: no language model is asked)")
    logging.basicConfig(format="log   %(name)-20s %(event)s")
    logging.getLogger("goaitools_py").setLevel(logging.INFO)
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    with Chat("sim", tools=[get_score], telemetry=Telemetry(provider, agent="guide")) as chat:
        result = chat.chat(user="What is the score of Red?")

    for span in spans.get_finished_spans():
        took = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
        print(f"span  {span.name:28} {'ok' if span.status.is_unset else 'error':6} {took > 0}")
    print("reply", result.text, "|", result.iterations, "model calls,", len(result.tool_log), "tool call")


if __name__ == "__main__":
    main()
