"""Values of this package as attributes of spans and metrics, and the histograms that record them.

Owns: the attributes of a backend, an error, a tool, a message, and of used tokens; the instruments. Must
never know: when a span begins or ends, or something is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..backends.base import BackendError
from ..types.errors import GoAIToolsError
from ..types.messages import Message, Text
from ..types.usage import Usage
from . import conventions as names

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

__all__ = [
    "Meters",
    "description",
    "error_type",
    "given",
    "provider",
    "server",
    "shown",
    "tokens",
    "turn_tokens",
]


def provider(backend: Any) -> str:
    """The name of a backend's provider, as the conventions have it."""
    dialect = backend.dialect
    return names.provider_name(dialect.family, dialect.wire)


def server(backend: Any) -> dict[str, Any]:
    """The host and port that a backend asks; {} before it has connected, if only a string names it."""
    found = getattr(backend, "server", None)
    return {} if found is None else {names.SERVER_ADDRESS: found[0], names.SERVER_PORT: found[1]}


def description(tool: Any) -> str:
    """Give the tool's description for the model, or "". A schema that depends on the turn is not made anew:
    its function is the caller's code."""
    if tool.description is not None or callable(tool.parameters):
        return tool.description or ""
    text: str = tool.spec().description
    return text


def turn_tokens(usage: Usage) -> dict[str, int]:
    """The tokens of a turn. Their kinds stand in the spans of its calls: a turn may ask several models, with
    different prompt caches."""
    if not usage.requests:
        return {}
    return {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens}


def tokens(usage: Usage) -> dict[str, int]:
    """The tokens of one call. A kind with zero tokens is left out, except for input and output tokens."""
    every = turn_tokens(usage)
    if not every:
        return {}
    some = {
        names.CACHE_READ_TOKENS: usage.cached_input_tokens,
        names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
    }
    return {**every, **{name: count for name, count in some.items() if count}}


def given(told: Mapping[str, Any]) -> dict[str, Any]:
    """Give the attributes that have a value. False, "", () and None do not count as values; 0 does."""
    return {
        name: [value] if name == names.REQUEST_SETTINGS["stop"] and isinstance(value, str) else value
        for name, value in told.items()
        if value not in ("", (), None) and value is not False
    }


def error_type(error: BaseException) -> str:
    """The provider's status, or the class of the error: never its text."""
    if isinstance(error, BackendError):
        return "timeout" if error.timed_out else str(error.status or error.kind)
    if isinstance(error, GoAIToolsError) and getattr(error, "status_code", None):
        return str(error.status_code)  # type: ignore[attr-defined]
    return type(error).__name__


def shown(message: Message) -> dict[str, Any]:
    """A message with its texts, in the JSON form of the conventions."""
    parts = [{"type": "text", "content": part.text} for part in message.parts if isinstance(part, Text)]
    return {"role": message.role, "parts": parts}


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
