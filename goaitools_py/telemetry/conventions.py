"""Names of OpenTelemetry's conventions for generative AI, as this package writes them.

Owns: the names, and the boundaries of histograms. Must never know: a span, or a turn.

Source: https://github.com/open-telemetry/semantic-conventions-genai, read 2026-11-26. All of it has the
status "Development". The package ``opentelemetry-semantic-conventions`` marks its own GenAI constants as
moved, and lacks the newest, so they stand here. Names that begin with ``goaitools.`` are ours.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGENT_NAME",
    "CACHE_READ_TOKENS",
    "CACHE_WRITE_TOKENS",
    "CALLS",
    "COMPACTED",
    "CONVERSATION_ID",
    "ERROR_TYPE",
    "EXECUTE_TOOL_DURATION",
    "FINISH_REASONS",
    "INFERENCE_CALLS",
    "INPUT_MESSAGES",
    "INPUT_TOKENS",
    "INVOKE_AGENT_DURATION",
    "OPERATION",
    "OPERATION_DURATION",
    "OUTPUT_MESSAGES",
    "OUTPUT_TOKENS",
    "OUTPUT_TYPE",
    "PROVIDER",
    "REASONING_TOKENS",
    "REQUEST_MODEL",
    "REQUEST_SETTINGS",
    "REQUEST_STREAM",
    "RESPONSE_ID",
    "RESPONSE_MODEL",
    "SCHEMA_URL",
    "SECONDS",
    "SERVER_ADDRESS",
    "SERVER_PORT",
    "STATE_BYTES",
    "TIME_TO_FIRST_CHUNK",
    "TOKENS",
    "TOKEN_TYPE",
    "TOKEN_USAGE",
    "TOOL_ARGUMENTS",
    "TOOL_CALLS",
    "TOOL_CALL_ID",
    "TOOL_DESCRIPTION",
    "TOOL_FLAG",
    "TOOL_NAME",
    "TOOL_RESULT",
    "TOOL_TYPE",
    "TURN_REF",
    "TURN_SECONDS",
    "TURN_STATUS",
    "TURN_WAIT",
    "provider_name",
]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The schema URL in ``model/manifest.yaml`` of the conventions."""

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
OUTPUT_TYPE: Final = "gen_ai.output.type"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_SETTINGS: Final = {
    "max_output_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
    "reasoning_effort": "gen_ai.request.reasoning.level",
}
"""By the name of a model setting."""
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
TURN_REF: Final = "goaitools.turn.ref"
TURN_STATUS: Final = "goaitools.turn.status"
TOOL_FLAG: Final = "goaitools.tool.flag"

OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
INVOKE_AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
EXECUTE_TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
STATE_BYTES: Final = "goaitools.state.bytes"
TURN_WAIT: Final = "goaitools.turn.wait"

SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Boundaries of the histograms of durations of one call."""
TURN_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
"""Boundaries of the histogram of durations of turns."""
CALLS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
"""Boundaries of the histograms of numbers of calls in a turn."""
TOKENS: Final = (
    1,
    4,
    16,
    64,
    256,
    1024,
    4096,
    16384,
    65536,
    262144,
    1048576,
    4194304,
    16777216,
    67108864,
)
"""Boundaries of the histograms of tokens and of bytes."""

_PROVIDERS: Final = {
    "openai": "openai",
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "foundry": "anthropic",
    "aws": "aws.bedrock",
}


def provider_name(family: str, wire: str) -> str:
    """The provider as the conventions name it. A server that they do not know has the name of the company
    that defines its API, and a provider API of one's own has its own name."""
    known = _PROVIDERS.get(family) or ("anthropic" if wire == "anthropic" else "")
    return known or ("openai" if wire.startswith("openai") else family or wire)
