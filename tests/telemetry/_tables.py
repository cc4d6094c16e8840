"""A copy of the tables of OpenTelemetry's conventions for generative AI, as far as this package writes them.

Source: https://github.com/open-telemetry/semantic-conventions-genai, read 2026-11-23. A set of attributes has
those that a span of its kind must have; the other one those that it may have. What is not named in either is
not written, but for names that begin with ``goaitools.``.

One name is ours to keep: the conventions have taken `gen_ai.provider.name` from the span of an agent in the
same process, and since a turn may fall back to another provider, this package writes it.
"""

from __future__ import annotations

USAGE = {
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.reasoning.output_tokens",
}
CONTENT = {"gen_ai.input.messages", "gen_ai.output.messages"}

SPANS = {
    "invoke_agent": (
        "INTERNAL",
        {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.conversation.id", "gen_ai.request.model"},
        {
            "error.type",
            "gen_ai.agent.name",
            "gen_ai.conversation.compacted",
            "gen_ai.output.type",
            "gen_ai.response.finish_reasons",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
        },
    ),
    "chat": (
        "CLIENT",
        {
            "gen_ai.operation.name",
            "gen_ai.provider.name",
            "gen_ai.request.model",
            "server.address",
            "server.port",
        },
        {
            "error.type",
            "gen_ai.conversation.id",
            "gen_ai.output.type",
            "gen_ai.request.frequency_penalty",
            "gen_ai.request.max_tokens",
            "gen_ai.request.presence_penalty",
            "gen_ai.request.reasoning.level",
            "gen_ai.request.seed",
            "gen_ai.request.stop_sequences",
            "gen_ai.request.stream",
            "gen_ai.request.temperature",
            "gen_ai.request.top_p",
            "gen_ai.response.finish_reasons",
            "gen_ai.response.id",
            "gen_ai.response.model",
            "gen_ai.response.time_to_first_chunk",
            *USAGE,
        },
    ),
    "execute_tool": (
        "INTERNAL",
        {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.tool.call.id"},
        {"error.type", "gen_ai.agent.name", "gen_ai.conversation.id", "gen_ai.tool.description"},
    ),
}
"""By operation: the kind, what it must have, and what it may have. Content comes only on request."""

SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]

METRICS = {
    "gen_ai.client.operation.duration": ("s", SECONDS),
    "gen_ai.client.token.usage": (
        "{token}",
        [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864],
    ),
    "gen_ai.invoke_agent.duration": (
        "s",
        [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6],
    ),
    "gen_ai.invoke_agent.inference_calls": ("{inference_call}", [1, 2, 4, 8, 16, 32, 64, 128]),
    "gen_ai.invoke_agent.tool_calls": ("{tool_call}", [1, 2, 4, 8, 16, 32, 64, 128]),
    "gen_ai.execute_tool.duration": ("s", SECONDS),
}
"""By name: the unit, and the boundaries of the buckets."""
