"""The histograms of turns, model calls and tools.

Owns: the instruments. Must never know: when something is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from . import conventions as names

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

__all__ = ["Meters"]

_ALL: Final = {
    names.OPERATION_DURATION: ("s", "GenAI operation duration.", names.SECONDS),
    names.TOKEN_USAGE: ("{token}", "Number of input and output tokens used.", names.TOKENS),
    names.INVOKE_AGENT_DURATION: (
        "s",
        "Duration of one agent invocation.",
        names.TURN_SECONDS,
    ),
    names.INFERENCE_CALLS: (
        "{inference_call}",
        "Number of requests to models in one agent invocation.",
        names.CALLS,
    ),
    names.TOOL_CALLS: ("{tool_call}", "Number of tool calls that ran in one agent invocation.", names.CALLS),
    names.EXECUTE_TOOL_DURATION: ("s", "The duration of a single tool execution.", names.SECONDS),
    names.STATE_BYTES: ("By", "Size of the state after a turn.", names.TOKENS),
    names.TURN_WAIT: ("s", "How long a turn waited for a lease, or to send a request again.", names.SECONDS),
}
"""By name: the unit, the description, the boundaries of its buckets."""


class Meters:
    """The instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        self._by_name: dict[str, Histogram] = {
            name: meter.create_histogram(
                name, unit=unit, description=words, explicit_bucket_boundaries_advisory=list(bounds)
            )
            for name, (unit, words, bounds) in _ALL.items()
        }

    def record(self, name: str, value: float, attributes: Mapping[str, str | int]) -> None:
        """Record one value. Attributes without a value are left out."""
        given = {key: value for key, value in attributes.items() if value}
        self._by_name[name].record(value, given)
